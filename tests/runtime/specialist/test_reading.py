"""Sealing reads the files that a specification names, and no others."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.specialist.reading import seal
from specs import canonical
from specs.errors import ErrorCode, InvalidInput
from tests.runtime.specialist.desk import INSTRUCTIONS, SPEC, TOOLS

BOOK = b"\x00binary\xff"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "spec"
    inside.mkdir()
    (inside / "system.md").write_text(INSTRUCTIONS + "\n")
    (inside / "tools.json").write_text(json.dumps(TOOLS))
    (inside / "limits.md").write_text("Ten a day.\n")
    (inside / "book.pdf").write_bytes(BOOK)
    (inside / "loop.py").write_text("print()\n")
    (tmp_path / "secret").write_text("key")
    (inside / "link").symlink_to(tmp_path / "secret")
    return inside


def named() -> dict[str, Any]:
    """A specification whose every text is in a file."""
    return {
        **SPEC,
        "instructions": {"source": "system.md"},
        "tools": {"source": "tools.json"},
        "resources": [
            {"path": "/opt/finder/limits.md", "source": "limits.md"},
            {"path": "book.pdf", "kind": "document", "source": "book.pdf"},
        ],
        "withheld": [{"name": "answers.key", "source": "limits.md"}],
        "deployment": {**SPEC["deployment"], "files": [{"path": "/l.py", "source": "loop.py"}]},
    }


def test_files_are_embedded_and_documents_are_measured(folder: Path) -> None:
    spec = seal(named(), folder)
    assert spec.instructions == INSTRUCTIONS  # the newline at the file's end is the editor's
    assert [tool.name for tool in spec.tools] == ["search", "bash"]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType, reportUnknownMemberType]
    placed, book = spec.resources
    assert (placed.content, placed.size) == ("Ten a day.\n", 11)
    assert placed.digest == canonical.digest_bytes(b"Ten a day.\n")
    assert (book.content, book.source, book.size) == (None, None, len(BOOK))
    assert book.digest == canonical.digest_bytes(BOOK)
    assert spec.withheld[0].content == "Ten a day.\n"
    assert spec.deployment.files[0].content == "print()\n"


def test_a_sealed_specification_stands_alone(folder: Path) -> None:
    sealed = seal(named(), folder)
    again = seal(canonical.document(sealed), None)
    assert canonical.digest(again) == canonical.digest(sealed)


PLACES = [
    (("instructions",), "/instructions/source"),
    (("tools",), "/tools/source"),
    (("resources", 0), "/resources/0/source"),
    (("resources", 1), "/resources/1/source"),
    (("withheld", 0), "/withheld/0/source"),
    (("deployment", "files", 0), "/deployment/files/0/source"),
]


@pytest.mark.parametrize(("place", "pointer"), PLACES)
@pytest.mark.parametrize(
    "source", ["../secret", "/etc/passwd", "link", "absent.md", ".", "loop", "a" * 300]
)
def test_a_file_outside_of_the_folder_is_refused(
    folder: Path, place: tuple[Any, ...], pointer: str, source: str
) -> None:
    (folder / "loop").symlink_to("loop")
    document: Any = named()
    target: Any = document
    for key in place:
        target = target[key]
    target["source"] = source
    with pytest.raises(InvalidInput) as caught:
        seal(document, folder)
    problem = caught.value.problem
    assert problem.object is not None
    assert problem.object.pointer == pointer
    assert "key" not in problem.detail


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        (("instructions",), "/instructions/digest"),
        (("resources", 0), "/resources/0/digest"),
        (("resources", 1), "/resources/1/digest"),
        (("withheld", 0), "/withheld/0/digest"),
    ],
)
def test_a_digest_that_is_stated_must_be_that_of_the_bytes(
    folder: Path, part: tuple[Any, ...], pointer: str
) -> None:
    document: Any = named()
    target: Any = document
    for key in part:
        target = target[key]
    target["digest"] = f"sha256:{'1' * 64}"
    with pytest.raises(InvalidInput) as caught:
        seal(document, folder)
    problem = caught.value.problem
    assert problem.code == ErrorCode.DIGEST_MISMATCH
    assert problem.object is not None
    assert problem.object.pointer == pointer


def test_without_a_folder_no_file_is_read() -> None:
    with pytest.raises(InvalidInput, match="did not come from a file"):
        seal(named(), None)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"resources": [{"path": "/a"}]}, "either content or source"),
        ({"resources": [{"path": "/a/", "content": "x"}]}, "only a given path"),
        ({"resources": [{"path": "/a", "kind": "document"}]}, "source or a digest"),
        ({"resources": [{"path": "/a", "kind": "given", "content": "x"}]}, "no content"),
        ({"resources": [{"path": "../a", "kind": "given"}]}, "unsafe path"),
        ({"resources": [{"path": "/a", "kind": "given"}] * 2}, "twice"),
        ({"withheld": [{"name": "search"}]}, "the deployed model has it"),
        ({"tools": [{"name": "a b"}]}, "pattern"),
        ({"output": {"pattern": "("}}, "not a regular expression"),
        ({"useful": []}, "at least 1"),
        ({"colour": "red"}, "unknown key"),
        ({"resources": [{"path": "/a", "content": "x", "size": 2}]}, "1 bytes, not 2"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], cause: str) -> None:
    with pytest.raises(InvalidInput, match=cause):
        seal({**SPEC, **changes}, None)


def test_instructions_with_a_mark_that_nobody_sees_are_refused(folder: Path) -> None:
    (folder / "system.md").write_text("\ufeffBe brief.\n")
    with pytest.raises(InvalidInput) as caught:
        seal(named(), folder)
    assert caught.value.problem.object is not None
    assert caught.value.problem.object.pointer == "/instructions"
