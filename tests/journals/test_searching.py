"""Search: what a filter means, which lines are looked at, and where a page ends."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from journals import Filter, Journal, files, lines
from journals.reading import snapshot
from journals.searching import holding, scan, words_of
from specs.ids import Prefix, new_id
from specs.journal import JournalEntry, Link
from tests.journals.drafts import draft
from tests.specs.contracts import DIGEST, OTHER

RUNS = [Link(type="run", id=new_id(Prefix.RUN)) for _ in range(2)]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", ()),
        ("  ", ()),
        ("a  bc", ("a", "bc")),
        ('"a b" c', ("a b", "c")),
        ('""', ()),
        ('a "" b', ("a", "b")),
        ('x"y', ('x"y',)),
    ],
)
def test_a_query_is_words_and_what_stands_in_quotes_is_one(
    query: str, words: tuple[str, ...]
) -> None:
    assert words_of(query) == words


def entry(**values: Any) -> JournalEntry:
    known = draft("Learning Rate", data={"a": [{"Key": "Straße"}, 0.25, True, None]}, **values)
    more = {"id": "jrn_" + "1" * 32, "seq": 1, "at": "t", "previous": DIGEST, "digest": DIGEST}
    return JournalEntry.model_validate(known.model_dump() | more)


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (Filter(), True),
        (Filter(words=("RATE",)), True),
        (Filter(words=("rate", "learn")), True),
        (Filter(words=("rate", "absent")), False),
        (Filter(words=("absent", "rate")), False),
        (Filter(words=("key",)), True),
        (Filter(words=("STRAßE",)), True),
        (Filter(words=("0.25",)), True),
        (Filter(words=("true",)), True),
        (Filter(words=("null",)), True),
        (Filter(words=("key straße",)), False),
        (Filter(kinds=("note",)), True),
        (Filter(kinds=("change",)), False),
        (Filter(kinds=("change", "note")), True),
        (Filter(kinds=("change",), words=("rate",)), False),
        (Filter(link=RUNS[0]), True),
        (Filter(link=RUNS[1]), False),
        (Filter(link=RUNS[1], words=("rate",)), False),
        (Filter(link=Link(type="file", id="/a")), True),
        (Filter(link=Link(type="skill", id="/a")), False),
        (Filter(link=Link(type="file", id="/a", digest=DIGEST)), True),
        (Filter(link=Link(type="file", id="/a", digest=OTHER)), False),
        (Filter(without=frozenset({"jrn_" + "1" * 32})), False),
        (Filter(without=frozenset({"jrn_" + "2" * 32})), True),
    ],
)
def test_every_condition_of_a_filter_holds(wanted: Filter, matches: bool) -> None:
    file = Link(type="file", id="/a", digest=DIGEST)
    assert wanted.matches(entry(links=[RUNS[0], file])) is matches


def test_letters_that_only_look_alike_in_lower_case_are_apart(journal: Journal) -> None:
    """KELVIN SIGN and dotted capital I, whose lower case is in ASCII."""
    for text in ("300 \u212a", "300 k", "\u0130x", "ix"):
        journal.append(draft(text))

    def found(word: str) -> list[str]:
        return [one.text for one in journal.search(Filter(words=(word,)), limit=9).entries]

    assert found("K") == ["300 k"] and found("\u212a") == ["300 \u212a"]
    assert found("IX") == ["ix"] and found("\u0130X") == ["\u0130x"]


def texts(journal: Journal, wanted: Filter) -> list[str]:
    return [one.text for one in journal.search(wanted, limit=9).entries]


def test_the_newest_matches_come_first_and_a_page_says_where_the_next_begins(
    journal: Journal,
) -> None:
    for number in range(5):
        journal.append(draft(f"even {number}" if number % 2 == 0 else f"odd {number}"))
    first = journal.search(Filter(words=("even",)), limit=2)
    assert [one.text for one in first.entries] == ["even 4", "even 2"]
    second = journal.search(Filter(words=("even",)), limit=2, cursor=first.next)
    assert ([one.text for one in second.entries], second.next) == (["even 0"], None)
    assert journal.search(Filter(words=("even",)), limit=3).next is None
    assert journal.search(Filter(words=("absent",)), limit=1).entries == []
    assert texts(journal, Filter()) == ["even 4", "odd 3", "even 2", "odd 1", "even 0"]


def test_a_time_is_a_moment_in_any_zone(journal: Journal) -> None:
    first, second = journal.append(draft("one")), journal.append(draft("two"))
    at = datetime.fromisoformat(second.at)
    elsewhere = at.astimezone(timezone(timedelta(hours=5)))
    for moment in (at, elsewhere):
        assert texts(journal, Filter(since=moment)) == ["two"]
    assert texts(journal, Filter(since=at + timedelta(microseconds=1))) == []
    assert texts(journal, Filter(since=datetime.fromisoformat(first.at))) == ["two", "one"]


def test_damaged_lines_are_named_and_do_not_count(journal: Journal) -> None:
    for text in ("one", "two", "three"):
        journal.append(draft(text))
    path = journal.folder / files.LINES
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"ten"'))
    found = journal.search(Filter(), limit=2)
    assert [one.text for one in found.entries] == ["three", "one"]
    with snapshot(path) as now:
        places = [line.place for line in now.forwards()]
        assert scan(now, Filter(), limit=2) == found
    assert [problem.byte for problem in found.problems] == [places[2]]
    assert "digest" in found.problems[0].cause


def test_lines_that_hold_bytes_are_found_last_one_first(journal: Journal) -> None:
    for text in ("ab", "b", "ab ab", "a"):
        journal.append(draft(text))
    with snapshot(journal.folder / files.LINES) as now:
        held = [line.data for line in holding(now, b'"text":"ab')]
        assert [b'"ab ab"' in data for data in held] == [True, False]
        assert list(holding(now, b"absent")) == []
        assert len(list(holding(now, b'"type":"entry"'))) == 0
        assert [line.place for line in holding(now, b'"seq":1')] == [now.start]


def test_each_needle_is_looked_for_in_its_own_line(journal: Journal) -> None:
    """Neighbours that hold one part each make no match."""
    journal.append(draft("alpha", links=[RUNS[0]], kind="change"))
    journal.append(draft("beta", kind="note"))
    journal.append(draft("alpha beta", kind="note"))
    assert texts(journal, Filter(words=("alpha",), kinds=("note",))) == ["alpha beta"]
    assert texts(journal, Filter(words=("alpha", "beta"))) == ["alpha beta"]
    assert texts(journal, Filter(words=("beta",), link=RUNS[0])) == []
    assert texts(journal, Filter(link=RUNS[0])) == ["alpha"]
    assert texts(journal, Filter(kinds=("change", "note"), words=("ALPHA",))) == [
        "alpha beta",
        "alpha",
    ]


@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        (Filter(), ["other", "yyk", "zzq yyk", "zzq"]),
        (Filter(words=("YYK",)), ["yyk", "zzq yyk"]),
        (Filter(words=("zzq", "yyk")), ["zzq yyk"]),
        (Filter(words=("zzq",), kinds=("note",)), ["zzq yyk", "zzq"]),
        (Filter(words=("yyk",), kinds=("change",)), []),
        (Filter(kinds=("note", "change")), ["other", "yyk", "zzq yyk", "zzq"]),
        (Filter(kinds=("change",)), ["other"]),
        (Filter(words=("yyk",), link=RUNS[0]), ["yyk"]),
        (Filter(words=("absent",)), []),
    ],
)
def test_only_lines_that_hold_every_part_are_read_as_json(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, wanted: Filter, read: list[str]
) -> None:
    journal.append(draft("zzq"))
    journal.append(draft("zzq yyk"))
    journal.append(draft("yyk", links=[RUNS[0]]))
    journal.append(draft("other", links=[RUNS[0]], kind="change"))
    seen: list[str] = []
    real = lines.entry

    def counted(line: bytes) -> JournalEntry:
        found = real(line)
        seen.append(found.text)
        return found

    monkeypatch.setattr(lines, "entry", counted)
    journal.search(wanted, limit=9)
    assert seen == read
