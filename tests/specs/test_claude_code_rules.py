"""The rules of Claude Code one by one: its window, its arguments, its settings files."""

import json
from typing import Any

import pytest

from specs.claude_code import (
    ASK,
    BYPASS,
    Clash,
    argument_clashes,
    environment_clashes,
    fixed_arguments,
    is_settings,
    limits,
    output_tokens,
    plugin_arguments,
    plugin_clashes,
    separates,
    settings_clashes,
    settings_path,
    wire_model,
)
from specs.profile import Plugin

PRINTS = ("--print", "--output-format", "stream-json", "--verbose")
SKIPS = ("--permission-mode", "bypassPermissions")


@pytest.mark.parametrize(
    ("context", "chosen", "tokens"),
    [
        (4, None, 1),
        (8, None, 1),
        (15, None, 1),
        (16, None, 2),
        (255_992, None, 31_999),
        (256_000, None, 32_000),
        (10**6, None, 32_000),
        (10**6, 50_000, 50_000),
        (8, 1, 1),
    ],
)
def test_an_answer_may_have_what_was_chosen_or_an_eighth_of_the_window(
    context: int, chosen: int | None, tokens: int
) -> None:
    assert output_tokens(context, chosen) == tokens


@pytest.mark.parametrize(
    ("context", "output", "declared"),
    [
        ("57000", "20000", True),
        ("56999", "20000", False),
        ("57000", "32000", True),
        ("37001", "1", True),
        ("37000", "1", False),
        ("${model.context_tokens}", "1", True),
        ("1", "${model.max_output_tokens}", True),
    ],
)
def test_a_window_is_declared_where_24000_tokens_are_left_before_it_is_compacted(
    context: str, output: str, declared: bool
) -> None:
    found = limits(context, output)
    assert found.pop("CLAUDE_CODE_MAX_OUTPUT_TOKENS") == output
    assert found.get("CLAUDE_CODE_MAX_CONTEXT_TOKENS") == (context if declared else None)
    assert len(found) == (2 if declared else 0)


@pytest.mark.parametrize("name", ["tiny", "qwen/qwen3", "sonar", "fab", "1m"])
def test_a_model_keeps_its_name_unless_the_harness_would_take_it_for_its_own(name: str) -> None:
    assert wire_model(name) == name
    assert wire_model(f"{name}[1M]") == wire_model(f"{name}-FABLE") == "practicum-model"


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((), (*PRINTS, *SKIPS)),
        (("-p",), (*PRINTS[1:], *SKIPS)),
        (("--print",), (*PRINTS[1:], *SKIPS)),
        (("--output-format", "json"), ("--print", *SKIPS)),
        (("--verbose",), (*PRINTS[:3], *SKIPS)),
        (("--permission-mode", "plan"), PRINTS),
        (("--dangerously-skip-permissions",), PRINTS),
        (("--allow-dangerously-skip-permissions",), PRINTS),
        (("--", "-p"), (*PRINTS, *SKIPS)),
    ],
)
def test_a_headless_launch_adds_what_the_profile_does_not_say(
    args: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert fixed_arguments(args, BYPASS, []) == expected
    asks = tuple(word for word in expected if word not in SKIPS)
    assert fixed_arguments(args, ASK, []) == asks


@pytest.mark.parametrize(
    ("settings", "chooses"),
    [
        ('{"permissions": {"defaultMode": "plan"}}', True),
        ('{"permissions": {"allow": []}}', False),
        ('{"permissions": "defaultMode"}', False),
        ("{}", False),
        ("[1]", False),
        ("[" * 100_000, False),
    ],
)
def test_a_settings_file_may_choose_the_mode_of_permissions(settings: str, chooses: bool) -> None:
    found = fixed_arguments((), BYPASS, ["{}", settings])
    assert found == (PRINTS if chooses else (*PRINTS, *SKIPS))


def test_each_plugin_folder_has_the_option_before_it() -> None:
    assert plugin_arguments([]) == ()
    assert plugin_arguments(["/a", "/b"]) == ("--plugin-dir", "/a", "--plugin-dir", "/b")


def plugin(manifest: str | None, settings: str | None = None) -> Plugin:
    files = {".claude-plugin/plugin.json": manifest, "settings.json": settings}
    rows = [{"path": path, "content": text} for path, text in files.items() if text is not None]
    return Plugin.model_validate({"name": "own", "files": rows})


@pytest.mark.parametrize("manifest", [None, "", "[]", "{}", '{"name": ""}', '{"name": 3}'])
def test_a_plugin_has_a_manifest_with_its_name(manifest: str | None) -> None:
    (clash,) = plugin_clashes(plugin(manifest), "/p")
    assert clash.pointer == "/p" and "has no .claude-plugin/plugin.json" in clash.cause
    assert list(plugin_clashes(plugin('{"name": "own"}'), "/p")) == []


def test_the_settings_of_a_plugin_choose_no_model() -> None:
    found = list(plugin_clashes(plugin('{"name": "own"}', '{"model": "x", "a": 1}'), "/p"))
    assert [clash.pointer for clash in found] == ["/p"] and "'model'" in found[0].cause


def test_options_end_where_two_dashes_stand_alone() -> None:
    assert separates(["-p", "--", "x"]) and not separates(["-p", "--x"])


@pytest.mark.parametrize(
    ("args", "places"),
    [
        ([], []),
        (["--model", "x"], ["/agent/args/0"]),
        (["x", "--fallback-model=y", "--model"], ["/agent/args/1", "/agent/args/2"]),
        (["--settings", '{"model": 1}'], ["/agent/args/0"]),
        (["--settings"], []),
        (["--settings", "file.json"], []),
        (["--settings={}", '{"model": 1}'], []),
        (["--settings", "{}", "--model", "x"], ["/agent/args/2"]),
        (["--", "--model", "x"], []),
        (["model", "--models"], []),
    ],
)
def test_arguments_that_choose_a_model_are_found_where_they_stand(
    args: list[str], places: list[str]
) -> None:
    assert [clash.pointer for clash in argument_clashes(args)] == places


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ([], None),
        (["--settings", "a.json"], "a.json"),
        (["--settings=a.json"], "a.json"),
        (["-p", "--settings", "a.json", "--settings", "b.json"], "a.json"),
        (["--settings", "{}", "--settings", "b.json"], "b.json"),
        (["--settings", "  {}"], None),
        (["--settings"], None),
        (["--setting", "a.json"], None),
        (["--", "--settings", "a.json"], None),
    ],
)
def test_settings_are_named_by_a_path_or_written_out(args: list[str], path: str | None) -> None:
    assert settings_path(args) == path


