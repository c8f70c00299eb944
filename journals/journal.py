"""A journal: the folder's files behind one class. Every method blocks."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, cast

from pydantic import JsonValue

from journals import files, lines, rendering, searching
from journals.reading import Line, Snapshot, snapshot
from journals.searching import Filter, Found
from specs import canonical
from specs.cursors import position
from specs.errors import Conflict, ErrorObject, InvalidInput, NotFound
from specs.ids import Prefix, is_id, new_id
from specs.journal import MAX_DATA_BYTES, JournalDraft, JournalEntry, JournalHeader, JournalProblem

_ANSWERS: Final = ("comparison", "decision", "observation")


class Journal:
    """The journal in a folder.

    Instances keep nothing open, so one may be used by any number of threads; another instance, in
    another process, may write the same journal.

    :ivar folder: where its files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / files.LINES

    @classmethod
    def create(cls, folder: Path, *, title: str, author: str) -> "Journal":
        """Begin a journal; its first line is durable on return.

        Raises:
            Conflict: `state_conflict`; there is one in this folder.
            InvalidInput: a bad title or author, or a folder that cannot be written.
        """
        value: dict[str, JsonValue] = {
            "schema": "practicum.journal/v1",
            "at": _now(),
            "author": author,
            "title": title,
        }
        line = _encoded(value)
        canonical.read(JournalHeader, line, what="journal")
        if not files.create(folder, line):
            raise Conflict(
                f"There is a journal in {folder} already.",
                object=ErrorObject(type="journal", id=str(folder)),
                next="Add to it: practicum journal append; or choose another name.",
            )
        return cls(folder)

    def append(self, draft: JournalDraft) -> JournalEntry:
        """Add an entry; durable on return. It may come between entries of others.

        Raises:
            NotFound: no such journal, or an `entry` that it links to is not in it.
            InvalidInput: text that JSON cannot hold, or too much data.
            Conflict: `journal_damaged`; the last line is not what was written there.
            Unavailable: `store_unavailable`; the disk refused.
        """
        value = _plain(draft)
        self._check_answered(draft)

        def following(place: int, last: bytes) -> bytes:
            try:
                before = lines.tail(last)
            except lines.BadLine as error:
                raise lines.damaged(str(self._path), place, str(error)) from None
            return lines.encode(
                {
                    **value,
                    "id": new_id(Prefix.JOURNAL_ENTRY),
                    "seq": before.seq + 1,
                    "at": max(_now(), before.at),
                    "previous": before.digest,
                }
            )

        return lines.entry(files.append(self._path, following)[:-1])

    def header(self) -> JournalHeader:
        """Title, author and time of its beginning."""
        with snapshot(self._path) as now:
            return now.header

    def last(self) -> JournalEntry | None:
        """The newest entry that can be read; None where there is none."""
        newest = self.page(limit=1).entries
        return newest[0] if newest else None

    def page(self, *, limit: int, cursor: str | None = None) -> Found:
        """The newest entries before the cursor; `problems` names damaged lines among them."""
        return self.search(Filter(), limit=limit, cursor=cursor)

    def search(self, wanted: Filter, *, limit: int, cursor: str | None = None) -> Found:
        """The newest matching entries before the cursor.

        Raises:
            InvalidInput: a cursor that this journal did not give.
        """
        with snapshot(self._path) as now:
            return searching.scan(now, wanted, limit=limit, cursor=cursor)

    def entry(self, wanted: str) -> JournalEntry:
        """The entry with this id or number.

        Raises:
            NotFound: there is none.
        """
        if is_id(wanted, Prefix.JOURNAL_ENTRY):
            needle = b'"id":' + json.dumps(wanted).encode()
        elif seq := position(wanted):
            needle = f'"seq":{seq},"text":'.encode()
        else:
            raise self._absent(wanted)
        with snapshot(self._path) as now:
            for line in searching.holding(now, needle):
                found = self._entry(line)
                if wanted in (found.id, str(found.seq)):
                    return found
        raise self._absent(wanted)

    def open_hypotheses(self, *, limit: int, cursor: str | None = None) -> Found:
        """Hypotheses, newest first, that no observation, comparison or decision links to."""
        with snapshot(self._path) as now:
            answered: set[str] = set()
            for line in searching.holding(now, b'"type":"entry"'):
                entry = self._entry(line)
                if entry.kind in _ANSWERS:
                    answered |= {link.id for link in entry.links if link.type == "entry"}
            wanted = Filter(kinds=("hypothesis",), without=frozenset(answered))
            return searching.scan(now, wanted, limit=limit, cursor=cursor)

    def entries(self) -> Iterator[JournalEntry]:
        """Every entry, oldest first.

        Raises:
            Conflict: `journal_damaged`, at the first line that is not what was written there.
        """
        with snapshot(self._path) as now:
            for line in now.forwards():
                if line.place >= now.start:
                    yield self._entry(line)

    def verify(self) -> list[JournalProblem]:
        """Each line that was altered, or that does not follow the one before it."""
        with snapshot(self._path) as now:
            return list(_problems(now))

    def render(self, *, promptly: int | None = None) -> bool:
        """Bring journal.md up to date (see `journals.rendering`); whether it was written."""
        return rendering.render(self._path, promptly=promptly)

    def export(self, form: Literal["markdown", "jsonl"]) -> bytes:
        """The whole journal as it is now, each line checked.

        Raises:
            Conflict: `journal_damaged`.
        """
        with snapshot(self._path) as now:
            for problem in _problems(now):
                raise lines.damaged(str(self._path), problem.byte, problem.cause)
            if form == "markdown":
                return "".join(rendering.markdown(now)).encode()
            return b"".join(line.data + b"\n" for line in now.forwards())

    def _check_answered(self, draft: JournalDraft) -> None:
        for link in draft.links:
            if link.type == "entry":
                self.entry(link.id)

    def _entry(self, line: Line) -> JournalEntry:
        try:
            return lines.entry(line.data)
        except lines.BadLine as error:
            raise lines.damaged(str(self._path), line.place, str(error)) from None

    def _absent(self, wanted: str) -> NotFound:
        return NotFound(
            f"The journal {self.folder} has no entry {wanted[:100]}.",
            object=ErrorObject(type="entry", id=wanted[:100]),
            next="Give the whole id jrn_… or the number that journal show prints.",
        )


