"""Claude Code as an engine: its environment, its arguments, and what a profile may not set.

Three classes of names. *Bound* ones decide where calls go and which model they name: a profile
may set each only to its binding. *Owned* ones belong to the launcher. Everything else is a
*default*, which a profile's own value replaces. Settings files, `--settings` and arguments are
held to the same rules; all other native settings arrive as they are.

The proxy decides by the credential which model answers, so these rules do not guard a secret:
they keep a profile from saying one thing and doing another.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import JsonValue

from specs.profile import Binding, Plugin

PINNED_VERSION = "2.1.197"
"""What `practicum claude` falls back to, and what the tests prove."""
EXACT_VERSION = re.compile(r"\d+\.\d+\.\d+")

BYPASS, ASK = "bypass", "ask"
"""Values of `engine.permissions`: a sandbox is its own guard; a user's own folder is not."""

BOUND: Mapping[str, Binding] = {
    "ANTHROPIC_BASE_URL": Binding.MODEL_BASE_URL,
    "ANTHROPIC_AUTH_TOKEN": Binding.MODEL_TOKEN,
    "ANTHROPIC_API_KEY": Binding.MODEL_TOKEN,
    "ANTHROPIC_MODEL": Binding.MODEL_NAME,
    "ANTHROPIC_SMALL_FAST_MODEL": Binding.MODEL_NAME,
    "ANTHROPIC_DEFAULT_FABLE_MODEL": Binding.MODEL_NAME,
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": Binding.MODEL_NAME,
    "ANTHROPIC_DEFAULT_OPUS_MODEL": Binding.MODEL_NAME,
    "ANTHROPIC_DEFAULT_SONNET_MODEL": Binding.MODEL_NAME,
    "CLAUDE_CODE_SUBAGENT_MODEL": Binding.MODEL_NAME,
}
MODEL_NAMES = tuple(name for name, binding in BOUND.items() if binding == Binding.MODEL_NAME)
OWNED = frozenset({"CLAUDE_CONFIG_DIR", "NO_PROXY", "no_proxy"})
BYPASSING = frozenset(
    {
        "ANTHROPIC_BEDROCK_BASE_URL",
        "ANTHROPIC_FOUNDRY_BASE_URL",
        "ANTHROPIC_FOUNDRY_RESOURCE",
        "ANTHROPIC_UNIX_SOCKET",
        "ANTHROPIC_VERTEX_BASE_URL",
        "CLAUDE_CODE_API_KEY_FILE_DESCRIPTOR",
        "CLAUDE_CODE_OAUTH_TOKEN",
        "CLAUDE_CODE_USE_ANTHROPIC_AWS",
        "CLAUDE_CODE_USE_BEDROCK",
        "CLAUDE_CODE_USE_FOUNDRY",
        "CLAUDE_CODE_USE_MANTLE",
        "CLAUDE_CODE_USE_VERTEX",
    }
)
"""Names that send the harness to a provider of its own."""
REFUSED_OPTIONS = frozenset({"--model", "--fallback-model"})
REFUSED_SETTINGS = frozenset(
    {
        "apiKeyHelper",
        "awsAuthRefresh",
        "awsCredentialExport",
        "fallbackModel",
        "forceLoginMethod",
        "gcpAuthRefresh",
        "model",
        "modelOverrides",
        "oauthAccount",
        "primaryApiKey",
        "proxyAuthHelper",
    }
)
"""Keys of a settings file that choose credentials, a provider or a model."""
CAPTURE_HEADERS = re.compile(r"(?i)^\s*(authorization|host|x-api-key|x-claude-code-[a-z-]+)\s*:")
"""Custom headers that would hide who calls."""
BODY_KEYS = frozenset({"messages", "model", "stream", "system", "tools"})
"""Keys of `CLAUDE_CODE_EXTRA_BODY` that would replace what the harness says."""

MANIFEST = ".claude-plugin/plugin.json"
LOOPBACK = "127.0.0.1,localhost"
DEFAULTS: Mapping[str, str] = {
    "API_FORCE_IDLE_TIMEOUT": "0",
    "API_TIMEOUT_MS": "1800000",
    "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_DISABLE_TERMINAL_TITLE": "1",
    "DISABLE_AUTOUPDATER": "1",
    "MCP_CONNECTION_NONBLOCKING": "0",
    "MCP_CONNECT_TIMEOUT_MS": "30000",
}
"""No traffic but the model's, no updates, and no first request without the MCP tools."""

