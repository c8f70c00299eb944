"""Scripts of skills, run as a skill runs them: on rows with one fault each, and on good ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SKILLS = ROOT / "skills"
CHECK = SKILLS / "review-data" / "scripts" / "check_rows.py"
SAMPLE = SKILLS / "review-data" / "scripts" / "sample_rows.py"
SOURCES = SKILLS / "generate-data" / "scripts" / "read_sources.py"
BASH = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}


def ran(script: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", str(script), *words], capture_output=True, text=True, check=False
    )
    assert done.stderr == "", done.stderr
    return done.returncode, done.stdout


def call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
    }


def row(ask: str, answer: str, *middle: dict[str, Any], **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "You answer questions about the billing service."},
        {"role": "user", "content": ask},
        *middle,
        {"role": "assistant", "content": answer},
    ]
    return {"messages": messages, "tools": [BASH], **more}


RESULT = {"role": "tool", "tool_call_id": "c", "content": "3 files"}
GOOD = [
    row(
        "How many files are in the folder logs?",
        "There are three.",
        call("bash", command="ls logs"),
        RESULT,
    ),
    row("Name the largest customer of last month.", "Northwind Traders, with 1,204 orders."),
]
SIGNS = ["\x85", "\u2028", "\u2029"]
"""What some take for the end of a line and JSON has in its texts."""
ANSWER = "Retries are spaced by an exponential back-off with jitter."
FAULTS: dict[str, Any] = {
    "repeated": row(
        "how many files are in the folder: logs",
        "There are three.",
        call("bash", command="ls  logs"),
        RESULT | {"content": "17 files"},
    ),
    "leaked_answer": row(f"Our handbook says: {ANSWER} How are retries spaced?", ANSWER),
    "teacher_only": row("Fix the parser.", "Fixed, as in solution/solve.sh."),
    "unreadable": {"messages": [{"role": "user", "content": "and?"}]},
}


def written(folder: Path, *rows: Any) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return file


def test_good_rows_have_no_findings(tmp_path: Path) -> None:
    code, out = ran(CHECK, str(written(tmp_path, *GOOD)))
    found = json.loads(out)
    assert (code, found["rows"], found["findings"]) == (0, 2, [])
    assert found["openings"] == {"there are three": 0.5, "northwind traders with": 0.5}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_at_its_line_and_nothing_else_is(tmp_path: Path, fault: str) -> None:
    code, out = ran(CHECK, str(written(tmp_path, *GOOD, FAULTS[fault])))
    found = json.loads(out)["findings"]
    assert (code, [(one["line"], one["kind"]) for one in found]) == (1, [(3, fault)])


def test_words_that_only_the_teacher_saw_can_be_named(tmp_path: Path) -> None:
    code, out = ran(CHECK, str(written(tmp_path, *GOOD)), "--teacher-only", "northwind")
    assert code == 1 and json.loads(out)["findings"][0]["detail"] == "Northwind"


def test_an_empty_file_is_not_a_clean_one(tmp_path: Path) -> None:
    assert ran(CHECK, str(written(tmp_path)))[0] == 1
    assert ran(SAMPLE, str(written(tmp_path)))[0] == 1


@pytest.mark.parametrize("sign", SIGNS, ids=[f"U+{ord(sign):04X}" for sign in SIGNS])
def test_a_row_ends_where_a_line_feed_stands_and_nowhere_else(tmp_path: Path, sign: str) -> None:
    given = [*GOOD, row("Who is the second?", f"Contoso,{sign}with 980 orders.")]
    lines = [json.dumps(one, ensure_ascii=False) + "\r\n" for one in given]
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes("".join(lines).encode("utf-8-sig"))
    code, out = ran(CHECK, str(rows))
    assert (code, json.loads(out)["rows"]) == (0, 3)
    code, out = ran(SAMPLE, str(rows))
    assert (code, out.splitlines()[0]) == (0, "3 of 3 rows, seed 0")


def test_the_projects_own_rows_are_clean() -> None:
    for name in ("commands.jsonl", "commands-check.jsonl"):
        assert ran(CHECK, str(ROOT / "examples" / "rows" / name))[0] == 0


def test_a_sample_is_seeded_and_takes_every_kind(tmp_path: Path) -> None:
    common = [row(f"Question {n}?", f"Answer {n}.", kind="common") for n in range(40)]
    rows = written(tmp_path, *common, row("Rare question?", "x" * 900, kind="rare"))
    words = (str(rows), "--count", "6", "--by", "kind", "--width", "100")
    code, out = ran(SAMPLE, *words)
    assert code == 0 and out.startswith("6 of 41 rows, seed 0\n")
    assert out.count("\nline ") == 6 and "Rare question?" in out and "characters…]" in out
    assert ran(SAMPLE, *words) == (code, out)
    assert ran(SAMPLE, *words, "--seed", "1")[1] != out


PROSE = "The invoice is sent on the first of each month to the address of the account. " * 8
MDX = """---
title: Billing
---
import Billing from '../snippets/billing.mdx'
import { Tabs, Tab } from '@site/components'

<Tabs groupId="billing" defaultValue="cloud" values={[{label: 'Cloud', value: 'cloud'}]}>
  <Tab value="cloud"><Billing region="eu" plan="enterprise" showPrices={true} /></Tab>
</Tabs>

[Read more](https://example.org/billing/a/very/long/address)
"""


def test_files_that_only_wrap_are_found_however_long_they_are(tmp_path: Path) -> None:
    (tmp_path / "wrapper.mdx").write_text(MDX + "import X from '@site/x'\n" * 100)
    (tmp_path / "real.mdx").write_text(MDX + PROSE)
    (tmp_path / "plain.md").write_text(PROSE)
    (tmp_path / "data.csv").write_text("a,b\n")
    code, out = ran(SOURCES, str(tmp_path))
    found = json.loads(out)
    assert code == 1 and found["files"] == 3
    (wrapper,) = found["wrappers"]
    assert wrapper["file"] == "wrapper.mdx" and wrapper["loads"] == ["../snippets/billing.mdx"]
    assert [one["file"] for one in found["usable_but_loading"]] == ["real.mdx"]
    (tmp_path / "wrapper.mdx").unlink()
    assert ran(SOURCES, str(tmp_path))[0] == 0
    assert ran(SOURCES, str(tmp_path), "--suffix", ".rst")[0] == 1
