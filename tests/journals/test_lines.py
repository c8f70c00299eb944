"""One line: its bytes agree with its digest, or it is said why not."""

from typing import Any

import pytest

from journals import lines
from specs import canonical
from specs.errors import ErrorCode
from specs.ids import Prefix, new_id
from tests.specs.contracts import DIGEST

HEADER: dict[str, Any] = {
    "schema": "practicum.journal/v1",
    "at": "2026-01-01T00:00:00.000000Z",
    "author": "ada",
    "title": "t",
}
ENTRY: dict[str, Any] = {
    "kind": "note",
    "author": "ada",
    "text": "seen",
    "id": new_id(Prefix.JOURNAL_ENTRY),
    "seq": 3,
    "at": "2026-01-01T00:00:00.000000Z",
    "previous": DIGEST,
}


def test_a_line_is_the_canonical_object_with_its_digest_behind() -> None:
    line = lines.encode(ENTRY)
    body = canonical.canonical_bytes(ENTRY)
    assert line.startswith(body[:-1]) and line.endswith(b'"}\n')
    assert lines.checked_digest(line[:-1]) == canonical.digest_bytes(body)
    assert canonical.loads(line) == ENTRY | {"digest": canonical.digest_bytes(body)}


def test_what_follows_a_line_needs_its_number_its_time_and_its_digest() -> None:
    for value, seq in ((ENTRY, 3), (HEADER, 0)):
        found = lines.tail(lines.encode(value)[:-1])
        assert (found.seq, found.at) == (seq, value["at"])
        assert found.digest == canonical.digest(value)


def test_a_line_is_read_as_what_it_is() -> None:
    entry = lines.entry(lines.encode(ENTRY)[:-1])
    assert (entry.seq, entry.text, entry.links, entry.data) == (3, "seen", [], {})
    assert lines.header(lines.encode(HEADER)[:-1]).title == "t"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (b"", "it does not end in a digest"),
        (b"{}", "it does not end in a digest"),
        (lines.encode(ENTRY), "it does not end in a digest"),
        (lines.encode(ENTRY)[:-2], "it does not end in a digest"),
        (b' {"a":1,"digest":"' + DIGEST.encode() + b'"}', "its bytes are not those"),
        (lines.encode(ENTRY)[:-1].replace(b"seen", b"sent"), "its bytes are not those"),
    ],
)
def test_altered_bytes_are_no_line(line: bytes, cause: str) -> None:
    for read in (lines.entry, lines.header, lines.tail, lines.checked_digest):
        with pytest.raises(lines.BadLine, match=cause):
            read(line)


def test_a_line_of_another_version_says_what_cannot_be_read() -> None:
    links: dict[str, Any] = {"links": [{"type": "star", "id": "x"}]}
    newer = lines.encode(ENTRY | links)[:-1]
    with pytest.raises(lines.BadLine, match=r"this version cannot read it \(links/0/type: "):
        lines.entry(newer)
    with pytest.raises(lines.BadLine, match="this version cannot read it"):
        lines.header(lines.encode(ENTRY)[:-1])
    assert lines.tail(newer).seq == 3


def test_damage_is_a_conflict_that_names_the_place() -> None:
    error = lines.damaged("/j/journal.jsonl", 17, "why")
    assert str(error) == "The journal /j/journal.jsonl is damaged at byte 17: why."
    assert error.problem.code is ErrorCode.JOURNAL_DAMAGED
    assert error.problem.object is not None and error.problem.object.id == "/j/journal.jsonl"
