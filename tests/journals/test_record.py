"""The record: what is appended is read back, durable, in a chain that shows damage."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from journals import Journal, files
from specs import canonical
from specs.errors import Conflict, ErrorCode, InvalidInput, NotFound, PracticumError, Unavailable
from specs.ids import Prefix, new_id
from tests.journals.drafts import draft

TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1, max_size=60
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda x: abs(x) < 2**53),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
DRAFTS = st.builds(
    draft,
    TEXT.filter(lambda text: bool(text.strip())),
    kind=st.sampled_from(["observation", "hypothesis", "change", "comparison", "decision", "note"]),
    data=st.dictionaries(TEXT, VALUES, max_size=3),
    links=st.lists(
        st.builds(lambda: {"type": "run", "id": new_id(Prefix.RUN)})
        | TEXT.map(lambda path: {"type": "file", "id": path}),
        max_size=3,
    ),
)


def path_of(journal: Journal) -> Path:
    return journal.folder / files.LINES


def lines_of(journal: Journal) -> list[bytes]:
    return path_of(journal).read_bytes().splitlines(keepends=True)


@settings(max_examples=25)
@given(st.lists(DRAFTS, min_size=1, max_size=4))
def test_what_is_appended_is_read_back_whole_and_in_order(drafts: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.create(Path(folder), title="t", author="a")
        acknowledged = [journal.append(one) for one in drafts]
        assert list(journal.entries()) == acknowledged
        assert journal.page(limit=10).entries == acknowledged[::-1]
        assert [entry.seq for entry in acknowledged] == [*range(1, len(drafts) + 1)]
        for entry, one in zip(acknowledged, drafts, strict=True):
            assert (entry.kind, entry.text, entry.links) == (one.kind, one.text, one.links)
            assert entry.data == json.loads(canonical.canonical_bytes(one.data))
            assert journal.entry(entry.id) == journal.entry(str(entry.seq)) == entry
        assert journal.verify() == []


def test_a_line_is_canonical_json_and_its_digest_is_that_of_the_rest(journal: Journal) -> None:
    entry = journal.append(draft('größer\n"so"'))
    value = json.loads(lines_of(journal)[-1])
    digest = value.pop("digest")
    assert digest == entry.digest == canonical.digest(value)
    assert value["previous"] == json.loads(lines_of(journal)[0])["digest"]


def test_an_entry_is_synced_before_append_returns(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    def sync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)

    monkeypatch.setattr(files.os, "fdatasync", sync)
    journal.append(draft())
    assert synced == [path_of(journal).stat().st_size]


def test_a_disk_that_refuses_is_an_error_and_no_acknowledgement(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append(draft("kept"))
    before = path_of(journal).read_bytes()
    real = os.write

    def short(descriptor: int, data: Any) -> int:
        if len(data) < 50:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data)[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "write", short)
        with pytest.raises(Unavailable) as refused:
            journal.append(draft("lost"))
    assert refused.value.problem.code is ErrorCode.STORE_UNAVAILABLE
    assert path_of(journal).read_bytes() == before
    journal.append(draft("after"))
    assert [entry.text for entry in journal.entries()] == ["kept", "after"]


def test_a_torn_end_is_not_read_not_joined_and_kept_aside(journal: Journal) -> None:
    journal.append(draft("first"))
    torn = lines_of(journal)[-1][:-1]  # all of it but its end
    for end in (torn, torn[:40], b'{"at":"', b"\0" * 5000, "ü".encode()[:1]):
        with path_of(journal).open("ab") as file:
            file.write(end)
        newest = journal.last()
        added = journal.append(draft("next"))
        assert newest is not None
        assert (added.seq, added.previous) == (newest.seq + 1, newest.digest)
        assert (journal.folder / files.TORN).read_bytes().endswith(end + b"\n")
    assert [entry.text for entry in journal.entries()] == ["first"] + 5 * ["next"]
    assert journal.verify() == []


def _altered(lines: list[bytes]) -> list[bytes]:
    lines[2] = lines[2].replace(b'"two"', b'"ten"')
    return lines


def _resealed(lines: list[bytes]) -> list[bytes]:
    value = json.loads(lines[2]) | {"text": "ten"}
    del value["digest"]
    body = canonical.canonical_bytes(value)
    seal = f',"digest":"{canonical.digest_bytes(body)}"}}\n'.encode()
    return [*lines[:2], body[:-1] + seal, *lines[3:]]


def _missing(lines: list[bytes]) -> list[bytes]:
    return lines[:2] + lines[3:]


def _moved(lines: list[bytes]) -> list[bytes]:
    return [lines[0], lines[2], lines[1], *lines[3:]]


def _garbage(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], b"not a line\n", *lines[2:]]


@pytest.mark.parametrize("damage", [_altered, _resealed, _missing, _moved, _garbage])
def test_damage_is_shown_and_hides_no_other_entry(
    journal: Journal, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    for text in ("one", "two", "three", "four"):
        journal.append(draft(text))
    path_of(journal).write_bytes(b"".join(damage(lines_of(journal))))
    assert journal.verify()
    read = {entry.text for entry in journal.page(limit=10).entries}
    assert {"one", "three", "four"} <= read
    assert bool(journal.page(limit=10).problems) == (damage in (_altered, _garbage))
    with pytest.raises(Conflict) as refused:
        journal.export("jsonl")
    assert refused.value.problem.code is ErrorCode.JOURNAL_DAMAGED


def test_nothing_is_chained_to_a_damaged_end(journal: Journal) -> None:
    journal.append(draft("one"))
    path_of(journal).write_bytes(b"".join(lines_of(journal)).replace(b'"one"', b'"two"'))
    with pytest.raises(Conflict) as refused:
        journal.append(draft("more"))
    assert refused.value.problem.code is ErrorCode.JOURNAL_DAMAGED
    assert len(lines_of(journal)) == 2


def test_a_writer_notices_that_the_file_was_replaced_while_it_waited(journal: Journal) -> None:
    """A copy that is put back has another inode; a line for the old one would be lost."""
    journal.append(draft("one"))
    copy = journal.folder / "copy"
    copy.write_bytes(path_of(journal).read_bytes())
    opened: list[int] = []
    real = files.fcntl.flock

    def flock(descriptor: int, how: int) -> None:
        if not opened:
            copy.replace(path_of(journal))
        opened.append(descriptor)
        real(descriptor, how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.fcntl, "flock", flock)
        journal.append(draft("two"))
    assert [entry.text for entry in journal.entries()] == ["one", "two"]


def test_time_never_goes_back(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    first = journal.append(draft())
    monkeypatch.setattr("journals.journal._now", lambda: "2001-01-01T00:00:00.000000Z")
    assert journal.append(draft()).at == first.at


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"text": "a\x00b"}, ErrorCode.INVALID_JSON),
        ({"data": {"n": 2**60}}, ErrorCode.INVALID_JSON),
        ({"data": {"long": "x" * 5000}}, ErrorCode.INVALID_DOCUMENT),
        ({"links": [{"type": "entry", "id": new_id(Prefix.JOURNAL_ENTRY)}]}, ErrorCode.NOT_FOUND),
    ],
)
def test_what_cannot_be_kept_is_refused_and_leaves_nothing(
    journal: Journal, values: dict[str, Any], code: ErrorCode
) -> None:
    with pytest.raises(PracticumError) as refused:
        journal.append(draft(**values))
    assert refused.value.problem.code is code
    assert journal.last() is None


def test_a_journal_is_made_once_and_used_only_when_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Journal(tmp_path / "none").append(draft())
    Journal.create(tmp_path / "j", title="t", author="a")
    with pytest.raises(Conflict):
        Journal.create(tmp_path / "j", title="t", author="a")
    for bad in ("", "x" * 201, "a\x00", "a\nb"):
        with pytest.raises(InvalidInput):
            Journal.create(tmp_path / "k", title=bad, author="a")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput):
        Journal.create(tmp_path / "file", title="t", author="a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "j"]
    assert [path.name for path in (tmp_path / "j").iterdir()] == [files.LINES]


def test_a_torn_line_that_cannot_be_put_aside_is_told_and_kept(journal: Journal) -> None:
    journal.append(draft("one"))
    with path_of(journal).open("ab") as file:
        file.write(b'{"at":')
    (journal.folder / files.TORN).mkdir()
    with pytest.raises(Unavailable) as refused:
        journal.append(draft("two"))
    assert files.TORN in refused.value.problem.detail
    assert path_of(journal).read_bytes().endswith(b'{"at":')
    (journal.folder / files.TORN).rmdir()
    assert journal.append(draft("three")).seq == 2
