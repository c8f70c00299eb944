"""Reads the subset of Dockerfiles that can be replayed in a sandbox, and refuses the rest.

Supported: one FROM; ARG, ENV, WORKDIR, USER, SHELL; RUN in both forms; COPY and ADD of local
files with --chown and --chmod. Accepted and without effect, because Harbor replaces the main
process: CMD, EXPOSE, LABEL, MAINTAINER, HEALTHCHECK, STOPSIGNAL, VOLUME. A refusal names the
line and the next step.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from runtime.execution.sandbox.errors import bad_dockerfile

IGNORED = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK", "STOPSIGNAL", "VOLUME"})
_SUPPORTED = frozenset({"FROM", "ARG", "ENV", "WORKDIR", "USER", "SHELL", "RUN", "COPY", "ADD"})
_FLAGS = {
    "FROM": frozenset({"platform"}),
    "RUN": frozenset({"mount", "network"}),
    "COPY": frozenset({"chown", "chmod", "link"}),
    "ADD": frozenset({"chown", "chmod", "link"}),
}
_LINE = re.compile(r"^\s*([A-Za-z]+)(?:\s+(.*))?$", re.DOTALL)
_FLAG = re.compile(r"--([a-z]+)(?:=(\S+))?(?:\s+|$)")
_HEREDOC = re.compile(r"<<-?\s*[\"']?[A-Za-z_]\w*[\"']?")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:[-+])([^}]*))?\})")
_ENGINE = "Rewrite it for the subset, or run the task with a container engine (Harbor's docker)."


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Dockerfile."""

    line: int
    name: str
    value: str
    flags: dict[str, str] = field(default_factory=dict[str, str])

    def json_form(self) -> list[str] | None:
        """The arguments in exec form (`["a", "b"]`), or None for the shell form."""
        if not self.value.startswith("["):
            return None
        try:
            words = json.loads(self.value)
        except ValueError:
            return None
        if not isinstance(words, list) or not all(isinstance(w, str) for w in words):  # pyright: ignore[reportUnknownVariableType]
            return None
        return words  # pyright: ignore[reportUnknownVariableType]


