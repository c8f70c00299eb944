"""The one interpreter of profiles: (profile, bindings) → launch plan, pure and without IO.

The local runner and the Harbor agent both execute the plan that this module makes; equal
profiles and bindings give byte-identical plans. Arguments stay literal: nothing here passes
through a shell, and only the bindings of `specs.profile.Binding` expand, in arguments,
environment values and file paths. `$${` is a literal `${`; every other `${…}` is an error.

The environment always carries the routing names, bound to the trial's own endpoint. A profile
that sets one of them to anything else would send calls past capture: `launch_conflict`. What
Claude Code needs on top, and what it may not be told, is `specs.claude_code`.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import Field

from specs import claude_code
from specs.base import Contract
from specs.claude_code import Clash
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.profile import Agent, Binding, Engine, Profile, safe_path

SCHEMA = "practicum.launch/v1"

INSTRUCTION_FILE = "/tmp/practicum/instruction.md"
"""Where `deliver: file` puts the instruction."""
TOKEN_PLACEHOLDER = "${model.token}"
GRANT_PLACEHOLDER = "${gateway.token}"
"""Stand in a recorded plan where the trial's credentials were (invariant 13)."""

ROUTING: Mapping[str, Binding] = {
    name: binding
    for name, binding in claude_code.BOUND.items()
    if name not in claude_code.MODEL_NAMES
}
"""Names that decide where model calls go; each may only be set to its binding."""
ALWAYS_SET = ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN")
OPENAI: Mapping[str, str] = {
    "OPENAI_API_BASE": f"${{{Binding.MODEL_BASE_URL}}}/v1",
    "OPENAI_API_KEY": f"${{{Binding.MODEL_TOKEN}}}",
    "OPENAI_BASE_URL": f"${{{Binding.MODEL_BASE_URL}}}/v1",
}
"""The same for harnesses that speak OpenAI's APIs, set for every `command`."""
BYPASSING = claude_code.BYPASSING
SUPPORTED_ENGINES = ("claude-code", "command")

_REFERENCE = re.compile(r"\$\$\{|\$\{([^{}]*)\}?")
_ONLY_WITH = {
    Binding.INSTRUCTION_FILE: "with instruction.deliver = file",
    Binding.GATEWAY_URL: "in a trial whose plan has the key gateway",
    Binding.GATEWAY_TOKEN: "in a trial whose plan has the key gateway",
}
_GATEWAY = (Binding.GATEWAY_URL, Binding.GATEWAY_TOKEN)
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
    profile; a launch in a folder of its user's own gives them too. Those of `engine` matter to
    Claude Code alone.

    Raises:
        InvalidInput: `unknown_binding`, `launch_conflict`, `engine_unsupported` or
            `invalid_document`, naming the field.
    """
    agent = profile.agent
    _check_engine(agent.engine)
    by_file = agent.instruction.deliver == "file"
    values = {Binding.WORKDIR: agent.workdir, Binding.INSTRUCTION_FILE: INSTRUCTION_FILE}
    values |= bindings
    if not by_file:
        del values[Binding.INSTRUCTION_FILE]
    if agent.engine.name != "claude-code":
        values = {name: text for name, text in values.items() if not name.startswith("engine.")}
    instruction = values[Binding.INSTRUCTION]
    if "\x00" in instruction:
        raise _refuse(
            "/agent/instruction", "the task's instruction has a NUL character", "Correct the task."
        )
    plugins = _plugins(agent, values)
    files = (*plugins, *_files(agent, values, instruction if by_file else None))
    return LaunchPlan(
        engine=agent.engine,
        workdir=values[Binding.WORKDIR],
        files=files,
        setup=agent.setup,
        argv=_arguments(agent, values, files),
        env=_environment(agent, values),
        stdin=instruction if agent.instruction.deliver == "stdin" else None,
        instruction_file=values[Binding.INSTRUCTION_FILE] if by_file else None,
        outputs=tuple(
            LaunchOutput(
                name=output.path,
                path=_absolute(values[Binding.WORKDIR], output.path),
                required=output.required,
            )
            for output in agent.outputs
        ),
    )


def recorded_plan(profile: Profile, bindings: Mapping[Binding, str]) -> LaunchPlan:
    """The plan as it is kept: names stand where the trial's credentials were (invariant 13)."""
    hidden = {Binding.MODEL_TOKEN: TOKEN_PLACEHOLDER}
    if Binding.GATEWAY_URL in bindings:
        hidden[Binding.GATEWAY_TOKEN] = GRANT_PLACEHOLDER
    return plan_launch(profile, {**bindings, **hidden})


