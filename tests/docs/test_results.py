"""The tables of results say what the files beside them say."""

import json
from typing import Any

from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "results"


def _interval(gain: dict[str, float]) -> str:
    return f"{gain['estimate']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"


def _row(found: dict[str, Any]) -> str:
    scores = " | ".join(f"{found[name]['success']:.3f}" for name in ("baseline", "warm", "trained"))
    interval = _interval(found["rl_difference"])
    return f"| {found['seed']} | {scores} | {interval} | {found['seconds']:.0f} |"


def _check_row(found: dict[str, Any]) -> str:
    scores = f"{found['warm']:.3f} | {found['trained']:.3f}"
    return f"| {found['name']} | {scores} | {_interval(found['difference'])} |"


def test_the_table_has_one_true_row_per_seed() -> None:
    rows = [_row(json.loads(path.read_text())) for path in sorted(FOLDER.glob("seed-*.json"))]
    table = (FOLDER / "README.md").read_text().splitlines()
    assert [line for line in table if line.startswith("| ") and line[2].isdigit()] == rows


def test_the_table_has_one_true_row_per_seed_of_the_training_check() -> None:
    found = json.loads((FOLDER / "train-check.json").read_text())
    table = (FOLDER / "README.md").read_text().splitlines()
    rows = [_check_row(one) for one in found["seeds"]]
    assert [line for line in table if line.startswith("| trained-")] == rows
    assert f"It took {found['seconds']:.0f} s on" in table[-1]
