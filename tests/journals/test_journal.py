"""The journal's own rules: what answers what, what is too much, and what damage is called."""

from pathlib import Path
from typing import Any

import pytest

from journals import Journal, files
from journals.reading import snapshot
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound
from specs.ids import Prefix, new_id
from tests.journals.drafts import draft


def lines_of(journal: Journal) -> list[bytes]:
    return (journal.folder / files.LINES).read_bytes().splitlines(keepends=True)


def write(journal: Journal, lines: list[bytes]) -> None:
    (journal.folder / files.LINES).write_bytes(b"".join(lines))


def test_a_journal_says_who_began_it_and_how_it_is_called(journal: Journal) -> None:
    header = journal.header()
    assert (header.title, header.author) == ("A journal", "tester")
    assert header.at.endswith("Z") and len(header.at) == len("2026-01-01T00:00:00.000000Z")
    assert journal.last() is None


def test_a_second_journal_in_a_folder_is_a_conflict(journal: Journal) -> None:
    with pytest.raises(Conflict, match="There is a journal in") as refused:
        Journal.create(journal.folder, title="t", author="a")
    assert refused.value.problem.code is ErrorCode.STATE_CONFLICT


@pytest.mark.parametrize("words", [{"title": ""}, {"author": "a\nb"}, {"title": "a\x00"}])
def test_a_bad_title_or_author_makes_no_journal(tmp_path: Path, words: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        Journal.create(tmp_path / "j", **({"title": "t", "author": "a"} | words))
    assert not (tmp_path / "j").exists()


def test_the_data_of_an_entry_has_four_kibibytes(journal: Journal) -> None:
    most = 4096 - len('{"a":""}')
    assert journal.append(draft(data={"a": "x" * most})).data == {"a": "x" * most}
    with pytest.raises(InvalidInput, match="is 4097 bytes; 4096 are allowed") as refused:
        journal.append(draft(data={"a": "x" * (most + 1)}))
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.pointer == "/data"
    assert len(lines_of(journal)) == 2


def test_an_entry_answers_only_what_is_there(journal: Journal) -> None:
    first = journal.append(draft("one"))
    answer = journal.append(draft("two", links=[{"type": "entry", "id": first.id}]))
    assert answer.links[0].id == first.id
    missing = new_id(Prefix.JOURNAL_ENTRY)
    with pytest.raises(NotFound, match=f"has no entry {missing}"):
        journal.append(draft("three", links=[{"type": "entry", "id": missing}]))


@pytest.mark.parametrize("wanted", ["0", "4", "01", "+1", "1.0", "run_" + "0" * 32, "x" * 200])
def test_an_entry_is_named_by_its_number_or_its_whole_id(journal: Journal, wanted: str) -> None:
    entries = [journal.append(draft(text)) for text in ("one", "two", "three")]
    for number, entry in enumerate(entries, 1):
        assert journal.entry(str(number)) == journal.entry(entry.id) == entry
    with pytest.raises(NotFound) as refused:
        journal.entry(wanted)
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.id == wanted[:100]


def test_what_only_mentions_an_entry_is_not_it(journal: Journal) -> None:
    first = journal.append(draft("one"))
    journal.append(draft("two", links=[{"type": "entry", "id": first.id}], data={"id": first.id}))
    assert journal.entry(first.id) == first
    journal.append(draft("three", data={"a": '"seq":1,"text":'}))
    assert journal.entry("1") == first


@pytest.mark.parametrize(
    ("kind", "answers"),
    [
        ("observation", True),
        ("comparison", True),
        ("decision", True),
        ("hypothesis", False),
        ("change", False),
        ("note", False),
    ],
)
def test_a_hypothesis_is_answered_by_what_was_seen_compared_or_decided(
    journal: Journal, kind: str, answers: bool
) -> None:
    asked = journal.append(draft("why?", kind="hypothesis"))
    links: list[dict[str, Any]] = [{"type": "file", "id": asked.id}]
    journal.append(draft("file", kind="decision", links=links))
    assert journal.open_hypotheses(limit=9).entries == [asked]
    links.append({"type": "entry", "id": asked.id})
    journal.append(draft("said", kind=kind, links=links))
    still = [entry.text for entry in journal.open_hypotheses(limit=9).entries]
    assert ("why?" in still) is not answers


def test_damage_is_told_by_place_and_cause_and_what_follows_is_taken_as_it_is(
    journal: Journal,
) -> None:
    for text in ("one", "two", "three", "four", "five"):
        journal.append(draft(text))
    lines = lines_of(journal)
    places = [0]
    for line in lines:
        places.append(places[-1] + len(line))
    write(journal, [*lines[:2], lines[2].replace(b'"two"', b'"ten"'), *lines[3:]])
    (problem,) = journal.verify()
    assert (problem.byte, "digest" in problem.cause) == (places[2], True)
    write(journal, [*lines[:2], *lines[3:]])
    (problem,) = journal.verify()
    assert (problem.byte, problem.cause) == (
        places[2],
        "entry 3 does not follow the line before it",
    )
    write(journal, [lines[0], lines[2], lines[1], *lines[3:]])
    assert [problem.cause.split()[1] for problem in journal.verify()] == ["2", "1", "3"]
    write(journal, lines)
    assert journal.verify() == []


def test_reading_all_of_a_damaged_journal_is_refused_at_the_damage(journal: Journal) -> None:
    for text in ("one", "two"):
        journal.append(draft(text))
    lines = lines_of(journal)
    write(journal, [*lines[:2], lines[2].replace(b'"two"', b'"ten"')])
    place = len(lines[0]) + len(lines[1])
    read = journal.entries()
    assert next(read).text == "one"
    words = f"is damaged at byte {place}: its bytes are not those"
    with pytest.raises(Conflict, match=words):
        next(read)
    for form in ("jsonl", "markdown"):
        with pytest.raises(Conflict, match=words):
            journal.export(form)
    newest = journal.last()
    assert newest is not None and newest.text == "one", "the newest that can be read"


def test_an_export_is_the_lines_or_the_page(journal: Journal) -> None:
    journal.append(draft("one"))
    path = journal.folder / files.LINES
    assert journal.export("jsonl") == path.read_bytes()
    assert journal.export("markdown").startswith(b"<!-- journal.jsonl through byte ")
    with snapshot(path) as now:
        assert len(list(now.forwards())) == 2
