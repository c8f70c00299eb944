"""The exported JSON Schemas are what the contracts say."""

from pathlib import Path

import pytest

import specs.export
from specs.export import FOLDER, export, main, schemas


def test_exported_schemas_are_current() -> None:
    exported = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert exported == schemas(), "run: make schemas"


def test_an_export_makes_its_folder_and_leaves_only_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    written = export(folder)
    (folder / "once.json").write_text("{}")
    assert export(folder) == written
    assert {path.name: path.read_text() for path in folder.iterdir()} == schemas()


def test_the_command_writes_into_the_folder_that_it_is_given_or_into_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(specs.export, "export", written.append)
    for words in ([], ["given"]):
        monkeypatch.setattr("sys.argv", ["export", *words])
        assert main() == 0
    assert written == [FOLDER, Path("given")]
