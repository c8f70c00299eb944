"""The interpreter's rules one by one: which words refuse a profile, and where."""

import json
from typing import Any

import pytest

from specs.errors import ErrorCode, InvalidInput
from specs.launch import plan_launch, recorded_plan, uses_gateway, validate_profile
from specs.profile import Binding
from tests.specs.test_launch import BINDINGS, MANIFEST, NATIVE, pointer, profile, refused

TEXT = BINDINGS[Binding.INSTRUCTION]
GATEWAY = {Binding.GATEWAY_URL: "http://g", Binding.GATEWAY_TOKEN: "t"}


@pytest.mark.parametrize(
    ("agent", "code", "where", "words"),
    [
        ({"engine": NATIVE | {"version": "latest"}, "args": []}, ErrorCode.ENGINE_UNSUPPORTED,
         "/agent/engine/version", "claude-code needs an exact version, not 'latest'"),
        ({"args": ["${x}"]}, ErrorCode.UNKNOWN_BINDING, "/agent/args/0",
         "'${x}' is not a known binding"),
        ({"args": ["${run.id"]}, ErrorCode.UNKNOWN_BINDING, "/agent/args/0",
         "'${run.id' is not a known binding"),
        ({"args": ["${instruction.file}"]}, ErrorCode.LAUNCH_CONFLICT, "/agent/args/0",
         "exists only with instruction.deliver = file"),
        ({"args": ["${gateway.url}"]}, ErrorCode.LAUNCH_CONFLICT, "/agent/args/0",
         "exists only in a trial whose plan has the key gateway"),
        ({"args": ["${engine.config}"]}, ErrorCode.LAUNCH_CONFLICT, "/agent/args/0",
         "exists only with engine claude-code"),
        ({"files": [{"path": "a", "source": "b"}]}, ErrorCode.INVALID_DOCUMENT,
         "/agent/files/0/source", "the content of 'b' is not embedded"),
        ({"files": [{"path": "a", "content": ""}, {"path": "./a", "content": ""}]},
         ErrorCode.INVALID_DOCUMENT, "/agent/files/1/path", "/app/a is written twice"),
        ({"instruction": {"deliver": "file"},
          "files": [{"path": "/tmp/practicum/instruction.md", "content": ""}]},
         ErrorCode.INVALID_DOCUMENT, "/agent/files/0/path", "is written twice"),
        ({"env": {"OPENAI_API_KEY": "x"}}, ErrorCode.LAUNCH_CONFLICT,
         "/agent/env/OPENAI_API_KEY", "OPENAI_API_KEY decides where model calls go"),
        ({"plugins": [{"name": "own", "files": [MANIFEST]}]}, ErrorCode.LAUNCH_CONFLICT,
         "/agent/plugins", "engine 'command' loads no plugins"),
        ({"engine": NATIVE, "plugins": [{"name": "own", "files": [MANIFEST]}] * 2},
         ErrorCode.INVALID_DOCUMENT, "/agent/plugins", "two plugins have one name"),
        ({"engine": NATIVE, "plugins": [{"name": "own", "source": "./own"}]},
         ErrorCode.INVALID_DOCUMENT, "/agent/plugins/0/source", "of './own' are not embedded"),
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_launched_is_refused_by_its_field(
    agent: dict[str, Any], code: ErrorCode, where: str, words: str
) -> None:
    error = refused(**agent)
    assert (error.problem.code, pointer(error)) == (code, where)
    assert error.problem.detail.startswith(f"The profile cannot be launched: {where}: ")
    assert words in error.problem.detail
    assert error.problem.next


@pytest.mark.parametrize(
    ("deliver", "args", "argv", "stdin"),
    [
        ("stdin", ["a"], ("a",), TEXT),
        ("argument", ["a"], ("a", TEXT), None),
        ("argument", ["a", "x${instruction}"], ("a", f"x{TEXT}"), None),
        ("argument", ["a", "$${instruction}"], ("a", "${instruction}", TEXT), None),
        ("file", ["a"], ("a",), None),
    ],
)
def test_an_instruction_is_delivered_in_one_way(
    deliver: str, args: list[str], argv: tuple[str, ...], stdin: str | None
) -> None:
    plan = plan_launch(profile(args=args, instruction={"deliver": deliver}), BINDINGS)
    assert (plan.argv, plan.stdin) == (argv, stdin)
    assert (plan.instruction_file is not None) == (deliver == "file")
    assert len(plan.files) == (deliver == "file")
    assert [file.mode for file in plan.files] == [0o644] * len(plan.files)


@pytest.mark.parametrize(
    ("args", "tail"),
    [
        (["-p"], ("-p", "--", TEXT)),
        (["-p", "--"], ("-p", "--", TEXT)),
        (["-p", "${instruction}"], ("-p", TEXT)),
    ],
)
def test_claude_codes_prompt_stands_behind_its_options(
    args: list[str], tail: tuple[str, ...]
) -> None:
    plan = plan_launch(
        profile(engine=NATIVE, args=args, instruction={"deliver": "argument"}), BINDINGS
    )
    assert plan.argv[-len(tail) - 1 :] == ("bypassPermissions", *tail)


@pytest.mark.parametrize(
    ("agent", "uses"),
    [
        ({}, False),
        ({"args": ["a", "${run.id}"]}, False),
        ({"args": ["a", "x${gateway.url}"]}, True),
        ({"args": ["a", "${gateway.token}"]}, True),
        ({"args": ["a", "$${gateway.url}", "${gateway.urls}"]}, False),
        ({"env": {"A": "x", "B": "${gateway.token}"}}, True),
        ({"files": [{"path": "/${gateway.url}", "content": ""}]}, True),
        ({"files": [{"path": "/a", "content": "${gateway.url}"}]}, False),
        ({"setup": ["echo ${gateway.url}"]}, False),
    ],
)
def test_a_profile_uses_the_gateway_where_a_binding_of_it_expands(
    agent: dict[str, Any], uses: bool
) -> None:
    assert uses_gateway(profile(**agent)) is uses


def test_invariant_13_a_recorded_plan_names_the_gateway_only_where_it_was_open() -> None:
    recipe = profile(env={"T": "${model.token}", "G": "${gateway.token}"})
    kept = recorded_plan(recipe, BINDINGS | GATEWAY).env
    assert (kept["T"], kept["G"]) == ("${model.token}", "${gateway.token}")
    with pytest.raises(InvalidInput, match="whose plan has the key gateway"):
        recorded_plan(recipe, BINDINGS)


def test_the_names_of_routing_are_bound_and_any_other_may_be_set() -> None:
    plan = plan_launch(profile(env={"B": "${run.id}", "A": "1"}), BINDINGS)
    assert list(plan.env) == sorted(plan.env)
    assert (plan.env["A"], plan.env["B"]) == ("1", "run_1")
    assert plan.env["OPENAI_BASE_URL"] == f"{BINDINGS[Binding.MODEL_BASE_URL]}/v1"
    assert "ANTHROPIC_API_KEY" not in plan.env and "CLAUDE_CONFIG_DIR" not in plan.env
    named = plan_launch(profile(env={"ANTHROPIC_MODEL": "${model.name}"}), BINDINGS)
    assert named.env["ANTHROPIC_MODEL"] == "tiny"


def test_a_bound_model_name_stays_the_one_that_the_harness_is_told() -> None:
    familiar = BINDINGS | {Binding.MODEL_NAME: "my-opus"}
    recipe = profile(engine=NATIVE, args=[], env={"ANTHROPIC_MODEL": "${model.name}"})
    assert plan_launch(recipe, familiar).env["ANTHROPIC_MODEL"] == "practicum-model"


def test_a_file_has_its_mode_and_its_place() -> None:
    files = [{"path": "a", "content": "1", "mode": "0750"}, {"path": "/b//c/./d", "content": "2"}]
    plan = plan_launch(profile(files=files, workdir="/srv"), BINDINGS)
    assert [(file.path, file.mode) for file in plan.files] == [
        ("/srv/a", 0o750),
        ("/b/c/d", 0o644),
    ]


def test_two_plugins_lie_side_by_side() -> None:
    plugins = [{"name": name, "files": [MANIFEST]} for name in ("one", "two")]
    plan = plan_launch(profile(engine=NATIVE, args=[], plugins=plugins), BINDINGS)
    folders = ["/logs/agent/plugins/one", "/logs/agent/plugins/two"]
    assert [file.path.rsplit("/.claude-plugin", 1)[0] for file in plan.files] == folders
    assert [plan.argv[n + 1] for n, word in enumerate(plan.argv) if word == "--plugin-dir"] == (
        folders
    )


def test_settings_that_are_named_are_those_of_the_workdir() -> None:
    chooses = json.dumps({"model": "x"})
    elsewhere = [{"path": "/else/mine.json", "content": chooses}]
    named = ["--settings", "mine.json"]
    assert plan_launch(profile(engine=NATIVE, args=named, files=elsewhere), BINDINGS).files
    here = [*elsewhere, {"path": "/app/mine.json", "content": chooses}]
    assert pointer(refused(engine=NATIVE, args=named, files=here)) == "/agent/files/1"


def test_validation_writes_each_bindings_name_for_its_value() -> None:
    recipe = profile(engine=NATIVE, args=["${engine.config}", "${workdir}"], workdir="/srv")
    plan = validate_profile(recipe)
    assert plan.argv[-2:] == ("/${engine.config}", "/srv")
    assert plan.env["ANTHROPIC_AUTH_TOKEN"] == "${model.token}"
