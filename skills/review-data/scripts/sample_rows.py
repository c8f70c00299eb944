"""A seeded sample of rows to read, shuffled, with long texts cut in the middle.

    sample_rows.py ROWS.jsonl [--count 12] [--seed 0] [--by KEY] [--width 600]

Rows are the JSON lines of a supervised plan. With `--by` every value of a row's key is taken in
turn, so that a rare kind is seen too. Needs Python alone.
"""

import argparse
import json
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any


def sample(rows: list[dict[str, Any]], count: int, seed: int, by: str | None) -> list[int]:
    """Indices of the chosen rows, in the order in which they are to be read."""
    chance = random.Random(seed)
    kinds: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        kinds[json.dumps(row.get(by)) if by else ""].append(index)
    for members in kinds.values():
        chance.shuffle(members)
    chosen: list[int] = []
    while len(chosen) < count and any(kinds.values()):
        chosen += [members.pop() for members in kinds.values() if members]
    chosen = chosen[:count]
    chance.shuffle(chosen)
    return chosen


def cut(text: str, width: int) -> str:
    """Head and tail of a long text."""
    if len(text) <= width:
        return text
    half = width // 2
    return f"{text[:half]} […{len(text) - 2 * half} characters…] {text[-half:]}"


def shown(row: dict[str, Any], width: int) -> str:
    """A row as a conversation."""
    lines: list[str] = []
    tools: list[dict[str, Any]] = row.get("tools") or []
    names = [tool.get("function", tool).get("name") for tool in tools]
    if names:
        lines.append(f"  tools: {', '.join(map(str, names))}")
    for message in row.get("messages", []):
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content or "")
        calls: list[dict[str, Any]] = message.get("tool_calls") or []
        for call in calls:
            function: dict[str, Any] = call["function"]
            text += f"\n    -> {function['name']} {cut(str(function['arguments']), width)}"
        lines.append(f"  {message['role']}: {cut(text, width)}")
    return "\n".join(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """Every row. A line ends at a line feed alone: texts may hold other ends of lines."""
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Show a seeded sample of rows.")
    made.add_argument("rows", type=Path)
    made.add_argument("--count", type=int, default=12)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--by", help="a key of the rows whose values are taken in turn")
    made.add_argument("--width", type=int, default=600)
    return made


def main() -> int:
    given = parser().parse_args()
    rows = read(given.rows)
    chosen = sample(rows, given.count, given.seed, given.by)
    print(f"{len(chosen)} of {len(rows)} rows, seed {given.seed}")
    for index in chosen:
        print(f"\nline {index + 1} {json.dumps(rows[index].get('id'))}")
        print(shown(rows[index], given.width))
    return 0 if chosen else 1


if __name__ == "__main__":
    sys.exit(main())
