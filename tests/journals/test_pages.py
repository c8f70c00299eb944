"""Pages and search: all that matches, newest first, once; and journal.md."""

import random
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journals import Filter, Journal, files, rendering
from journals.searching import words_of
from specs.errors import InvalidInput, NotFound
from specs.ids import Prefix, new_id
from specs.journal import EntryKind, JournalEntry, Link
from tests.journals.drafts import draft

KINDS: tuple[EntryKind, ...] = ("observation", "hypothesis", "decision")
RUNS = [Link(type="run", id=new_id(Prefix.RUN)) for _ in range(3)]
PIECES = ["Rate", "rate 1e-4", 'say "so"', "C:\\temp", "größe", "GRÖSSE", "прИвет", "\u212a", "k",
          "\u0130", "tab\there", "日本", "ﬁsh", "a\nb", "é", "E"]  # fmt: skip
NUMBERS = st.sampled_from([0.0001, 3, True, None, "Rate", {"größe": ["k"]}])


def all_pages(journal: Journal, wanted: Filter, limit: int) -> list[JournalEntry]:
    found: list[JournalEntry] = []
    cursor = None
    while True:
        page = journal.search(wanted, limit=limit, cursor=cursor)
        assert len(page.entries) <= limit
        assert not page.problems
        found += page.entries
        if page.next is None:
            return found
        cursor = page.next


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map(" ".join),
            st.sampled_from(KINDS),
            st.lists(st.sampled_from(RUNS), max_size=2, unique=True),
            st.dictionaries(st.sampled_from(PIECES), NUMBERS, max_size=2),
        ),
        min_size=1,
        max_size=12,
    ),
    st.lists(
        st.builds(
            Filter,
            words=st.lists(st.sampled_from([*PIECES, "0.0001", "tru", "r"]), max_size=2).map(tuple),
            kinds=st.lists(st.sampled_from(KINDS), max_size=2, unique=True).map(tuple),
            link=st.none() | st.sampled_from(RUNS),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 4),
)
def test_search_finds_what_looking_at_every_entry_finds(
    rows: list[tuple[str, EntryKind, list[Link], dict[str, object]]],
    filters: list[Filter],
    limit: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.create(Path(folder), title="t", author="a")
        entries = [
            journal.append(draft(text, kind=kind, links=links, data=data))
            for text, kind, links, data in rows
        ]
        for wanted in filters:
            expected = [entry for entry in entries[::-1] if wanted.matches(entry)]
            assert all_pages(journal, wanted, limit) == expected


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("rate", ["Learning Rate", "overrated"]),
        ("rate learning", ["Learning Rate"]),
        ('"ng rate"', ["Learning Rate"]),
        ('"rate ng"', []),
        ("0.25", ["scores"]),
        ("REWARD", ["scores"]),
        ("größe", ["GRÖßE"]),
        ("absent", []),
    ],
)
def test_words_are_found_in_texts_and_data_in_either_case(
    journal: Journal, query: str, texts: list[str]
) -> None:
    for text in ("Learning Rate", "overrated", "GRÖßE"):
        journal.append(draft(text))
    journal.append(draft("scores", data={"reward": [0.25]}))
    found = journal.search(Filter(words=words_of(query)), limit=10)
    assert [entry.text for entry in found.entries[::-1]] == texts


def test_a_digest_and_a_time_narrow_a_search(journal: Journal) -> None:
    digests = [f"sha256:{digit * 64}" for digit in "12"]
    links = [Link(type="file", id="/a", digest=digest) for digest in digests]
    first, second = [journal.append(draft(links=[link])) for link in links]
    by_any = journal.search(Filter(link=Link(type="file", id="/a")), limit=9).entries
    assert by_any == [second, first]
    assert journal.search(Filter(link=links[0]), limit=9).entries == [first]
    assert journal.search(Filter(link=Link(type="skill", id="/a")), limit=9).entries == []
    at = datetime.fromisoformat(second.at)
    assert journal.search(Filter(since=at), limit=9).entries[0] == second
    assert journal.search(Filter(since=at + timedelta(seconds=1)), limit=9).entries == []


def test_pages_of_a_long_journal_repeat_and_miss_nothing_while_it_grows(journal: Journal) -> None:
    """Lines from short ones to longer than the smallest block that is read."""
    chance = random.Random(5)
    for number in range(120):
        journal.append(draft(f"{number} " + "x" * chance.choice((1, 300, 7900))))
    numbers: list[int] = []
    cursor = None
    while True:
        page = journal.page(limit=7, cursor=cursor)
        numbers += [entry.seq for entry in page.entries]
        cursor = page.next
        if cursor is None:
            break
        journal.append(draft("later"))
    assert numbers == list(range(120, 0, -1))


@pytest.mark.parametrize("cursor", ["", "x", "-1", "0", "5", "999999999", "١"])
def test_a_cursor_of_another_list_is_refused(journal: Journal, cursor: str) -> None:
    journal.append(draft())
    with pytest.raises(InvalidInput) as refused:
        journal.page(limit=1, cursor=cursor)
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.pointer == "/cursor"


def test_a_hypothesis_is_open_until_something_seen_or_decided_links_to_it(journal: Journal) -> None:
    asked = [journal.append(draft(str(n), kind="hypothesis")) for n in range(3)]
    for kind, target in (("comparison", asked[0]), ("note", asked[1])):
        journal.append(draft(kind=kind, links=[{"type": "entry", "id": target.id}]))
    assert journal.open_hypotheses(limit=9).entries == [asked[2], asked[1]]
    first = journal.open_hypotheses(limit=1)
    assert first.entries == [asked[2]]
    assert journal.open_hypotheses(limit=1, cursor=first.next).entries == [asked[1]]


@pytest.mark.parametrize("wanted", ["jrn_", "x", "0", "2", "", "jrn_" + "0" * 32])
def test_an_entry_that_is_not_there_is_not_found(journal: Journal, wanted: str) -> None:
    journal.append(draft('"seq":2,"text":'))
    with pytest.raises(NotFound):
        journal.entry(wanted)


def test_the_page_says_all_of_it_and_no_entry_swallows_the_next(journal: Journal) -> None:
    journal.append(draft("# A heading\n```\nan open fence", data={"a": 1}, links=RUNS[:1]))
    journal.append(draft("second"))
    assert journal.render()
    page = (journal.folder / rendering.PAGE).read_text()
    assert page.encode() == journal.export("markdown")
    assert "# A journal" in page
    assert "> # A heading\n> ```\n> an open fence\n" in page
    assert f"- run:{RUNS[0].id}\n" in page
    assert page.index("second") > page.index("an open fence")


def test_the_page_may_lag_and_is_brought_up_to_date(journal: Journal) -> None:
    assert journal.render(promptly=0)
    assert not journal.render()
    page = journal.folder / rendering.PAGE
    with files.folder_lock(journal.folder, wait=True):
        journal.append(draft("one"))
        assert not journal.render(promptly=1 << 20), "another process makes it"
    assert "one" not in page.read_text()
    assert journal.render()
    assert "one" in page.read_text()
    page.write_text("something else")
    assert journal.render()
    assert "one" in page.read_text()
    for number in range(20):
        journal.append(draft(f"{number} " + "x" * 7900))
    assert journal.render(promptly=0)
    journal.append(draft("small"))
    assert not journal.render(promptly=1000), "an eighth of a long journal is awaited"
    assert journal.render(promptly=1 << 20)
    assert "small" in page.read_text()
    assert not list(journal.folder.glob(".journal*"))
