"""Profiles: what a file, a plugin and a recipe may be before anything is launched."""

from typing import Any

import pytest
from pydantic import BaseModel

from specs import profile
from specs.profile import (
    Agent,
    Engine,
    Output,
    Plugin,
    PluginFile,
    ProfileFile,
    Sampling,
    plugin_digest,
    safe_path,
)
from tests.specs.contracts import DIGEST, lets, refused

AGENT: dict[str, Any] = {"model": "tiny", "engine": {"name": "command", "version": "1"}}
NATIVE: dict[str, Any] = {"engine": {"name": "claude-code", "version": "2.1.197"}}


@pytest.mark.parametrize("path", ["a", "/a/b", "a/./b", "..a", "a..", "a b", "/", "é"])
def test_a_path_that_stays_where_it_is_meant_is_kept_as_it_is(path: str) -> None:
    assert safe_path(path) == path


@pytest.mark.parametrize("path", ["", ".", "..", "../a", "a/..", "/a/../b", "a\x00b"])
def test_a_path_that_could_leave_is_refused_wherever_it_stands(path: str) -> None:
    with pytest.raises(ValueError, match="unsafe path"):
        safe_path(path)
    for kind in (ProfileFile, PluginFile, Output):
        assert not lets(kind, "path", path), kind
    assert not lets(Agent, "workdir", f"/{path}/..")


@pytest.mark.parametrize("origin", [{"content": ""}, {"content": "x"}, {"source": "y"}])
def test_a_file_has_one_origin(origin: dict[str, str]) -> None:
    file = ProfileFile.model_validate({"path": "a"} | origin)
    assert (file.path, file.mode) == ("a", "644")
    for wrong in ({}, {"content": "", "source": "y"}):
        assert "either content or source" in refused(ProfileFile, {"path": "a"} | wrong)


def test_a_file_of_a_plugin_lies_in_its_folder() -> None:
    assert PluginFile(path="a/b", content="").mode == "644"
    assert "use a relative path" in refused(PluginFile, {"path": "/a", "content": ""})


def plugin(**values: Any) -> dict[str, Any]:
    return {"name": "own"} | values


FILES = [{"path": "a", "content": "1"}, {"path": "b", "content": "2", "mode": "755"}]


def test_a_plugin_is_a_folder_or_its_files() -> None:
    assert Plugin.model_validate(plugin(source="./own")).files is None
    assert Plugin.model_validate(plugin(source="./own", digest=DIGEST)).digest == DIGEST
    assert Plugin.model_validate(plugin(files=[])).files == ()
    assert len(Plugin.model_validate(plugin(files=FILES)).files or ()) == 2
    for wrong in ({}, {"files": FILES, "source": "./own"}):
        assert "either files or source" in refused(Plugin, plugin(**wrong))


def test_two_files_of_a_plugin_have_two_paths() -> None:
    assert "one path" in refused(Plugin, plugin(files=[*FILES, FILES[0]]))


def test_a_plugin_has_the_digest_of_its_files_or_none() -> None:
    found = Plugin.model_validate(plugin(files=FILES))
    digest = plugin_digest(found.files or ())
    assert Plugin.model_validate(plugin(files=FILES, digest=digest)).digest == digest
    assert plugin_digest((found.files or ())[::-1]) == digest
    assert "do not have its digest" in refused(Plugin, plugin(files=FILES, digest=DIGEST))


def test_a_plugins_files_have_a_size_together_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "MAX_PLUGIN_BYTES", 4)
    rows = [{"path": "a", "content": "é"}, {"path": "b", "content": "12"}]
    assert Plugin.model_validate(plugin(files=rows)).source is None
    rows[1]["content"] = "123"
    assert "larger than 4 bytes" in refused(Plugin, plugin(files=rows))


def test_a_plugin_may_have_two_mebibytes() -> None:
    half = "x" * (1 << 20)
    rows = [{"path": "a", "content": half}, {"path": "b", "content": half}]
    assert Plugin.model_validate(plugin(files=rows)).name == "own"
    more = [*rows, {"path": "c", "content": "x"}]
    assert "larger than 2097152 bytes" in refused(Plugin, plugin(files=more))


def test_a_command_has_arguments_and_claude_code_may_have_none() -> None:
    assert Agent.model_validate(AGENT | {"args": ["true"]}).args == ("true",)
    assert Agent.model_validate(AGENT | NATIVE).args == ()
    assert "needs args" in refused(Agent, AGENT)


def test_the_workdir_is_absolute() -> None:
    assert Agent.model_validate(AGENT | NATIVE).workdir == "/app"
    assert lets(Agent, "workdir", "/srv/work")
    assert "must be an absolute path" in refused(Agent, AGENT | NATIVE | {"workdir": "srv"})


def test_what_is_left_out_is_the_harness_own() -> None:
    agent = Agent.model_validate(AGENT | NATIVE)
    assert agent.instruction.deliver == "stdin"
    assert set(agent.sampling.model_dump().values()) == {None}
    assert Output(path="a").required


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Engine, "version", ["1", "v" * 64], ["", "v" * 65]),
        (ProfileFile, "path", ["a" * 1024], ["a" * 1025]),
        (ProfileFile, "mode", ["644", "0755", "777"], ["64", "888", "1644", "rwx"]),
        (ProfileFile, "content", ["x" * (1 << 20)], ["x" * ((1 << 20) + 1)]),
        (ProfileFile, "source", ["s" * 1024], ["s" * 1025]),
        (PluginFile, "mode", ["644", "0755"], ["64", "888", "1644"]),
        (PluginFile, "path", ["a" * 1024], ["a" * 1025]),
        (Plugin, "name", ["p", "p" * 64, "a-1"], ["", "p" * 65, "-p", "P", "a.b"]),
        (Output, "path", ["a" * 1024], ["a" * 1025]),
        (Sampling, "temperature", [0, 2], [-0.1, 2.1]),
        (Sampling, "top_p", [0.01, 1], [0, 1.01]),
        (Sampling, "top_k", [1], [0]),
        (Sampling, "max_tokens", [1, 65536], [0, 65537]),
        (Agent, "model", ["m", "m" * 128], ["", "m" * 129]),
        (Agent, "env", [{"A_b1": ""}], [{"1A": ""}, {"A-B": ""}, {"": ""}]),
    ],
)  # fmt: skip
def test_names_and_numbers_have_their_form(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []
