"""journal.md: what stands of an entry on the page, and when the page is made again."""

from pathlib import Path
from typing import Any

import pytest

from journals import Journal, files, rendering
from journals.reading import snapshot
from specs.ids import Prefix, new_id
from specs.journal import JournalEntry, Link
from tests.journals.drafts import draft
from tests.specs.contracts import DIGEST

RUN = Link(type="run", id=new_id(Prefix.RUN))
FILE = Link(type="file", id="/a", digest=DIGEST)


def section(text: str = "seen", **values: Any) -> list[str]:
    known = draft(text, **values).model_dump() | {
        "id": "jrn_" + "0" * 32,
        "seq": 7,
        "at": "2026-01-02T03:04:05.678901Z",
        "previous": DIGEST,
        "digest": DIGEST,
    }
    return "".join(rendering.section(JournalEntry.model_validate(known))).split("\n")


def test_a_section_has_a_heading_its_text_in_a_quotation_and_its_id() -> None:
    assert section("one\n\n  two \n") == [
        "",
        "## 7 · note · 2026-01-02 03:04:05 · tester",
        "",
        "> one",
        ">",
        ">   two",
        "",
        "`jrn_00000000000000000000000000000000`",
        "",
    ]


def test_links_and_data_stand_below_where_there_are_any() -> None:
    assert section(links=[RUN, FILE], data={"a": 1})[4:-3] == [
        "",
        f"- run:{RUN.id}",
        f"- file:/a ({DIGEST})",
        "",
        '    {"a": 1}',
    ]


@pytest.mark.parametrize(("length", "lines"), [(91, 1), (92, 3)])
def test_data_of_more_than_a_line_is_spread(length: int, lines: int) -> None:
    """A hundred characters with the name, quotes and braces."""
    found = section(data={"é": "x" * length})
    assert sum(line.startswith("    ") for line in found) == lines
    assert any('"é": "xx' in line for line in found)


def test_the_page_begins_with_how_far_it_goes_and_who_began_it(journal: Journal) -> None:
    path = journal.folder / files.LINES
    assert journal.render() is True
    page = journal.folder / rendering.PAGE
    first, title, _, begun, *_ = page.read_text().split("\n")
    size = path.stat().st_size
    assert first == f"<!-- journal.jsonl through byte {size} -->"
    assert title == "# A journal"
    moment = journal.header().at[:19].replace("T", " ")
    assert begun.startswith(f"Begun {moment} UTC by tester. Made from journal.jsonl;")
    assert rendering.rendered(page) == size


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", 0),
        ("something", 0),
        ("<!-- journal.jsonl through byte 17 -->\n", 17),
        (" <!-- journal.jsonl through byte 17 -->\n", 0),
        ("<!-- journal.jsonl through byte x -->\n", 0),
        ("\n<!-- journal.jsonl through byte 17 -->\n", 0),
    ],
)
def test_a_page_that_is_not_ours_shows_nothing(tmp_path: Path, text: str, shown: int) -> None:
    page = tmp_path / "journal.md"
    assert rendering.rendered(page) == 0
    page.write_text(text)
    assert rendering.rendered(page) == shown
    page.write_bytes(b"\xff" * 200)
    assert rendering.rendered(page) == 0


def test_a_damaged_line_has_a_section_of_its_own_and_hides_no_other(journal: Journal) -> None:
    for text in ("one", "two", "three"):
        journal.append(draft(text))
    path = journal.folder / files.LINES
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"ten"'))
    with snapshot(path) as now:
        place = list(now.forwards())[2].place
        page = "".join(rendering.markdown(now))
    cause = "its bytes are not those that its digest was made of"
    assert f"\n## damaged line at byte {place}\n\n{cause}\n" in page
    assert "> one" in page and "> three" in page and "> ten" not in page
    assert page.count("\n## ") == 3


def test_a_long_journal_is_made_again_once_an_eighth_is_new(journal: Journal) -> None:
    path = journal.folder / files.LINES
    journal.append(draft("x" * 7000))
    assert journal.render(promptly=0)
    shown = path.stat().st_size
    while True:
        journal.append(draft("y"))
        size = path.stat().st_size
        made = journal.render(promptly=size - 1)
        assert made == (8 * (size - shown) >= size)
        if made:
            break
    journal.append(draft("z"))
    assert journal.render(promptly=path.stat().st_size), "short enough to be made at once"
