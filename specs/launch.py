"""The one interpreter of profiles: (profile, bindings) → launch plan, pure and without IO.

The local runner and the Harbor agent both execute the plan that this module makes; equal
profiles and bindings give byte-identical plans. Arguments stay literal: nothing here passes
through a shell, and only the bindings of `specs.profile.Binding` expand, in arguments,
environment values and file paths. `$${` is a literal `${`; every other `${…}` is an error.

The environment always carries the routing names, bound to the trial's own endpoint. A profile
that sets one of them to anything else would send calls past capture: `launch_conflict`.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.profile import Agent, Binding, Engine, Profile, safe_path

SCHEMA = "practicum.launch/v1"

INSTRUCTION_FILE = "/tmp/practicum/instruction.md"
"""Where `deliver: file` puts the instruction."""
TOKEN_PLACEHOLDER = "${model.token}"
"""Stands in a recorded plan where the trial's credential was (invariant 13)."""

ROUTING: Mapping[str, Binding] = {
    "ANTHROPIC_BASE_URL": Binding.MODEL_BASE_URL,
    "ANTHROPIC_AUTH_TOKEN": Binding.MODEL_TOKEN,
    "ANTHROPIC_API_KEY": Binding.MODEL_TOKEN,
}
"""Names that decide where model calls go; each may only be set to its binding."""
ALWAYS_SET = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
BYPASSING = frozenset(
    {"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"}
)
"""Names that send a harness to a provider of its own."""

SUPPORTED_ENGINES = ("command",)

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}?")
_NAMES = {str(binding): binding for binding in Binding}


class LaunchFile(Contract):
    """A file to write before setup."""

    path: str
    content: str
    mode: int


class LaunchOutput(Contract):
    """A file that the agent should leave: `name` as declared, `path` absolute."""

    name: str
    path: str
    required: bool


class LaunchPlan(Contract):
    """Everything that a launch does, in order: files, setup, then argv in workdir."""

    schema_: Literal["practicum.launch/v1"] = Field(default=SCHEMA, alias="schema")
    engine: Engine
    workdir: str
    files: tuple[LaunchFile, ...]
    setup: tuple[str, ...]
    argv: tuple[str, ...]
    env: dict[str, str]
    stdin: str | None
    instruction_file: str | None
    """Where the instruction lies; it is one of `files`."""
    outputs: tuple[LaunchOutput, ...]


def plan_launch(profile: Profile, bindings: Mapping[Binding, str]) -> LaunchPlan:
    """The launch plan of a profile.

    `bindings` holds every binding but `workdir` and `instruction.file`, which follow from the
    profile.

    Raises:
        InvalidInput: `unknown_binding`, `launch_conflict`, `engine_unsupported` or
            `invalid_document`, naming the field.
    """
    agent = profile.agent
    if agent.engine.name not in SUPPORTED_ENGINES:
        raise _refuse(
            "/agent/engine/name",
            f"engine {agent.engine.name!r} cannot be launched by this version",
            f"Use one of: {', '.join(SUPPORTED_ENGINES)}.",
            ErrorCode.ENGINE_UNSUPPORTED,
        )
    by_file = agent.instruction.deliver == "file"
    values = {**bindings, Binding.WORKDIR: agent.workdir}
    values.pop(Binding.INSTRUCTION_FILE, None)
    if by_file:
        values[Binding.INSTRUCTION_FILE] = INSTRUCTION_FILE
    instruction = values[Binding.INSTRUCTION]
    if "\x00" in instruction:
        raise _refuse(
            "/agent/instruction", "the task's instruction has a NUL character", "Correct the task."
        )
    return LaunchPlan(
        engine=agent.engine,
        workdir=agent.workdir,
        files=_files(agent, values, instruction if by_file else None),
        setup=agent.setup,
        argv=_arguments(agent, values),
        env=_environment(agent, values),
        stdin=instruction if agent.instruction.deliver == "stdin" else None,
        instruction_file=INSTRUCTION_FILE if by_file else None,
        outputs=tuple(
            LaunchOutput(
                name=output.path,
                path=_absolute(agent.workdir, output.path),
                required=output.required,
            )
            for output in agent.outputs
        ),
    )


def recorded_plan(profile: Profile, bindings: Mapping[Binding, str]) -> LaunchPlan:
    """The plan as it is kept: the trial's credential is replaced by a placeholder."""
    return plan_launch(profile, {**bindings, Binding.MODEL_TOKEN: TOKEN_PLACEHOLDER})


def validate_profile(profile: Profile) -> LaunchPlan:
    """Check that a profile can be launched; the plan with each binding's name for its value.

    Raises:
        InvalidInput: what `plan_launch` would raise for every trial.
    """
    names = {binding: f"${{{binding}}}" for binding in Binding}
    return plan_launch(profile, names)


def _arguments(agent: Agent, values: Mapping[Binding, str]) -> tuple[str, ...]:
    expanded = [
        _expand(text, values, f"/agent/args/{index}") for index, text in enumerate(agent.args)
    ]
    if agent.instruction.deliver == "argument" and not any(
        Binding.INSTRUCTION in _references(text) for text in agent.args
    ):
        expanded.append(values[Binding.INSTRUCTION])
    return tuple(expanded)


def _environment(agent: Agent, values: Mapping[Binding, str]) -> dict[str, str]:
    env = {name: values[ROUTING[name]] for name in ALWAYS_SET}
    for name, text in agent.env.items():
        pointer = f"/agent/env/{name}"
        binding = ROUTING.get(name)
        if binding is not None and text != f"${{{binding}}}":
            raise _refuse(
                pointer,
                f"{name} decides where model calls go and may only be ${{{binding}}}",
                f"Remove it, or set it to ${{{binding}}}.",
                ErrorCode.LAUNCH_CONFLICT,
            )
        if name in BYPASSING:
            raise _refuse(
                pointer,
                f"{name} would send model calls past their capture",
                "Remove it.",
                ErrorCode.LAUNCH_CONFLICT,
            )
        env[name] = _expand(text, values, pointer)
    return dict(sorted(env.items()))


def _files(
    agent: Agent, values: Mapping[Binding, str], instruction: str | None
) -> tuple[LaunchFile, ...]:
    files: list[LaunchFile] = []
    seen: set[str] = set()
    for index, file in enumerate(agent.files):
        pointer = f"/agent/files/{index}"
        if file.content is None:
            raise _refuse(
                f"{pointer}/source",
                f"the content of {file.source!r} is not embedded",
                "Read the profile through the CLI, which embeds the content of sources.",
            )
        try:
            path = _absolute(
                agent.workdir, safe_path(_expand(file.path, values, f"{pointer}/path"))
            )
        except ValueError as error:
            raise _refuse(f"{pointer}/path", str(error), "Correct the path.") from None
        if path in seen or path == values.get(Binding.INSTRUCTION_FILE):
            raise _refuse(f"{pointer}/path", f"{path} is written twice", "Keep one of them.")
        seen.add(path)
        files.append(LaunchFile(path=path, content=file.content, mode=int(file.mode, 8)))
    if instruction is not None:
        files.append(LaunchFile(path=INSTRUCTION_FILE, content=instruction, mode=0o644))
    return tuple(files)


def _absolute(workdir: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(workdir, path))


def _references(text: str) -> set[Binding]:
    """The known bindings that a text uses."""
    found = (_NAMES.get(match[1] or "") for match in _REFERENCE.finditer(text))
    return {binding for binding in found if binding is not None}


def _expand(text: str, values: Mapping[Binding, str], pointer: str) -> str:
    """`text` with its bindings; a value is never expanded again."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        binding = _NAMES.get(match[1]) if match[0].endswith("}") else None
        if binding is None:
            raise _refuse(
                pointer,
                f"{match[0]!r} is not a known binding",
                "Use one of: "
                + ", ".join(f"${{{name}}}" for name in _NAMES)
                + "; write $${ for a literal ${.",
                ErrorCode.UNKNOWN_BINDING,
            )
        if binding not in values:
            raise _refuse(
                pointer,
                f"${{{binding}}} exists only with instruction.deliver = file",
                "Set agent.instruction.deliver to file, or remove the binding.",
                ErrorCode.LAUNCH_CONFLICT,
            )
        return values[binding]

    return _REFERENCE.sub(replace, text)


def _refuse(
    pointer: str, cause: str, step: str, code: ErrorCode = ErrorCode.INVALID_DOCUMENT
) -> InvalidInput:
    return InvalidInput(
        f"The profile cannot be launched: {pointer}: {cause}.",
        code=code,
        object=ErrorObject(type="profile", pointer=pointer),
        next=step,
    )
