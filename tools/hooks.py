"""What the plugin's hooks decide, as plain functions of what Claude Code says on stdin.

A call is recognised in both of its forms: the MCP tool, and `practicum noun verb` (or `python -m
tools noun verb`) in a shell command. What it does to the world comes from the registry's traits, so
the guard knows every operation that there is. A transcript is read for one question alone: was
something done since the journal was last written?

All of this is a reminder against carelessness and no sandbox. Of a shell command it sees what its
words say: simple commands, substitutions, what is handed to a shell, and comments, which it takes
for commands. It does not expand variables, and knows neither functions nor other programs' ways to
start one. Where it finds no call at all, but the words of one that is guarded, as in `P=practicum;
$P run cancel RUN`, the guard asks all the same: also before a search for these words. It cannot see
a noun or verb that a variable holds, a call in a script's file, `$P down`, whose one word says too
little, or a second call by such means beside one that was found; and the journal's reminder goes by
the calls that were found alone.
"""

import json
import re
import shlex
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from tools.index import SUMMARIES
from tools.registry import Operation, Traits, find

SERVERS: Final = ("mcp__plugin_practicum_practicum__", "mcp__practicum__")
"""How Claude Code begins the names of our tools: from the plugin, or from an `.mcp.json`."""

_BY_TOOL: Final = {f"{noun}_{verb}".replace("-", "_"): (noun, verb) for noun, verb in SUMMARIES}
_OPERATORS: Final = ";&|()`\n"
_SHELLS: Final = frozenset({"bash", "dash", "eval", "sh", "zsh"})
"""What runs a command that stands in one of its arguments."""
_PROGRAM: Final = re.compile(r"practicum|-m\s*tools\b")
_NEIGHBOURS: Final = re.compile(r"""(?<![\w-])([\w-]+)(?=[\s"',\\]+([\w-]+))""")
"""Two words side by side, also as items of a list in another language."""
_JOURNAL: Final = "journal"


class HookInput(BaseModel):
    """The fields of a hook's stdin that are used here; Claude Code sends more."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    tool_name: str = ""
    tool_input: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    permission_mode: str = "default"
    transcript_path: str | None = None
    cwd: str | None = None
    stop_hook_active: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One operation that somebody asked for, and whether it was only to be tried out."""

    noun: str
    verb: str
    dry_run: bool = False

    @property
    def operation(self) -> Operation:
        return find(self.noun, self.verb)


def calls(tool: str, given: dict[str, JsonValue]) -> list[Call]:
    """The operations that one tool call of Claude Code asks for."""
    if tool == "Bash":
        return list(_shell_calls(str(given.get("command", ""))))
    for server in SERVERS:
        key = _BY_TOOL.get(tool.removeprefix(server))
        if tool.startswith(server) and key is not None:
            return [Call(*key, dry_run=given.get("dry_run") is True)]
    return []


def guard(hook: HookInput) -> str | None:
    """Why a person should be asked before this call; None when it may pass.

    In the mode `bypassPermissions` somebody has said that nothing is to be asked.
    """
    if hook.permission_mode == "bypassPermissions":
        return None
    found = calls(hook.tool_name, hook.tool_input)
    if found or hook.tool_name != "Bash":
        reasons = _reasons([call for call in found if not call.dry_run])
        return f"Practicum: {'; '.join(reasons)}." if reasons else None
    reasons = _reasons(_named_anywhere(str(hook.tool_input.get("command", ""))))
    return f"Practicum: not understood, but named: {'; '.join(reasons)}." if reasons else None


def _reasons(asked: list[Call]) -> list[str]:
    reasons = [
        f"{call.operation.name} {reason}"
        for call in asked
        if (reason := reason_to_ask(call.operation.traits)) is not None
    ]
    return list(dict.fromkeys(reasons))