@pytest.mark.parametrize(
    ("path", "read"),
    [
        ("/app/.claude.json", True),
        ("/etc/managed-settings.json", True),
        ("/etc/managed-settings.d/1.json", True),
        ("/etc/xmanaged-settings.d/1.json", False),
        ("/app/.claude/settings.json", True),
        ("/app/.claude/settings.local.json", True),
        ("/app/.claude/other.json", False),
        ("/app/settings.json", False),
        ("/app/x.claude/settings.json", False),
        ("/conf/settings.json", True),
        ("/conf/settings.local.json", True),
        ("/conf/x/settings.json", False),
        ("/conf/CLAUDE.md", False),
    ],
)
def test_a_file_is_read_as_settings_by_its_name_and_its_folder(path: str, read: bool) -> None:
    assert is_settings(path, "/conf") is read


@pytest.mark.parametrize(
    ("settings", "causes"),
    [
        ({"theme": "dark"}, []),
        ({"model": "x", "apiKeyHelper": "y", "z": 1}, ["'apiKeyHelper'", "'model'"]),
        ({"env": {"A": "1", "NO_PROXY": "*", "B": "2"}}, ["NO_PROXY"]),
        ({"env": {"ANTHROPIC_MODEL": 3}}, ["ANTHROPIC_MODEL"]),
        ({"env": {"ANTHROPIC_MODEL": "${model.name}"}}, ["ANTHROPIC_MODEL"]),
        ({"env": {"ANTHROPIC_CUSTOM_HEADERS": 3}}, []),
        ({"env": ["NO_PROXY"]}, []),
    ],
)
def test_a_settings_file_chooses_nothing_that_is_not_its_own(
    settings: dict[str, Any], causes: list[str]
) -> None:
    found = list(settings_clashes(json.dumps(settings), "/f"))
    assert [clash.pointer for clash in found] == ["/f"] * len(causes)
    assert all(cause in clash.cause for cause, clash in zip(causes, found, strict=True))
    assert {clash.step for clash in found} <= {"Remove it."}


@pytest.mark.parametrize(
    ("env", "cause"),
    [
        ({"ANTHROPIC_CUSTOM_HEADERS": "X-A: 1\n Host : x"}, "a header that says who calls"),
        ({"ANTHROPIC_CUSTOM_HEADERS": "x-claude-code-agent: x"}, "a header that says who calls"),
        ({"ANTHROPIC_CUSTOM_HEADERS": "X-API-Key: x"}, "a header that says who calls"),
        ({"ANTHROPIC_CUSTOM_HEADERS": "X-Host: x\nHosts: y"}, None),
        ({"CLAUDE_CODE_EXTRA_BODY": '{"tools": [], "model": 1}'}, "model, tools of each call"),
        ({"CLAUDE_CODE_EXTRA_BODY": '{"top_k": 1}'}, None),
        ({"CLAUDE_CODE_EXTRA_BODY": '["model"]'}, None),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, "past their capture"),
        ({"CLAUDE_CONFIG_DIR": "/x"}, "is set for each launch"),
        ({"ANTHROPIC_MODEL": "${model.name}"}, None),
        ({"ANTHROPIC_MODEL": "${model.token}"}, "decides where model calls go"),
        ({"HOST": "Host: x", "BODY": '{"model": 1}'}, None),
    ],
)
def test_a_value_of_the_environment_hides_no_call(env: dict[str, str], cause: str | None) -> None:
    found = list(environment_clashes({"A": "1"} | env))
    assert [clash.pointer for clash in found] == [f"/agent/env/{n}" for n in env if cause]
    assert all(cause in clash.cause for clash in found if cause)


def test_a_bound_name_may_be_set_to_its_binding_where_bindings_expand() -> None:
    (clash,) = environment_clashes({"ANTHROPIC_MODEL": "x"}, "/e")
    assert clash == Clash(
        "/e/ANTHROPIC_MODEL",
        "ANTHROPIC_MODEL decides where model calls go or which model they name",
        "Remove it, or set it to ${model.name}.",
    )
