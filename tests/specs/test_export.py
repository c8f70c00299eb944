"""The exported JSON Schemas are what the contracts say."""

from specs.export import FOLDER, schemas


def test_exported_schemas_are_current() -> None:
    exported = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert exported == schemas(), "run: make schemas"
