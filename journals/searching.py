"""Search: a scan from the newest entry back, like grep's, that stops when it has enough.

There is no index that could lag or break. Each filter gives bytes that a matching line must hold;
they are counted in whole blocks, which is quick, and only the lines that hold all of them are read
as JSON and judged exactly. 100,000 entries are some tens of megabytes: a fraction of a
second where nothing matches, and the first block where something does.

Words are found in the text and the data, within other words too, in either case; every word must
be there, and "several words" in quotes stand as they are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import rfc8785
from pydantic import JsonValue

from journals import lines
from journals.reading import Block, Line, Snapshot
from specs.journal import EntryKind, JournalEntry, JournalProblem, Link

_WORDS: Final = re.compile(r'"([^"]*)"|(\S+)')
_STEADY: Final = re.compile(r"[\x00-\x7f]+")
_ODD: Final = str.maketrans({"\u212a": "\ue12a", "\u0130": "\ue130"})
"""The two letters beyond ASCII whose lower case is in it: kept apart, as they are in the bytes."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What an entry must be; every condition that is given holds.

    :ivar words: texts that are in it, in either case.
    :ivar kinds: kinds, one of which it has.
    :ivar link: a record that it links to; the digest counts where it is given.
    :ivar since: it is not earlier.
    :ivar without: ids, none of which it has.
    """

    words: tuple[str, ...] = ()
    kinds: tuple[EntryKind, ...] = ()
    link: Link | None = None
    since: datetime | None = None
    without: frozenset[str] = frozenset()

    def matches(self, entry: JournalEntry) -> bool:
        """Whether the entry is meant; `since` is the scan's."""
        return (
            (not self.kinds or entry.kind in self.kinds)
            and (self.link is None or _names(self.link, entry))
            and (not self.words or _has_words(entry, self.words))
            and entry.id not in self.without
        )


def words_of(query: str) -> tuple[str, ...]:
    """The words of a query; what stands in double quotes is one."""
    return tuple(quoted or word for quoted, word in _WORDS.findall(query) if quoted or word)


@dataclass(slots=True)
class Found:
    """A page of matching entries, newest first.

    :ivar next: where to go on, None at the end.
    :ivar problems: damaged lines among those that were read.
    """

    entries: list[JournalEntry] = field(default_factory=list[JournalEntry])
    next: str | None = None
    problems: list[JournalProblem] = field(default_factory=list[JournalProblem])


def scan(snapshot: Snapshot, wanted: Filter, *, limit: int, cursor: str | None = None) -> Found:
    """The newest `limit` entries that match, before the cursor."""
    found = Found()
    since = None if wanted.since is None else _stamp(wanted.since)
    for line in _candidates(snapshot, wanted, snapshot.place(cursor)):
        if len(found.entries) == limit:
            found.next = str(line.place + len(line.data) + 1)
            break
        try:
            entry = lines.entry(line.data)
        except lines.BadLine as error:
            found.problems.append(JournalProblem(byte=line.place, cause=str(error)))
            continue
        if since is not None and entry.at < since:
            break  # times never go back, so that all before is earlier too
        if wanted.matches(entry):
            found.entries.append(entry)
    return found


def holding(snapshot: Snapshot, needle: bytes) -> Iterator[Line]:
    """Lines that hold these very bytes, last one first."""
    for block in snapshot.blocks():
        yield from reversed(_holding(block, [_Needle(needle)]))


@dataclass(frozen=True, slots=True)
class _Needle:
    """Bytes that a matching line holds; `folded` are in lower case and meant in either."""

    data: bytes
    folded: bool = False


def _candidates(snapshot: Snapshot, wanted: Filter, end: int) -> Iterator[Line]:
    """Lines that may match, last one first: those that hold every needle."""
    needles = _needles(wanted)
    for block in snapshot.blocks(end):
        if needles:
            yield from reversed(_holding(block, needles))
        else:
            yield from block.lines()


def _holding(block: Block, needles: list[_Needle]) -> list[Line]:
    """The lines of a block that hold all needles: those that hold the rarest are looked at."""
    texts = {False: block.data}
    if any(needle.folded for needle in needles):
        texts[True] = block.data.lower()
    counts = [texts[needle.folded].count(needle.data) for needle in needles]
    if min(counts) == 0:
        return []
    rarest, *others = sorted(needles, key=lambda needle: counts[needles.index(needle)])
    found: list[Line] = []
    position = texts[rarest.folded].find(rarest.data)
    while position >= 0:
        line, following = block.line_at(position)
        begin = line.place - block.place
        if all(texts[other.folded].find(other.data, begin, following) >= 0 for other in others):
            found.append(line)
        position = texts[rarest.folded].find(rarest.data, following)
    return found


def _needles(wanted: Filter) -> list[_Needle]:
    needles: list[_Needle] = []
    if wanted.link is not None:
        needles.append(_Needle(b'"id":' + rfc8785.dumps(wanted.link.id)))
    if len(wanted.kinds) == 1:
        needles.append(_Needle(b'"kind":' + rfc8785.dumps(wanted.kinds[0])))
    parts = [_steady_part(word) for word in wanted.words]
    return needles + [_Needle(part, folded=True) for part in parts if part]


def _steady_part(word: str) -> bytes:
    """The longest part of a word that JSON writes the same way, and in two cases at most."""
    parts = [rfc8785.dumps(part)[1:-1].lower() for part in _STEADY.findall(word)]
    return max(parts, key=len, default=b"")


def _names(link: Link, entry: JournalEntry) -> bool:
    return any(
        (one.type, one.id) == (link.type, link.id)
        and (link.digest is None or link.digest == one.digest)
        for one in entry.links
    )


def _has_words(entry: JournalEntry, words: tuple[str, ...]) -> bool:
    texts = [_folded(text) for text in (entry.text, *_texts(entry.data))]
    return all(any(_folded(word) in text for text in texts) for word in words)


def _texts(value: JsonValue) -> Iterator[str]:
    """The names and values in JSON, each by itself."""
    match value:
        case str():
            yield value
        case dict():
            for name, part in value.items():
                yield name
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)
        case _:
            yield rfc8785.dumps(value).decode()


def _folded(text: str) -> str:
    return text.translate(_ODD).lower() if not text.isascii() else text.lower()


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
