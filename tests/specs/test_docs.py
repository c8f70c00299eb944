"""The documentation lists every code and every event type, and nothing else."""

import re
from pathlib import Path

from specs.errors import ErrorCode
from specs.events import EventType

_DOCS = Path(__file__).parents[2] / "docs"


def _first_column(page: str) -> set[str]:
    rows = [
        line.split("|")[1] for line in (_DOCS / page).read_text().splitlines() if line[:3] == "| `"
    ]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_error_code_is_documented() -> None:
    assert _first_column("errors.md") == {str(code) for code in ErrorCode}


def test_every_event_type_is_documented() -> None:
    assert _first_column("events.md") == {str(kind) for kind in EventType}
