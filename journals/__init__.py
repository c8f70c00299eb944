"""Journals: append-only research records in a folder, safe against crashes and concurrent writers.

    <folder>/journal.jsonl   the record: one JSON object per line, UTF-8, ended by \\n
    <folder>/journal.md      the same to read; made from the lines, may lag, never read back
    <folder>/journal.torn    what killed writers left half written (never acknowledged)

The first line is a `JournalHeader`, every other one a `JournalEntry` (`specs.journal`). A line is
the RFC 8785 form of the object without `digest`, with `,"digest":"sha256:…"` put before the last
brace. `digest` is the SHA-256 of that form, and `previous` is the digest of the line before, so an
altered, missing or moved line is shown. Lines cut off the end are not: keep the last digest
elsewhere where that matters.

`append` returns once its line is on the disk. Writers, in any number of processes, take turns by
flock on journal.jsonl for as long as a write takes; they wait for the disk beside one another, so
one sync serves all that are written by then. A line without its end was never acknowledged: the
next writer moves it to journal.torn, and readers do not see it.

    lines        one line: encoding, digest, checks
    files        creating, locking, durable append, torn ends
    reading      lines from either end, in blocks
    searching    filters, and the scan that applies them
    rendering    journal.md
    links        `type:id` as people write it; digests of files and skills
    journal      the class that puts them together
"""

from journals.journal import Journal
from journals.searching import Filter

__all__ = ["Filter", "Journal"]
