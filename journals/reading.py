"""Reading lines from either end, in blocks: nothing is loaded that nobody asked for.

A reader sees the whole lines that there were when it opened the file; the file only grows, so a
place in it stays what it is, and serves as a cursor.
"""

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from journals import files, lines
from specs.cursors import foreign, position
from specs.journal import JournalHeader

_SMALLEST = 32 << 10
_LARGEST = 2 << 20


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end, and where it begins."""

    place: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines that follow one another."""

    place: int
    data: bytes

    def line_at(self, position: int) -> tuple[Line, int]:
        """The line that holds the byte at `position` of the block, and where the next begins."""
        start = self.data.rfind(b"\n", 0, position) + 1
        end = self.data.index(b"\n", position)
        return Line(self.place + start, self.data[start:end]), end + 1

    def lines(self) -> Iterator[Line]:
        """Its lines, last one first."""
        end = len(self.data) - 1
        while end >= 0:
            start = self.data.rfind(b"\n", 0, end) + 1
            yield Line(self.place + start, self.data[start:end])
            end = start - 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A journal as it was when it was opened.

    :ivar header: its first line.
    :ivar start: place of the first entry.
    :ivar end: place behind the last one.
    """

    descriptor: int
    header: JournalHeader
    start: int
    end: int

    def forwards(self) -> Iterator[Line]:
        """Every line from the header on."""
        place, rest = 0, b""
        while place + len(rest) < self.end:
            at = place + len(rest)
            more = os.pread(self.descriptor, min(_LARGEST, self.end - at), at)
            if not more:
                return  # another cut the file meanwhile
            rest += more
            *whole, remainder = rest.split(b"\n")
            for data in whole:
                yield Line(place, data)
                place += len(data) + 1
            rest = remainder

    def blocks(self, end: int | None = None) -> Iterator[Block]:
        """Blocks of entries that end before `end`, last one first; they grow on the way."""
        end = self.end if end is None else end
        size = _SMALLEST
        while end > self.start:
            begin = max(self.start, end - size)
            data = os.pread(self.descriptor, end - begin, begin)
            if begin > self.start:
                cut = data.find(b"\n", 0, len(data) - 1) + 1
                if cut == 0:  # one line is longer than the block
                    size *= 2
                    continue
                begin, data = begin + cut, data[cut:]
            yield Block(begin, data)
            end = begin
            size = min(2 * size, _LARGEST)

    def place(self, cursor: str | None) -> int:
        """The place that a cursor names.

        Raises:
            InvalidInput: a cursor that this journal did not give.
        """
        if cursor is None:
            return self.end
        place = position(cursor)
        if place is None or not self.start <= place <= self.end:
            raise foreign(cursor, "journal")
        if os.pread(self.descriptor, 1, place - 1) != b"\n":
            raise foreign(cursor, "journal")
        return place


@contextmanager
def snapshot(path: Path) -> Generator[Snapshot]:
    """A journal, open to read. Needs no lock: lines are never changed.

    Raises:
        NotFound: there is no journal.
        Conflict: `journal_damaged`; its first line is not a header.
    """
    descriptor = files.open_to_read(path)
    try:
        end = files.end_of_lines(descriptor)
        first = os.pread(descriptor, min(end, _SMALLEST), 0).partition(b"\n")[0]
        try:
            header = lines.header(first)
        except lines.BadLine as error:
            raise lines.damaged(str(path), 0, str(error)) from None
        yield Snapshot(descriptor, header, len(first) + 1, end)
    finally:
        os.close(descriptor)