def _named_anywhere(command: str) -> list[Call]:
    """Operations whose words stand side by side in a text that has the program's name, too."""
    if _PROGRAM.search(command) is None:
        return []
    pairs = ((found[1], found[2]) for found in _NEIGHBOURS.finditer(command))
    return [Call(*pair) for pair in pairs if pair in SUMMARIES]


def reason_to_ask(traits: Traits) -> str | None:
    """What makes an operation one that a person should know of first."""
    if traits.decides:
        return "records a person's decision"
    if traits.destructive:
        return "may end or discard something that exists"
    return "spends a budget" if traits.spends else None


def unwritten(transcript: Path) -> list[str]:
    """Operations that changed shared records after the journal was last written, in order.

    What only makes files on this machine can be made again, and calls that failed changed nothing.
    """
    since: list[str] = []
    for call in _transcript_calls(transcript):
        if call.noun == _JOURNAL and not call.operation.traits.read_only:
            since.clear()
        elif _changes_records(call.operation.traits) and not call.dry_run:
            since.append(call.operation.name)
    return list(dict.fromkeys(since))


def _changes_records(traits: Traits) -> bool:
    return not traits.read_only and not traits.local


def _shell_calls(command: str) -> Generator[Call]:
    """Each `practicum … noun verb …` among the simple commands of a shell command."""
    command = command.replace("\\\n", "")  # a line that goes on in the next
    lexer = shlex.shlex(command, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""  # shlex takes the `#` of `a#b` for one, and drops what follows
    try:
        words = list(lexer)
    except ValueError:  # a quote is open, as in a heredoc: cut it roughly rather than not at all
        words = re.findall(rf"[{re.escape(_OPERATORS)}]+|[^\s{re.escape(_OPERATORS)}]+", command)
    for simple in _simple_commands(words):
        shell = _SHELLS & {word.rpartition("/")[2] for word in simple}
        for word in simple:
            if "$(" in word or "`" in word or (shell and " " in word):
                yield from _shell_calls(word)
        yield from _named(_arguments(simple))


def _arguments(simple: list[str]) -> list[str]:
    """What follows the program in a simple command; nothing where it does not stand."""
    for at, (before, word) in enumerate(zip(["", *simple], simple, strict=False), start=1):
        if word.rpartition("/")[2] == "practicum" or (before, word) == ("-m", "tools"):
            return simple[at:]
    return []


def _named(words: list[str]) -> Generator[Call]:
    pairs = zip(["stack", *words], words, strict=False)
    for pair in pairs:
        if pair in SUMMARIES:
            yield Call(*pair, dry_run="--dry-run" in words)
            return


def _simple_commands(words: list[str]) -> Generator[list[str]]:
    simple: list[str] = []
    for word in words:
        if word.strip(_OPERATORS):
            simple.append(word)
        else:
            yield simple
            simple = []
    yield simple


def _transcript_calls(transcript: Path) -> list[Call]:
    """Every call that did not fail, of a conversation and its delegated agents, by time."""
    agents = transcript.with_suffix("").glob("subagents/*.jsonl")
    files = [file for file in (transcript, *agents) if file.is_file()]
    blocks = [found for file in files for found in _tool_blocks(file)]
    failed = {block["tool_use_id"] for _, block in blocks if block.get("is_error")}
    made = [(at, block) for at, block in blocks if block["type"] == "tool_use"]
    made.sort(key=lambda found: found[0])
    return [
        call
        for _, block in made
        if block["id"] not in failed
        for call in calls(block["name"], block["input"])
    ]


def _tool_blocks(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Time and block of each call and each result; a line that is being written is left out."""
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"tool_use"' not in line and '"tool_result"' not in line:
                continue
            try:
                turn = cast(dict[str, Any], json.loads(line))
            except ValueError:
                continue
            content = cast(dict[str, Any], turn.get("message") or {}).get("content")
            for block in cast(list[Any], content if isinstance(content, list) else []):
                if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_result"):
                    yield str(turn.get("timestamp", "")), cast(dict[str, Any], block)