def _problems(now: Snapshot) -> Iterator[JournalProblem]:
    """Walks the chain; after a damaged line the next good one is taken as it is."""
    seq, digest = 0, now.header.digest
    known = True
    for line in now.forwards():
        if line.place < now.start:
            continue
        try:
            entry = lines.entry(line.data)
        except lines.BadLine as error:
            yield JournalProblem(byte=line.place, cause=str(error))
            known = False
            continue
        if known and (entry.seq, entry.previous) != (seq + 1, digest):
            cause = f"entry {entry.seq} does not follow the line before it"
            yield JournalProblem(byte=line.place, cause=cause)
        seq, digest, known = entry.seq, entry.digest, True


def _plain(draft: JournalDraft) -> dict[str, JsonValue]:
    """A draft as JSON, all of which can be written and read back.

    Raises:
        InvalidInput: `invalid_json`, or `body_too_large` for its data.
    """
    value = cast(dict[str, JsonValue], draft.model_dump(mode="json", exclude_none=True))
    canonical.loads(json.dumps(value), what="entry")
    size = len(canonical.canonical_bytes(draft.data))
    if size > MAX_DATA_BYTES:
        raise InvalidInput(
            f"The data of an entry is {size} bytes; {MAX_DATA_BYTES} are allowed.",
            object=ErrorObject(type="entry", pointer="/data"),
            next="Write it to a file and link that: --link file:PATH",
        )
    return value


def _encoded(value: dict[str, JsonValue]) -> bytes:
    canonical.loads(json.dumps(value), what="journal")
    return lines.encode(value)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