def uses_gateway(profile: Profile) -> bool:
    """Whether a profile has bindings that exist only where the plan has the key `gateway`."""
    agent = profile.agent
    texts = (*agent.args, *agent.env.values(), *(file.path for file in agent.files))
    return any(_references(text) & {*_GATEWAY} for text in texts)


def validate_profile(profile: Profile) -> LaunchPlan:
    """Check that a profile can be launched; the plan with each binding's name for its value.

    Raises:
        InvalidInput: what `plan_launch` would raise for every trial.
    """
    names = {binding: f"${{{binding}}}" for binding in Binding}
    names[Binding.WORKDIR] = profile.agent.workdir
    names[Binding.INSTRUCTION_FILE] = INSTRUCTION_FILE
    names[Binding.ENGINE_CONFIG] = f"/{names[Binding.ENGINE_CONFIG]}"  # paths are absolute
    return plan_launch(profile, names)


def _check_engine(engine: Engine) -> None:
    if engine.name not in SUPPORTED_ENGINES:
        raise _refuse(
            "/agent/engine/name",
            f"engine {engine.name!r} cannot be launched by this version",
            f"Use one of: {', '.join(SUPPORTED_ENGINES)}.",
            ErrorCode.ENGINE_UNSUPPORTED,
        )
    if engine.name == "claude-code" and not claude_code.EXACT_VERSION.fullmatch(engine.version):
        raise _refuse(
            "/agent/engine/version",
            f"claude-code needs an exact version, not {engine.version!r}",
            f"Write a version such as {claude_code.PINNED_VERSION}.",
            ErrorCode.ENGINE_UNSUPPORTED,
        )


def _arguments(
    agent: Agent, values: Mapping[Binding, str], files: tuple[LaunchFile, ...]
) -> tuple[str, ...]:
    expanded = [
        _expand(text, values, f"/agent/args/{index}") for index, text in enumerate(agent.args)
    ]
    native = agent.engine.name == "claude-code"
    fixed = _native_arguments(agent, expanded, values, files) if native else ()
    if agent.instruction.deliver == "argument" and not any(
        Binding.INSTRUCTION in _references(text) for text in agent.args
    ):
        if native and not claude_code.separates(expanded):
            expanded.append("--")  # an option that takes several values would take this one
        expanded.append(values[Binding.INSTRUCTION])
    return (*fixed, *expanded)


def _native_arguments(
    agent: Agent, args: list[str], values: Mapping[Binding, str], files: tuple[LaunchFile, ...]
) -> tuple[str, ...]:
    """Program and fixed arguments of Claude Code, its settings checked."""
    config = values[Binding.ENGINE_CONFIG]
    named = claude_code.settings_path(args)
    chosen = _absolute(values[Binding.WORKDIR], named) if named else None
    settings: list[str] = []
    for index, file in enumerate(files):
        if file.path == chosen or claude_code.is_settings(file.path, config):
            settings.append(file.content)
            _refuse_clash(claude_code.settings_clashes(file.content, f"/agent/files/{index}"))
    _refuse_clash(claude_code.argument_clashes(args))
    permissions = values[Binding.ENGINE_PERMISSIONS]
    return (
        values[Binding.ENGINE_PROGRAM],
        *claude_code.fixed_arguments(args, permissions, settings),
        *claude_code.plugin_arguments(_plugin_folders(agent, values)),
    )


