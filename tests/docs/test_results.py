"""The table of results says what the files beside it say."""

import json
from typing import Any

from tests.docs.blocks import ROOT

FOLDER = ROOT / "docs" / "results"


def _row(found: dict[str, Any]) -> str:
    gain = found["rl_difference"]
    scores = " | ".join(f"{found[name]['success']:.3f}" for name in ("baseline", "warm", "trained"))
    interval = f"{gain['estimate']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]"
    return f"| {found['seed']} | {scores} | {interval} | {found['seconds']:.0f} |"


def test_the_table_has_one_true_row_per_seed() -> None:
    rows = [_row(json.loads(path.read_text())) for path in sorted(FOLDER.glob("seed-*.json"))]
    table = (FOLDER / "README.md").read_text().splitlines()
    assert [line for line in table if line.startswith("| ") and line[2].isdigit()] == rows