def parse(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile.

    Raises:
        InvalidInput: `dockerfile_unsupported`, naming the first line outside the subset.
    """
    instructions = [_read(line, logical) for line, logical in _logical_lines(text)]
    stages = [i for i in instructions if i.name == "FROM"]
    if not stages:
        raise bad_dockerfile(1, "there is no FROM.", next="Start it with FROM debian:bookworm.")
    if len(stages) > 1:
        raise bad_dockerfile(
            stages[1].line,
            "a second FROM: builds of several stages are not supported.",
            next="Make what the earlier stage makes in a RUN of a single stage.",
        )
    first = next(i for i in instructions if i.name != "ARG")
    if first.name != "FROM":
        raise bad_dockerfile(
            first.line, f"{first.name} before FROM.", next="Put FROM first (ARG may precede it)."
        )
    return instructions


def image_of(instructions: list[Instruction]) -> tuple[str, int]:
    """(image name of FROM with its ARGs expanded, its line)."""
    scope: dict[str, str] = {}
    for instruction in instructions:
        if instruction.name == "FROM":
            return (words(instruction.value, scope) or [""])[0], instruction.line
        name, _, default = instruction.value.partition("=")
        scope[name.strip()] = " ".join(words(default, scope))
    raise AssertionError("parse requires a FROM")


def words(text: str, scope: Mapping[str, str]) -> list[str]:
    """Split like docker does: quotes, backslashes, `$VAR`, `${VAR:-default}`, `${VAR:+other}`."""
    result: list[str] = []
    current: list[str] = []
    started, quote, position = False, "", 0
    while position < len(text):
        char = text[position]
        if quote != "'" and char == "\\" and position + 1 < len(text):
            following = text[position + 1]
            keep = quote == '"' and following not in '"\\$'
            current.append(char + following if keep else following)
            started, position = True, position + 2
        elif quote != "'" and (match := _VARIABLE.match(text, position)):
            current.append(_value(match, scope))
            started, position = True, match.end()
        elif char in "'\"" and quote in ("", char):
            quote = "" if quote else char
            started, position = True, position + 1
        elif char.isspace() and not quote:
            if started:
                result.append("".join(current))
            current, started, position = [], False, position + 1
        else:
            current.append(char)
            started, position = True, position + 1
    return [*result, "".join(current)] if started else result


def assignments(instruction: Instruction, scope: Mapping[str, str]) -> dict[str, str]:
    """The variables that an ENV sets, in both of its forms."""
    parts = words(instruction.value, scope)
    if parts and "=" in parts[0]:
        if not all("=" in part for part in parts):
            raise bad_dockerfile(
                instruction.line, "ENV mixes its two forms.", next="Write ENV NAME=value ..."
            )
        return dict(part.split("=", 1) for part in parts)
    name, _, value = instruction.value.partition(" ")
    return {name: " ".join(words(value.strip(), scope))}


def _value(match: re.Match[str], scope: Mapping[str, str]) -> str:
    name, braced, operator, argument = match.groups()
    value = scope.get(name or braced, "")
    if operator == ":-":
        return value or argument
    if operator == ":+":
        return argument if value else ""
    return value


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """(number of the first line, text) of each instruction; comments and continuations gone."""
    lines: list[tuple[int, str]] = []
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), start=1):
        if number == 1 and re.match(r"#\s*escape\s*=\s*`", raw):
            raise bad_dockerfile(1, "another escape character.", next="Use the backslash.")
        if raw.lstrip().startswith("#") or (parts and not raw.strip()):
            continue
        start = start if parts else number
        stripped = raw.rstrip()
        continued = stripped.endswith("\\")
        parts.append(stripped[:-1] if continued else stripped)
        if not continued:
            lines.append((start, "".join(parts).strip()))
            parts = []
    if parts:
        lines.append((start, "".join(parts).strip()))
    return [(number, line) for number, line in lines if line]


def _read(line: int, text: str) -> Instruction:
    match = _LINE.match(text)
    if match is None:
        raise bad_dockerfile(line, f"not an instruction: {text[:60]!r}.", next="Correct the line.")
    name, rest = match[1].upper(), (match[2] or "").strip()
    if name == "ENTRYPOINT":
        raise bad_dockerfile(
            line,
            "ENTRYPOINT is not run.",
            next="Remove it; start services from the tests or a RUN.",
        )
    if name in IGNORED:
        return Instruction(line, name, rest)
    if name not in _SUPPORTED:
        raise bad_dockerfile(line, f"{name} is not supported.", next=_ENGINE)
    if not rest:
        raise bad_dockerfile(line, f"{name} has no argument.", next="Correct the line.")
    if name in ("RUN", "COPY", "ADD") and _HEREDOC.search(rest) and not rest.startswith("["):
        raise bad_dockerfile(
            line, "here-documents are not supported.", next="Put the text in a file and COPY it."
        )
    flags: dict[str, str] = {}
    while name in _FLAGS and (flag := _FLAG.match(rest)):
        flags[flag[1]] = flag[2] or ""
        rest = rest[flag.end() :]
    _check_flags(line, name, flags)
    return Instruction(line, name, rest, flags)


def _check_flags(line: int, name: str, flags: dict[str, str]) -> None:
    if "from" in flags:
        raise bad_dockerfile(
            line,
            f"{name} --from={flags['from']} copies from another image.",
            next="Put the files in the task's environment folder and COPY them from there.",
        )
    for flag in flags:
        if flag not in _FLAGS[name]:
            raise bad_dockerfile(line, f"{name} --{flag} is not supported.", next=_ENGINE)
    mount = flags.get("mount", "type=cache")
    if "type=cache" not in mount.split(",") and "type=tmpfs" not in mount.split(","):
        raise bad_dockerfile(
            line, f"RUN --mount={mount} is not supported.", next="COPY what the command needs."
        )
    if flags.get("network", "default") not in ("default", "none"):
        raise bad_dockerfile(line, "RUN --network=host is not supported.", next="Remove the flag.")
