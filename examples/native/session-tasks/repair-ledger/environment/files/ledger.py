"""Totals of a ledger: one entry a line, `day | what | amount | paid or refunded`."""

import sys
from pathlib import Path


def amount(line: str) -> int:
    """The cents of an entry; a refund counts against the total."""
    _, _, cents, kind = (part.strip() for part in line.split("|"))
    return int(cents) if kind == "paid" else int(cents)


def total(paths: list[str]) -> int:
    """The cents of all entries of these files."""
    lines = [line for path in paths for line in Path(path).read_text().splitlines()]
    return sum(amount(line) for line in lines if line)


if __name__ == "__main__":
    print(total(sys.argv[1:]))
