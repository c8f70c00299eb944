"""The profile interpreter: literal, closed bindings, byte-identical plans."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.canonical import canonical_bytes, validate
from specs.errors import InvalidInput
from specs.launch import (
    ALWAYS_SET,
    BYPASSING,
    GRANT_PLACEHOLDER,
    INSTRUCTION_FILE,
    OPENAI,
    ROUTING,
    TOKEN_PLACEHOLDER,
    plan_launch,
    recorded_plan,
    uses_gateway,
    validate_profile,
)
from specs.profile import Binding, Profile, plugin_digest

TOKEN = "eyJ-secret-token"
BINDINGS = {
    Binding.RUN_ID: "run_1",
    Binding.TRIAL_ID: "trl_1",
    Binding.TASK_NAME: "acme/copy",
    Binding.MODEL_NAME: "tiny",
    Binding.MODEL_BASE_URL: "http://127.0.0.1:8484",
    Binding.MODEL_TOKEN: TOKEN,
    Binding.MODEL_CONTEXT_TOKENS: "131072",
    Binding.MODEL_MAX_OUTPUT_TOKENS: "16384",
    Binding.ENGINE_PROGRAM: "/opt/practicum/claude-code/claude",
    Binding.ENGINE_CONFIG: "/logs/agent/claude",
    Binding.ENGINE_SCRATCH: "/tmp/practicum/scratch",
    Binding.ENGINE_PERMISSIONS: "bypass",
    Binding.INSTRUCTION: "Copy the file; rm -rf $HOME `id` ${run.id}",
}


def profile(**agent: Any) -> Profile:
    base: dict[str, Any] = {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "args": ["agent"],
    }
    document: dict[str, Any] = {
        "schema": "practicum.profile/v1",
        "name": "acme/p",
        "agent": {**base, **agent},
    }
    return validate(Profile, document, what="profile")


def refused(**agent: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        plan_launch(profile(**agent), BINDINGS)
    return caught.value


def pointer(error: InvalidInput) -> str | None:
    assert error.problem.object is not None
    return error.problem.object.pointer


@given(
    instruction=st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00")),
    deliver=st.sampled_from(["argument", "stdin", "file"]),
    args=st.lists(st.text(alphabet="ab $`'\"\\{}\n", min_size=1), min_size=1, max_size=4),
    env=st.dictionaries(st.sampled_from(["A", "B", "C"]), st.text(alphabet="xy z$'")),
)
def test_equal_bindings_give_byte_identical_plans(
    instruction: str, deliver: str, args: list[str], env: dict[str, str]
) -> None:
    args = [text.replace("${", "$${") for text in args]
    recipe = profile(args=args, env=env, instruction={"deliver": deliver})
    bindings = {**BINDINGS, Binding.INSTRUCTION: instruction}
    again = dict(reversed(list(bindings.items())))
    assert canonical_bytes(plan_launch(recipe, bindings)) == canonical_bytes(
        plan_launch(recipe, again)
    )


@given(
    args=st.lists(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1),
        min_size=1,
        max_size=5,
    )
)
def test_arguments_without_bindings_stay_literal(args: list[str]) -> None:
    args = [text.replace("${", "$ {") for text in args]
    assert plan_launch(profile(args=args), BINDINGS).argv == tuple(args)


@given(value=st.text(alphabet="${}run.idab", max_size=20))
def test_a_value_is_never_expanded_again(value: str) -> None:
    bindings = {**BINDINGS, Binding.TASK_NAME: value}
    plan = plan_launch(profile(args=["<${task.name}>"]), bindings)
    assert plan.argv == (f"<{value}>",)


def test_every_listed_binding_expands_in_arguments_environment_and_file_paths() -> None:
    plan = plan_launch(
        profile(
            args=["${run.id}", "${trial.id}", "${model.name}", "${workdir}", "x${model.token}y"],
            env={"TASK": "${task.name}", "URL": "${model.base_url}", "I": "${instruction}"},
            files=[{"path": "/opt/${run.id}/a", "content": "${run.id}", "mode": "755"}],
            workdir="/srv",
        ),
        BINDINGS,
    )
    assert plan.argv == ("run_1", "trl_1", "tiny", "/srv", f"x{TOKEN}y")
    assert plan.env["TASK"] == "acme/copy"
    assert plan.env["I"] == BINDINGS[Binding.INSTRUCTION]
    assert (plan.files[0].path, plan.files[0].content) == ("/opt/run_1/a", "${run.id}")
    assert plan.files[0].mode == 0o755


def test_an_escape_is_a_literal() -> None:
    assert plan_launch(profile(args=["$${HOME} $$ $HOME"]), BINDINGS).argv == ("${HOME} $$ $HOME",)


@pytest.mark.parametrize("text", ["${HOME}", "${}", "${run.id", "${ run.id }", "${RUN.ID}", "a${"])
def test_any_other_reference_is_an_error_naming_field_and_allowed_list(text: str) -> None:
    cases: dict[str, dict[str, Any]] = {
        "/agent/args/1": {"args": ["x", text]},
        "/agent/env/A": {"env": {"A": text}},
        "/agent/files/0/path": {"files": [{"path": f"/{text}", "content": ""}]},
    }
    for field, agent in cases.items():
        error = refused(**agent)
        assert error.problem.code == "unknown_binding"
        assert pointer(error) == field
        assert error.problem.next is not None
        assert "${model.base_url}" in error.problem.next


def test_the_instruction_is_delivered_once() -> None:
    text = BINDINGS[Binding.INSTRUCTION]
    by_argument = plan_launch(profile(instruction={"deliver": "argument"}), BINDINGS)
    assert (by_argument.argv, by_argument.stdin) == (("agent", text), None)
    placed = plan_launch(
        profile(args=["agent", "-p", "${instruction}", "-q"], instruction={"deliver": "argument"}),
        BINDINGS,
    )
    assert placed.argv == ("agent", "-p", text, "-q")
    by_stdin = plan_launch(profile(instruction={"deliver": "stdin"}), BINDINGS)
    assert (by_stdin.argv, by_stdin.stdin) == (("agent",), text)
    by_file = plan_launch(
        profile(args=["agent", "${instruction.file}"], instruction={"deliver": "file"}), BINDINGS
    )
    assert by_file.argv == ("agent", INSTRUCTION_FILE)
    assert by_file.instruction_file == INSTRUCTION_FILE
    assert [(file.path, file.content) for file in by_file.files] == [(INSTRUCTION_FILE, text)]


def test_the_instruction_file_exists_only_where_it_is_delivered() -> None:
    error = refused(args=["agent", "${instruction.file}"])
    assert (error.problem.code, pointer(error)) == ("launch_conflict", "/agent/args/1")


@pytest.mark.parametrize("name", sorted(ROUTING))
def test_routing_names_may_only_be_their_bindings(name: str) -> None:
    right = f"${{{ROUTING[name]}}}"
    plan = plan_launch(profile(env={name: right}), BINDINGS)
    assert plan.env[name] == BINDINGS[ROUTING[name]]
    for value in ("https://api.example.org", "", f"{right}x", "${run.id}"):
        error = refused(env={name: value})
        assert (error.problem.code, pointer(error)) == ("launch_conflict", f"/agent/env/{name}")


@pytest.mark.parametrize(("name", "right"), sorted(OPENAI.items()))
def test_routing_names_of_openai_are_always_set_and_never_others(name: str, right: str) -> None:
    value = plan_launch(profile(), BINDINGS).env[name]
    assert value == (TOKEN if name == "OPENAI_API_KEY" else "http://127.0.0.1:8484/v1")
    assert plan_launch(profile(env={name: right}), BINDINGS).env[name] == value
    for wrong in ("https://api.example.org/v1", "", "${model.base_url}", "${run.id}"):
        error = refused(env={name: wrong})
        assert (error.problem.code, pointer(error)) == ("launch_conflict", f"/agent/env/{name}")


@pytest.mark.parametrize("name", sorted(BYPASSING))
def test_names_that_bypass_capture_are_refused(name: str) -> None:
    error = refused(env={name: "1"})
    assert (error.problem.code, pointer(error)) == ("launch_conflict", f"/agent/env/{name}")


def test_routing_is_always_set() -> None:
    assert set(ALWAYS_SET) <= set(plan_launch(profile(), BINDINGS).env)


def test_invariant_13_a_recorded_plan_holds_no_credential() -> None:
    recipe = profile(args=["agent", "--key=${model.token}"], env={"KEY": "${model.token}"})
    data = canonical_bytes(recorded_plan(recipe, BINDINGS))
    assert TOKEN.encode() not in data
    assert data.count(TOKEN_PLACEHOLDER.encode()) == 4
    assert TOKEN.encode() in canonical_bytes(plan_launch(recipe, BINDINGS))


def test_files_may_not_leave_or_collide() -> None:
    moved = {**BINDINGS, Binding.TASK_NAME: "../../etc"}
    with pytest.raises(InvalidInput, match="unsafe path"):
        plan_launch(profile(files=[{"path": "/a/${task.name}", "content": ""}]), moved)
    error = refused(files=[{"path": "a", "content": ""}, {"path": "/app/a", "content": ""}])
    assert pointer(error) == "/agent/files/1/path"


def test_a_source_must_be_embedded_first() -> None:
    error = refused(files=[{"path": "a", "source": "./a"}])
    assert pointer(error) == "/agent/files/0/source"


@pytest.mark.parametrize("version", ["2", "latest", "^2.1.197", "2.1.197 "])
def test_claude_code_is_launched_by_exact_version_alone(version: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        validate_profile(profile(engine={"name": "claude-code", "version": version}))
    assert caught.value.problem.code == "engine_unsupported"
    assert pointer(caught.value) == "/agent/engine/version"


def test_validation_needs_no_values() -> None:
    plan = validate_profile(profile(args=["agent", "${run.id}"], instruction={"deliver": "file"}))
    assert plan.argv == ("agent", "${run.id}")


def test_outputs_are_relative_to_the_workdir() -> None:
    plan = plan_launch(
        profile(workdir="/srv", outputs=[{"path": "r.md"}, {"path": "/x/y", "required": False}]),
        BINDINGS,
    )
    assert [(o.name, o.path, o.required) for o in plan.outputs] == [
        ("r.md", "/srv/r.md", True),
        ("/x/y", "/x/y", False),
    ]


def test_an_instruction_with_nul_cannot_be_delivered() -> None:
    with pytest.raises(InvalidInput, match="NUL"):
        plan_launch(profile(), {**BINDINGS, Binding.INSTRUCTION: "a\x00b"})


def test_gateway_bindings_exist_only_where_the_plan_opens_the_gateway() -> None:
    """Invariant 13: its credential, too, is not in the plan that is kept."""
    env = {"PRACTICUM_GATEWAY": "${gateway.url}", "PRACTICUM_TOKEN": "${gateway.token}"}
    assert pointer(refused(env=env)) == "/agent/env/PRACTICUM_GATEWAY"
    recipe = profile(env=env)
    validate_profile(recipe)
    assert uses_gateway(recipe) and not uses_gateway(profile(env={"A": "$${gateway.url}"}))
    given = {Binding.GATEWAY_URL: "http://127.0.0.1:8485", Binding.GATEWAY_TOKEN: "eyJ-grant"}
    assert plan_launch(recipe, {**BINDINGS, **given}).env["PRACTICUM_TOKEN"] == "eyJ-grant"
    url = {Binding.GATEWAY_URL: "http://127.0.0.1:8485"}
    kept = canonical_bytes(recorded_plan(recipe, {**BINDINGS, **url}))
    assert b"eyJ" not in kept and GRANT_PLACEHOLDER.encode() in kept


MANIFEST = {"path": ".claude-plugin/plugin.json", "content": '{"name": "practicum"}'}
SKILL = {"path": "skills/x/run.sh", "content": "echo\n", "mode": "755"}
NATIVE = {"name": "claude-code", "version": "2.1.197"}


def test_a_plugin_is_written_beside_the_configuration_and_loaded() -> None:
    plugins = [{"name": "own", "files": [MANIFEST, SKILL]}]
    recipe = profile(engine=NATIVE, args=["--max-turns", "3"], plugins=plugins)
    plan = plan_launch(recipe, BINDINGS)
    folder = "/logs/agent/plugins/own"
    assert [(file.path, file.mode) for file in plan.files] == [
        (f"{folder}/.claude-plugin/plugin.json", 0o644),
        (f"{folder}/skills/x/run.sh", 0o755),
    ]
    at = plan.argv.index("--plugin-dir")
    assert plan.argv[at + 1] == folder
    assert at < plan.argv.index("--max-turns")
    assert canonical_bytes(plan) == canonical_bytes(plan_launch(recipe, BINDINGS))


def test_plugins_that_cannot_be_loaded_are_refused() -> None:
    def native(*plugins: Any, engine: Any = NATIVE) -> str | None:
        return pointer(refused(engine=engine, plugins=list(plugins)))

    own = {"name": "own", "files": [MANIFEST]}
    assert native(own, engine={"name": "command", "version": "1"}) == "/agent/plugins"
    assert native(own, own) == "/agent/plugins"
    assert native({"name": "own", "source": "./own"}) == "/agent/plugins/0/source"
    assert native({"name": "own", "files": [SKILL]}) == "/agent/plugins/0"
    chooses = {"path": "settings.json", "content": '{"model": "other"}'}
    assert native({"name": "own", "files": [MANIFEST, chooses]}) == "/agent/plugins/0"


def test_a_plugins_digest_is_that_of_its_files_in_any_order() -> None:
    files = [MANIFEST, SKILL]
    (plugin,) = profile(engine=NATIVE, plugins=[{"name": "own", "files": files}]).agent.plugins
    assert plugin.files is not None
    digest = plugin_digest(plugin.files)
    turned = {"name": "own", "files": files[::-1], "digest": digest}
    profile(engine=NATIVE, plugins=[turned])
    for wrong in (
        {**turned, "files": [MANIFEST]},
        {"name": "own", "files": [MANIFEST, MANIFEST]},
        {"name": "own", "files": [{**SKILL, "path": "../x"}]},
        {"name": "own", "files": [{**SKILL, "path": "/x"}]},
    ):
        with pytest.raises(InvalidInput):
            profile(engine=NATIVE, plugins=[wrong])
