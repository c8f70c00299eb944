"""Claude Code in the interpreter: everything names one model, and nothing native is touched."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import claude_code
from specs.canonical import canonical_bytes
from specs.errors import InvalidInput
from specs.launch import LaunchPlan, plan_launch, validate_profile
from specs.profile import Binding, Profile
from tests.specs.test_launch import BINDINGS, TOKEN, pointer
from tests.specs.test_launch import profile as any_profile

ENGINE = {"name": "claude-code", "version": claude_code.PINNED_VERSION}
PROGRAM = BINDINGS[Binding.ENGINE_PROGRAM]
HEADLESS = ("--print", "--output-format", "stream-json", "--verbose")


def profile(**agent: Any) -> Profile:
    return any_profile(**{"engine": ENGINE, "args": [], **agent})


def plan(bindings: dict[Binding, str] | None = None, **agent: Any) -> LaunchPlan:
    return plan_launch(profile(**agent), {**BINDINGS, **(bindings or {})})


def refused(**agent: Any) -> str | None:
    """Where the profile is refused; validation refuses it there as well."""
    with pytest.raises(InvalidInput) as validated:
        validate_profile(profile(**agent))
    with pytest.raises(InvalidInput) as caught:
        plan_launch(profile(**agent), BINDINGS)
    assert caught.value.problem.code == "launch_conflict"
    assert pointer(validated.value) == pointer(caught.value)
    return pointer(caught.value)


@given(
    instruction=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
    deliver=st.sampled_from(["argument", "stdin", "file"]),
    args=st.lists(st.sampled_from(["--bare", "--tools", "Bash,Edit", "-p", "x y'$"]), max_size=4),
    env=st.dictionaries(st.sampled_from(["A", "MAX_THINKING_TOKENS"]), st.text(alphabet="xy z$'")),
    permissions=st.sampled_from([claude_code.BYPASS, claude_code.ASK]),
    context=st.integers(1, 1_000_000),
)
def test_equal_bindings_give_byte_identical_plans(
    instruction: str,
    deliver: str,
    args: list[str],
    env: dict[str, str],
    permissions: str,
    context: int,
) -> None:
    recipe = profile(args=args, env=env, instruction={"deliver": deliver})
    bindings = {
        **BINDINGS,
        Binding.INSTRUCTION: instruction,
        Binding.ENGINE_PERMISSIONS: permissions,
        Binding.MODEL_CONTEXT_TOKENS: str(context),
    }
    again = Profile.model_validate_json(canonical_bytes(recipe))
    assert canonical_bytes(plan_launch(recipe, bindings)) == canonical_bytes(
        plan_launch(again, dict(reversed(list(bindings.items()))))
    )


def test_every_alias_and_the_sub_agents_name_the_one_model() -> None:
    env = plan().env
    assert {env[name] for name in claude_code.MODEL_NAMES} == {"tiny"}
    assert "CLAUDE_CODE_SUBAGENT_MODEL" in claude_code.MODEL_NAMES
    assert (env["ANTHROPIC_BASE_URL"], env["ANTHROPIC_AUTH_TOKEN"]) == (
        BINDINGS[Binding.MODEL_BASE_URL],
        TOKEN,
    )


@pytest.mark.parametrize("name", ["claude-sonnet-x", "org/my-Haiku", "opus", "long[1m]"])
def test_a_model_of_familiar_name_is_not_taken_for_a_hosted_one(name: str) -> None:
    env = plan({Binding.MODEL_NAME: name}).env
    assert {env[one] for one in claude_code.MODEL_NAMES} == {"practicum-model"}


def test_a_sandbox_skips_permissions_and_a_folder_of_its_own_user_does_not() -> None:
    assert plan().argv == (PROGRAM, *HEADLESS, "--permission-mode", "bypassPermissions")
    assert plan().env["IS_SANDBOX"] == "1"
    asking = plan({Binding.ENGINE_PERMISSIONS: claude_code.ASK})
    assert asking.argv == (PROGRAM, *HEADLESS)
    assert "IS_SANDBOX" not in asking.env


def test_what_the_profile_says_of_itself_is_not_said_twice() -> None:
    args = ["-p", "--output-format=json", "--permission-mode", "plan"]
    assert plan(args=args).argv == (PROGRAM, *args)
    settings = {
        "path": ".claude/settings.json",
        "content": json.dumps({"permissions": {"defaultMode": "acceptEdits"}}),
    }
    assert "--permission-mode" not in plan(files=[settings]).argv


def test_a_prompt_argument_cannot_be_taken_by_an_option() -> None:
    text = BINDINGS[Binding.INSTRUCTION]
    argv = plan(args=["--allowedTools", "Bash"], instruction={"deliver": "argument"}).argv
    assert argv[-4:] == ("--allowedTools", "Bash", "--", text)


@pytest.mark.parametrize(
    ("context", "output", "declared"),
    [("8192", "1024", False), ("32768", "4096", False), ("65536", "8192", True)],
)
def test_a_window_is_declared_where_the_harness_can_work_in_it(
    context: str, output: str, declared: bool
) -> None:
    env = plan({Binding.MODEL_CONTEXT_TOKENS: context, Binding.MODEL_MAX_OUTPUT_TOKENS: output}).env
    assert env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == output
    assert (env.get("CLAUDE_CODE_MAX_CONTEXT_TOKENS") == context) == declared
    assert ("CLAUDE_CODE_AUTO_COMPACT_WINDOW" in env) == declared


@pytest.mark.parametrize(
    "name",
    sorted({*claude_code.BOUND, *claude_code.BYPASSING, *claude_code.OWNED}),
)
def test_routing_capture_and_model_names_are_refused_wherever_they_stand(name: str) -> None:
    assert refused(env={name: "http://elsewhere"}) == f"/agent/env/{name}"
    settings = json.dumps({"env": {name: "http://elsewhere"}})
    for path in (
        ".claude/settings.json",
        ".claude/settings.local.json",
        "${engine.config}/settings.json",
        "${engine.config}/.claude.json",
        "/etc/claude-code/managed-settings.json",
        "/etc/claude-code/managed-settings.d/1.json",
    ):
        files = [{"path": "CLAUDE.md", "content": "x"}, {"path": path, "content": settings}]
        assert refused(files=files) == "/agent/files/1"
    assert refused(args=["--settings", settings]) == "/agent/args/0"
    assert refused(args=["-p", f"--settings={settings}"]) == "/agent/args/1"
    named = [{"path": "conf/mine.json", "content": settings}]
    assert refused(files=named, args=["--settings", "conf/mine.json"]) == "/agent/files/0"


@pytest.mark.parametrize("name", sorted(claude_code.BOUND))
def test_a_bound_name_may_be_its_binding(name: str) -> None:
    env = plan(env={name: f"${{{claude_code.BOUND[name]}}}"}).env
    assert env[name] == BINDINGS[claude_code.BOUND[name]]


@pytest.mark.parametrize("option", sorted(claude_code.REFUSED_OPTIONS))
def test_options_that_choose_a_model_are_refused(option: str) -> None:
    assert refused(args=["-p", option, "other"]) == "/agent/args/1"
    assert refused(args=[f"{option}=other"]) == "/agent/args/0"
    assert plan(args=["-p", "--", option]).argv[-1] == option


@pytest.mark.parametrize("key", sorted(claude_code.REFUSED_SETTINGS))
def test_settings_that_choose_credentials_or_models_are_refused(key: str) -> None:
    content = json.dumps({key: "x"})
    assert refused(files=[{"path": ".claude/settings.json", "content": content}])


def test_headers_and_body_keys_that_hide_the_caller_are_refused_and_others_arrive() -> None:
    assert refused(env={"ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\nauthorization: Bearer x"})
    assert refused(env={"CLAUDE_CODE_EXTRA_BODY": '{"model": "x"}'})
    native = {
        "ANTHROPIC_CUSTOM_HEADERS": "X-A: 1",
        "CLAUDE_CODE_EXTRA_BODY": '{"temperature": 0.5}',
        "API_TIMEOUT_MS": "1000",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "77",
        "ENABLE_TOOL_SEARCH": "true",
    }
    env = plan(env=native).env
    assert {name: env[name] for name in native} == native


@given(
    settings=st.dictionaries(
        st.text(min_size=1).filter(lambda key: key not in claude_code.REFUSED_SETTINGS),
        st.one_of(st.text(), st.integers(), st.lists(st.text())),
        max_size=4,
    ).filter(lambda value: "env" not in value),
    path=st.sampled_from([".claude/settings.json", "x/settings.json", ".mcp.json", "a/SKILL.md"]),
)
def test_every_other_native_setting_arrives_unchanged(settings: dict[str, Any], path: str) -> None:
    content = json.dumps(settings)
    (file,) = plan(files=[{"path": path, "content": content}]).files
    assert (file.path, file.content) == (f"/app/{path}", content)


def test_a_file_that_is_no_settings_file_may_say_anything() -> None:
    content = json.dumps({"env": {"ANTHROPIC_BASE_URL": "x"}, "model": "y"})
    for path in ("settings.json", ".vscode/settings.json", "notes.md", ".mcp.json"):
        assert plan(files=[{"path": path, "content": content}]).files[0].content == content
    for text in ("no json", "[1]", "{"):
        assert plan(files=[{"path": ".claude/settings.json", "content": text}]).files


def test_engine_bindings_are_claude_codes_alone() -> None:
    with pytest.raises(InvalidInput) as caught:
        plan_launch(any_profile(args=["${engine.program}"]), BINDINGS)
    assert pointer(caught.value) == "/agent/args/0"


def test_a_launch_in_a_users_own_folder_differs_by_its_bindings_alone() -> None:
    recipe = profile(
        files=[{"path": "a.md", "content": "x"}],
        outputs=[{"path": "out.md"}],
        instruction={"deliver": "file"},
        args=["${instruction.file}", "${workdir}"],
    )
    moved = {**BINDINGS, Binding.WORKDIR: "/home/u/p", Binding.INSTRUCTION_FILE: "/run/x/i.md"}
    made = plan_launch(recipe, moved)
    assert made.workdir == "/home/u/p"
    assert [file.path for file in made.files] == ["/home/u/p/a.md", "/run/x/i.md"]
    assert made.outputs[0].path == "/home/u/p/out.md"
    assert made.argv[-2:] == ("/run/x/i.md", "/home/u/p")
