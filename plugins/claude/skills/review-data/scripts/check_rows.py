"""What a machine can notice in rows that no specification knows of, before anybody reads them.

    check_rows.py ROWS.jsonl [--teacher-only WORDS …] [--limit 50]

    repeated       the same conversation as an earlier line, numbers apart
    leaked_answer  the last answer stands, word for word, in what the model was given
    teacher_only   an answer speaks of what only its teacher had: a solution, the tests, a passage
    unreadable     no row at all; `practicum train preview` says more

and the words with which most answers begin, as a share of all rows. What the deployed model has is
compared by `practicum model-spec check`. A finding is a line to read, not a verdict, and no finding
is no proof. Writes one JSON object; exits 1 if there are findings. Needs Python alone.
"""

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEACHER_ONLY = (
    r"\bsolve\.sh\b|\bsolution/|\btests?/test\.sh\b|\bexpected\.(?:txt|json)\b",
    r"\bground[- ]truth\b|\breference (?:answer|solution)\b|\bthe verifier\b|\breward\.txt\b",
    r"\b(?:provided|given|above) (?:context|passage|excerpt)\b",
    r"\bthe (?:context|passage) (?:says|states|above)\b",
)
_WORD = re.compile(r"[^\W_]+")
_LONG_ANSWER = 20
"""Characters below which an answer is too short to have been copied."""

type Finding = dict[str, Any]


def words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def text_of(message: dict[str, Any]) -> str:
    """Everything that a message says, the arguments of its calls included."""
    content = message.get("content")
    said = content if isinstance(content, str) else json.dumps(content or "", ensure_ascii=False)
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return "\n".join([said, *(str(call["function"]["arguments"]) for call in calls)])


def read(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Line number and row; None where the line is no row.

    A line ends at a line feed alone: texts may hold what else is taken for the end of one.
    """
    with path.open(encoding="utf-8-sig", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                yield number, row if row["messages"][-1]["role"] == "assistant" else None
            except (ValueError, KeyError, IndexError, TypeError):
                yield number, None


def leaked(messages: list[dict[str, Any]]) -> bool:
    """Whether the last answer, if it is more than a word or two, was given beforehand."""
    answer = " ".join(words(text_of(messages[-1])))
    before = [m for m in messages[:-1] if m["role"] in ("system", "user")]
    return len(answer) >= _LONG_ANSWER and any(
        answer in " ".join(words(text_of(message))) for message in before
    )


def check_row(messages: list[dict[str, Any]], teacher_only: list[str]) -> Iterator[tuple[str, str]]:
    """Kind and detail of each finding in one row."""
    if leaked(messages):
        yield "leaked_answer", text_of(messages[-1])[:120]
    for message in messages:
        if message["role"] != "assistant":
            continue
        for pattern in (*TEACHER_ONLY, *map(re.escape, teacher_only)):
            if match := re.search(pattern, text_of(message), re.IGNORECASE):
                yield "teacher_only", match[0]


def without_numbers(messages: list[dict[str, Any]]) -> str:
    """The words of a conversation, every number being the same."""
    said = " ".join(words(" ".join(text_of(message) for message in messages)))
    return re.sub(r"\d+", "0", said)


def check(path: Path, teacher_only: list[str]) -> dict[str, Any]:
    """Rows, findings, and how answers begin."""
    seen: dict[str, int] = {}
    openings: Counter[str] = Counter()
    findings: list[Finding] = []
    lines = 0
    for lines, row in read(path):
        if row is None:
            findings.append({"line": lines, "kind": "unreadable", "detail": ""})
            continue
        messages = row["messages"]
        first = seen.setdefault(without_numbers(messages), lines)
        if first != lines:
            findings.append({"line": lines, "kind": "repeated", "detail": f"line {first}"})
        openings[" ".join(words(text_of(messages[-1]))[:3])] += 1
        findings += [
            {"line": lines, "kind": kind, "detail": detail}
            for kind, detail in check_row(messages, teacher_only)
        ]
    counts = Counter(finding["kind"] for finding in findings)
    shares = {opening: round(count / lines, 3) for opening, count in openings.most_common(5)}
    return {"rows": lines, "counts": counts, "openings": shares, "findings": findings}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Notice what is wrong with rows.")
    made.add_argument("rows", type=Path)
    made.add_argument(
        "--teacher-only", action="append", default=[], help="words that only the teacher saw"
    )
    made.add_argument("--limit", type=int, default=50, help="findings to print")
    return made


def main() -> int:
    given = parser().parse_args()
    found = check(given.rows, given.teacher_only)
    failed = bool(found["findings"]) or not found["rows"]
    print(json.dumps({**found, "findings": found["findings"][: given.limit]}, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
