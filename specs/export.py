"""`python -m specs.export [DIR]`: the JSON Schemas of all contracts, one file each.

A test keeps `specs/schemas` equal to what this writes.
"""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from specs import (
    comparison,
    construction_records,
    episode,
    grant,
    journal,
    operator_api,
    records,
    worker_api,
)
from specs.assessment import Assessment
from specs.base import Contract
from specs.construction import ConstructionPlan
from specs.dataset import Dataset
from specs.errors import Problem
from specs.events import Event, EventPage
from specs.interaction import Record, Seal
from specs.launch import LaunchPlan
from specs.model import ModelInfo
from specs.model_spec import Generation, ModelSpec
from specs.plans import Plan
from specs.profile import Profile
from specs.run import Admission, Run, RunResult, RunSpec, Submission

FOLDER = Path(__file__).parent / "schemas"

DOCUMENTS: dict[str, Any] = {
    "admission": Admission,
    "assessment": Assessment,
    "construction-plan": ConstructionPlan,
    "dataset": Dataset,
    "event": Event,
    "event-page": EventPage,
    "generation": Generation,
    "interaction-record": Record,
    "launch-plan": LaunchPlan,
    "model": ModelInfo,
    "model-spec": ModelSpec,
    "plan": Plan,
    "problem": Problem,
    "profile": Profile,
    "run": Run,
    "run-result": RunResult,
    "run-spec": RunSpec,
    "seal": Seal,
    "submission": Submission,
}
MODULES = {
    "comparison": comparison,
    "construction-records": construction_records,
    "episode": episode,
    "journal": journal,
    "grant": grant,
    "operator-api": operator_api,
    "records": records,
    "worker-api": worker_api,
}
"""Modules whose contracts go into one file of definitions."""


def schemas() -> dict[str, str]:
    """File name → content, in a fixed order."""
    found = {name: TypeAdapter(kind).json_schema() for name, kind in DOCUMENTS.items()}
    found |= {name: _definitions(module) for name, module in MODULES.items()}
    return {
        f"{name}.json": json.dumps(_headed(name, schema), indent=2, sort_keys=True) + "\n"
        for name, schema in sorted(found.items())
    }


def export(folder: Path = FOLDER) -> list[Path]:
    """Write every schema and remove what is no longer one; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, content in schemas().items():
        path = folder / name
        path.write_text(content)
        written.append(path)
    for path in set(folder.glob("*.json")) - set(written):
        path.unlink()
    return written


def _definitions(module: ModuleType) -> dict[str, Any]:
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Contract)
        and value.__module__ == module.__name__
    ]
    _, schema = models_json_schema([(kind, "validation") for kind in kinds])
    return {**schema, "title": module.__name__}


def _headed(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:practicum:schema:{name}",
        **schema,
    }


def main() -> int:
    export(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    return 0


if __name__ == "__main__":
    sys.exit(main())
