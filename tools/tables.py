"""Short texts of results: aligned columns, labelled values, human numbers."""

from collections.abc import Mapping, Sequence
from typing import cast


def table(head: Sequence[str], rows: Sequence[Sequence[object]], *, more: str | None = None) -> str:
    """Left-aligned columns two spaces apart; `more` is the cursor of the next page."""
    if not rows:
        return "(none)"
    cells = [[cell(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in [[title.upper() for title in head], *cells]
    ]
    return "\n".join(lines) + ("" if more is None else f"\nmore: --cursor {more}")


def pairs(values: Mapping[str, object]) -> str:
    """One `label  value` line each; absent values are left out."""
    shown = {key: cell(value) for key, value in values.items() if value is not None}
    width = max((len(key) for key in shown), default=0)
    return "\n".join(f"{key.ljust(width)}  {value}" for key, value in shown.items())


def cell(value: object) -> str:
    """One value in a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, Mapping):
        entries = cast(Mapping[object, object], value).items()
        return ", ".join(f"{key} {cell(item)}" for key, item in entries) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in cast(Sequence[object], value)) or "-"
    return str(value)


def number(value: float) -> str:
    """Four significant digits, without an exponent where that reads better."""
    return f"{value:.4g}"


def short(identifier: str) -> str:
    """The head of an id or a digest; long enough to be unique in practice."""
    prefix, _, digits = identifier.partition(":")
    return f"{prefix}:{digits[:12]}" if digits else identifier


def size(count: int) -> str:
    """Bytes in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
