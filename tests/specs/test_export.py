"""The exported JSON Schemas are what the contracts say."""

from pathlib import Path

from specs.export import FOLDER, export, schemas


def test_exported_schemas_are_current() -> None:
    exported = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert exported == schemas(), "run: make schemas"


def test_an_export_makes_its_folder_and_leaves_only_what_there_is(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    written = export(folder)
    (folder / "once.json").write_text("{}")
    assert export(folder) == written
    assert {path.name: path.read_text() for path in folder.iterdir()} == schemas()
