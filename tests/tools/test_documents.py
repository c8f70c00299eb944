"""Documents are read strictly, and a profile cannot take files from outside its folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from specs.errors import ErrorCode, InvalidInput
from specs.launch import validate_profile
from tools.documents import (
    OWN_PLUGIN,
    Read,
    embed_sources,
    profile_document,
    read_document,
    reference,
)

PROFILE: dict[str, Any] = {
    "schema": "practicum.profile/v1",
    "name": "acme/reviewer",
    "agent": {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "files": [{"path": "agent.py", "source": "./agent.py"}],
        "args": ["python3", "agent.py"],
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "recipe"
    inside.mkdir()
    (inside / "agent.py").write_text("print('hello')\n")
    (tmp_path / "secret").write_text("key")
    return inside


def with_source(folder: Path, source: Any) -> Read:
    agent = {**PROFILE["agent"], "files": [{"path": "agent.py", "source": source}]}
    value: dict[str, Any] = {**PROFILE, "agent": agent}
    return Read(value, folder, "profile")


def test_a_source_is_embedded_as_content(folder: Path) -> None:
    profile = profile_document(with_source(folder, "./agent.py"))
    assert profile.agent.files[0].content == "print('hello')\n"
    assert profile.agent.files[0].source is None


@pytest.mark.parametrize(
    "source", ["../secret", "/etc/passwd", "link", "absent.py", ".", "loop", "loop/x", "a" * 300]
)
def test_a_source_outside_the_folder_is_refused(folder: Path, source: str) -> None:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "loop").symlink_to("loop")
    with pytest.raises(InvalidInput) as caught:
        embed_sources(with_source(folder, source), "profile")
    problem = caught.value.problem
    assert problem.object is not None
    assert problem.object.pointer == "/agent/files/0/source"
    assert "key" not in problem.detail


def test_a_source_needs_a_file_that_it_is_relative_to() -> None:
    with pytest.raises(InvalidInput, match="did not come from a file"):
        embed_sources(Read(PROFILE, None, "profile"), "profile")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b'{"a": NaN}', ErrorCode.INVALID_JSON),
        (b'{"a": "\\ud800"}', ErrorCode.INVALID_JSON),
        (b'{"a": 1, "a": 2}', ErrorCode.INVALID_JSON),
        (b"\xff\xfe", ErrorCode.INVALID_JSON),
        (b"{", ErrorCode.INVALID_JSON),
        (b"[]", ErrorCode.INVALID_DOCUMENT),
        (b" " * (8 << 20) + b"{}", ErrorCode.BODY_TOO_LARGE),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, code: ErrorCode) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        read_document(f"@{path}", "plan")
    assert caught.value.problem.code is code


def test_a_missing_file_is_a_bad_reference(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_document(f"@{tmp_path / 'absent.json'}", "actor")
    assert caught.value.problem.code is ErrorCode.INVALID_REFERENCE


@pytest.mark.parametrize("text", ["", "a/b", "A/b@v1", "a/b@", "a/b@v1/x", "../b@v1", "a/b@v 1"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        reference(text, "dataset")
    problem = caught.value.problem
    assert (problem.code, problem.object and problem.object.pointer) == (
        ErrorCode.INVALID_REFERENCE,
        "/dataset",
    )


def test_a_file_and_its_value_are_the_same_document(folder: Path) -> None:
    path = folder / "profile.json"
    path.write_text(json.dumps(PROFILE))
    read = read_document(f"@{path}", "profile")
    assert isinstance(read, Read)
    assert (read.value, read.folder) == (PROFILE, folder)
    assert read_document(PROFILE, "profile") == Read(PROFILE, None, "profile")


def with_plugin(folder: Path, source: str = "./own") -> Read:
    agent: dict[str, Any] = {
        **PROFILE["agent"],
        "engine": {"name": "claude-code", "version": "2.1.197"},
        "plugins": [{"name": "own", "source": source}],
    }
    value: dict[str, Any] = {**PROFILE, "agent": agent}
    return Read(value, folder, "profile")


def test_a_plugins_folder_is_embedded_with_its_digest(folder: Path) -> None:
    own = folder / "own"
    (own / ".claude-plugin").mkdir(parents=True)
    (own / ".claude-plugin/plugin.json").write_text('{"name": "own"}')
    (folder / "skills/one").mkdir(parents=True)
    (folder / "skills/one/SKILL.md").write_text("# One\n")
    (own / "skills").symlink_to("../skills")
    (own / "again").symlink_to(".")  # a circle is entered once
    (own / "__pycache__").mkdir()
    (own / "__pycache__/x.pyc").write_bytes(b"\xff")
    (own / "run.sh").write_text("echo\n")
    (own / "run.sh").chmod(0o755)
    (plugin,) = profile_document(with_plugin(folder)).agent.plugins
    assert plugin.files is not None and plugin.source is None
    found = {file.path: file.mode for file in plugin.files}
    assert found == {
        ".claude-plugin/plugin.json": "644",
        "run.sh": "755",
        "skills/one/SKILL.md": "644",
    }
    assert plugin.digest is not None
    (folder / "skills/one/SKILL.md").write_text("# Two\n")
    assert profile_document(with_plugin(folder)).agent.plugins[0].digest != plugin.digest


def test_a_plugin_takes_nothing_from_elsewhere_and_only_text(folder: Path) -> None:
    own = folder / "own"
    own.mkdir()
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "large").write_text("x" * (3 << 20))
    for name in ("secret", "binary", "large"):
        (own / name).symlink_to((folder.parent if name == "secret" else folder) / name)
        with pytest.raises(InvalidInput) as caught:
            profile_document(with_plugin(folder))
        assert name in caught.value.problem.detail
        (own / name).unlink()
    for source in ("../recipe", "/etc", "./absent"):
        with pytest.raises(InvalidInput):
            profile_document(with_plugin(folder, source))


def test_the_programs_own_plugin_is_named_without_a_path(folder: Path) -> None:
    """It can be launched as it is embedded, and names its skills' revision."""
    profile = profile_document(with_plugin(folder, OWN_PLUGIN))
    (plugin,) = profile.agent.plugins
    assert plugin.files is not None
    assert ".claude-plugin/plugin.json" in {file.path for file in plugin.files}
    assert "--plugin-dir" in validate_profile(profile).argv


def test_a_plugin_folder_that_is_a_loop_of_links_is_refused(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    looped = with_plugin(folder, "loop")
    with pytest.raises(InvalidInput):
        profile_document(looped)