def _environment(agent: Agent, values: Mapping[Binding, str]) -> dict[str, str]:
    if agent.engine.name == "claude-code":
        env = claude_code.environment(values)
        _refuse_clash(claude_code.environment_clashes(agent.env))
    else:
        env = {name: values[ROUTING[name]] for name in ALWAYS_SET}
        env |= {name: _expand(text, values, f"/agent/env/{name}") for name, text in OPENAI.items()}
        _refuse_clash(_routing_clashes(agent.env))
    for name, text in agent.env.items():
        if name not in claude_code.MODEL_NAMES or name not in env:
            env[name] = _expand(text, values, f"/agent/env/{name}")
    return dict(sorted(env.items()))


def _routing_clashes(env: Mapping[str, str]) -> Iterator[Clash]:
    """What any harness may not be told: the names of routing, and of other providers."""
    names = {name: text for name, text in env.items() if name in ROUTING or name in BYPASSING}
    yield from claude_code.environment_clashes(names)
    for name, text in env.items():
        if text != OPENAI.get(name, text):
            cause = f"{name} decides where model calls go"
            yield Clash(f"/agent/env/{name}", cause, f"Remove it, or set it to {OPENAI[name]}.")


def _refuse_clash(clashes: Iterator[Clash]) -> None:
    for clash in clashes:
        raise _refuse(clash.pointer, clash.cause, clash.step, ErrorCode.LAUNCH_CONFLICT)


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
                values[Binding.WORKDIR], safe_path(_expand(file.path, values, f"{pointer}/path"))
            )
        except ValueError as error:
            raise _refuse(f"{pointer}/path", str(error), "Correct the path.") from None
        if path in seen or path == values.get(Binding.INSTRUCTION_FILE):
            raise _refuse(f"{pointer}/path", f"{path} is written twice", "Keep one of them.")
        seen.add(path)
        files.append(LaunchFile(path=path, content=file.content, mode=int(file.mode, 8)))
    if instruction is not None:
        path = values[Binding.INSTRUCTION_FILE]
        files.append(LaunchFile(path=path, content=instruction, mode=0o644))
    return tuple(files)


def _plugin_folders(agent: Agent, values: Mapping[Binding, str]) -> list[str]:
    """Where the plugins lie: beside the harness's configuration, outside of the work."""
    beside = posixpath.dirname(values[Binding.ENGINE_CONFIG])
    return [posixpath.join(beside, "plugins", plugin.name) for plugin in agent.plugins]


def _plugins(agent: Agent, values: Mapping[Binding, str]) -> Iterator[LaunchFile]:
    """The files of all plugins."""
    if agent.plugins and agent.engine.name != "claude-code":
        raise _refuse(
            "/agent/plugins",
            f"engine {agent.engine.name!r} loads no plugins",
            "Remove them, or give the harness what it reads as `files`.",
            ErrorCode.LAUNCH_CONFLICT,
        )
    folders = _plugin_folders(agent, values) if agent.plugins else []
    if len(set(folders)) != len(folders):
        raise _refuse("/agent/plugins", "two plugins have one name", "Rename one of them.")
    for index, (plugin, folder) in enumerate(zip(agent.plugins, folders, strict=True)):
        pointer = f"/agent/plugins/{index}"
        if plugin.files is None:
            raise _refuse(
                f"{pointer}/source",
                f"the files of {plugin.source!r} are not embedded",
                "Read the profile through the CLI, which embeds the files of plugins.",
            )
        _refuse_clash(claude_code.plugin_clashes(plugin, pointer))
        for file in plugin.files:
            path = posixpath.join(folder, file.path)
            yield LaunchFile(path=path, content=file.content, mode=int(file.mode, 8))


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
                f"${{{binding}}} exists only {_ONLY_WITH.get(binding, 'with engine claude-code')}",
                "Remove the binding, or choose what it belongs to.",
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
