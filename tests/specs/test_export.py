"""The exported JSON Schemas are what the contracts say."""

import json
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs.export, "FOLDER", tmp_path / "own")
    monkeypatch.setattr("sys.argv", ["export"])
    assert main() == 0
    assert (tmp_path / "own" / "plan.json").is_file()
    monkeypatch.setattr("sys.argv", ["export", str(tmp_path / "given")])
    assert main() == 0
    assert (tmp_path / "given" / "plan.json").is_file()


def test_a_schema_says_which_it_is() -> None:
    for name, text in schemas().items():
        value = json.loads(text)
        assert value["$id"] == f"urn:practicum:schema:{name.removesuffix('.json')}"
        assert value["$schema"].endswith("2020-12/schema")