_MANY_TOKENS = 32000
_RESERVE = 13000
"""The harness compacts this far below what its window leaves after the answer."""
_FIRST_PROMPT = 24000
"""What it says before any work, at most; to compact below that would never end."""
_FAMILIAR = re.compile(r"(?i)claude|haiku|sonnet|opus|fable|\[1m\]")
_NEUTRAL = "practicum-model"
_SETTINGS = frozenset({"settings.json", "settings.local.json"})


@dataclass(frozen=True, slots=True)
class Clash:
    """A setting that a profile may not have: where, why, and what to do."""

    pointer: str
    cause: str
    step: str = "Remove it."


def wire_model(name: str) -> str:
    """The model id that the harness is told: one that it does not take for one of its own.

    A familiar name would select another system prompt and another window. The proxy answers
    by the credential, whatever the id.
    """
    return _NEUTRAL if _FAMILIAR.search(name) else name


def output_tokens(context_tokens: int, chosen: int | None) -> int:
    """The most tokens of one answer: what the profile chose, else an eighth of the window."""
    return chosen or max(1, min(_MANY_TOKENS, context_tokens // 8))


def limits(context_tokens: str, max_output_tokens: str) -> dict[str, str]:
    """The model's limits as the harness knows them.

    A window too small for the harness's own arithmetic is not declared: the harness then
    compacts when the proxy says that a prompt is too long, and works all the same.
    """
    declared = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": max_output_tokens}
    if not (context_tokens.isdecimal() and max_output_tokens.isdecimal()):
        return declared | _window(context_tokens)  # names of bindings: a check, not a launch
    trigger = int(context_tokens) - min(int(max_output_tokens), 20000) - _RESERVE
    return declared | (_window(context_tokens) if trigger >= _FIRST_PROMPT else {})


def _window(tokens: str) -> dict[str, str]:
    return {"CLAUDE_CODE_MAX_CONTEXT_TOKENS": tokens, "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "1000000"}


def model_environment(values: Mapping[Binding, str]) -> dict[str, str]:
    """Where calls go and which model they name: all aliases are the one model."""
    model = wire_model(values[Binding.MODEL_NAME])
    return {
        "ANTHROPIC_BASE_URL": values[Binding.MODEL_BASE_URL],
        "ANTHROPIC_AUTH_TOKEN": values[Binding.MODEL_TOKEN],
        **dict.fromkeys(MODEL_NAMES, model),
        **limits(values[Binding.MODEL_CONTEXT_TOKENS], values[Binding.MODEL_MAX_OUTPUT_TOKENS]),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), LOOPBACK),
    }


def environment(values: Mapping[Binding, str]) -> dict[str, str]:
    """The whole environment of a headless launch, before the profile's own."""
    found = {
        **model_environment(values),
        **DEFAULTS,
        "CLAUDE_CONFIG_DIR": values[Binding.ENGINE_CONFIG],
        "CLAUDE_CODE_TMPDIR": values[Binding.ENGINE_SCRATCH],
    }
    if values[Binding.ENGINE_PERMISSIONS] == BYPASS:
        found["IS_SANDBOX"] = "1"  # or it refuses to skip permissions as root
    return found


def fixed_arguments(
    args: Sequence[str], permissions: str, settings: Sequence[str]
) -> tuple[str, ...]:
    """What a headless launch adds, unless the profile says it itself."""
    given = {name for _, name, _ in _options(args)}
    fixed: list[str] = []
    if not given & {"-p", "--print"}:
        fixed.append("--print")
    if "--output-format" not in given:
        fixed += ["--output-format", "stream-json"]
        fixed += [] if "--verbose" in given else ["--verbose"]
    chooses = {
        "--permission-mode",
        "--dangerously-skip-permissions",
        "--allow-dangerously-skip-permissions",
    }
    if permissions == BYPASS and not given & chooses and not any(map(_sets_mode, settings)):
        fixed += ["--permission-mode", "bypassPermissions"]
    return tuple(fixed)


def plugin_arguments(folders: Sequence[str]) -> tuple[str, ...]:
    """Arguments that load plugin folders; the option is given once for each."""
    return tuple(word for folder in folders for word in ("--plugin-dir", folder))


def plugin_clashes(plugin: Plugin, pointer: str) -> Iterator[Clash]:
    """What keeps a folder from being a plugin, or its settings from being allowed."""
    contents = {file.path: file.content for file in plugin.files or ()}
    manifest = _object(contents.get(MANIFEST, ""))
    if not isinstance(manifest.get("name"), str) or not manifest["name"]:
        cause = f"the plugin {plugin.name!r} has no {MANIFEST} with a name"
        yield Clash(pointer, cause, f"Add {MANIFEST}, a JSON object with the plugin's name.")
    if "settings.json" in contents:
        yield from settings_clashes(contents["settings.json"], pointer)


def separates(args: Sequence[str]) -> bool:
    """Whether the options have ended: what follows is the prompt."""
    return "--" in args


def environment_clashes(env: Mapping[str, str], place: str = "/agent/env") -> Iterator[Clash]:
    """Clashes of environment values as the profile spells them."""
    for name, text in env.items():
        if clash := _name_clash(name, text, f"{place}/{name}"):
            yield clash


def argument_clashes(args: Sequence[str]) -> Iterator[Clash]:
    """Clashes of expanded arguments."""
    for index, name, value in _options(args):
        pointer = f"/agent/args/{index}"
        if name in REFUSED_OPTIONS:
            yield Clash(pointer, f"{name} chooses a model, which is agent.model's part")
        elif name == "--settings" and value is not None:
            yield from settings_clashes(value, pointer)


def settings_path(args: Sequence[str]) -> str | None:
    """The file that `--settings` names, if it names one."""
    for _, name, value in _options(args):
        if name == "--settings" and value is not None and not value.lstrip().startswith("{"):
            return value
    return None


def is_settings(path: str, config: str) -> bool:
    """Whether the harness reads settings from a file of this absolute path."""
    folder, _, name = path.rpartition("/")
    if name in (".claude.json", "managed-settings.json"):
        return True
    if folder.endswith("/managed-settings.d"):
        return True
    return name in _SETTINGS and (folder.endswith("/.claude") or folder == config)


def settings_clashes(text: str, pointer: str) -> Iterator[Clash]:
    """Clashes of a settings document; one that is no JSON object is the harness's to refuse."""
    settings = _object(text)
    for key in sorted(REFUSED_SETTINGS & settings.keys()):
        yield Clash(pointer, f"the setting {key!r} chooses a credential, a provider or a model")
    env = settings.get("env")
    if isinstance(env, dict):
        for name, value in env.items():
            if clash := _name_clash(name, value if isinstance(value, str) else "", pointer, None):
                yield clash


def _name_clash(
    name: str, text: str, pointer: str, bindings: Mapping[str, Binding] | None = BOUND
) -> Clash | None:
    binding = BOUND.get(name)
    if binding is not None:
        allowed = bindings is not None and text == f"${{{binding}}}"
        cause = f"{name} decides where model calls go or which model they name"
        step = f"Remove it, or set it to ${{{binding}}}." if bindings is not None else "Remove it."
        return None if allowed else Clash(pointer, cause, step)
    if name in BYPASSING:
        return Clash(pointer, f"{name} would send model calls past their capture")
    if name in OWNED:
        return Clash(pointer, f"{name} is set for each launch")
    if name == "ANTHROPIC_CUSTOM_HEADERS" and any(map(CAPTURE_HEADERS.match, text.splitlines())):
        return Clash(pointer, f"{name} would replace a header that says who calls")
    if name == "CLAUDE_CODE_EXTRA_BODY" and (keys := BODY_KEYS & _object(text).keys()):
        return Clash(pointer, f"{name} would replace {', '.join(sorted(keys))} of each call")
    return None


def _sets_mode(text: str) -> bool:
    permissions = _object(text).get("permissions")
    return isinstance(permissions, dict) and "defaultMode" in permissions


def _object(text: str) -> dict[str, JsonValue]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, JsonValue], value) if isinstance(value, dict) else {}


def _options(args: Sequence[str]) -> Iterator[tuple[int, str, str | None]]:
    """(index, name, value) of everything that looks like an option, up to `--`."""
    for index, text in enumerate(args):
        if text == "--":
            return
        if text.startswith("-"):
            name, equals, value = text.partition("=")
            following = args[index + 1] if index + 1 < len(args) else None
            yield index, name, value if equals else following
