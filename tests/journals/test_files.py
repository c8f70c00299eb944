"""The file of lines: made once, found from its end, and refused with the words of the system."""

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from journals import files
from specs.errors import ErrorCode, InvalidInput, NotFound, Unavailable


def opened(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


def test_a_journal_is_made_with_its_folder_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    assert files.create(folder, b"first\n") is True
    assert (folder / files.LINES).read_bytes() == b"first\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files.create(folder, b"other\n") is False
    assert [path.name for path in folder.iterdir()] == ["journal.jsonl"]
    assert (folder / files.LINES).read_bytes() == b"first\n"


def test_a_new_journal_is_durable_with_the_names_of_its_file_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    monkeypatch.setattr(files.os, "fsync", sync)
    files.create(tmp_path / "j", b"first\n")
    assert synced[0].startswith(f"{tmp_path}/j/.journal-")
    assert synced[1:] == [f"{tmp_path}/j", str(tmp_path)]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput) as refused:
        files.create(tmp_path / "file" / "j", b"first\n")
    problem = refused.value.problem
    assert problem.code is ErrorCode.INVALID_REFERENCE
    assert problem.detail == f"No journal can be made in {tmp_path}/file/j: Not a directory."


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1 << 16])
@pytest.mark.parametrize(
    ("data", "place", "line"),
    [
        (b"one\n", 0, b"one"),
        (b"one\ntwo\n", 4, b"two"),
        (b"one\ntwo\nthree\n", 8, b"three"),
        (b"one\n\n", 4, b""),
        (b"\n", 0, b""),
    ],
)
def test_the_last_line_is_found_whatever_the_block(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
    data: bytes,
    place: int,
    line: bytes,
) -> None:
    monkeypatch.setattr(files, "_BLOCK", block)
    descriptor = opened(tmp_path / "f", data + b"torn")
    assert files.last_line(descriptor, len(data)) == (place, line)
    assert files.end_of_lines(descriptor) == len(data)
    os.close(descriptor)


@pytest.mark.parametrize("data", [b"", b"t", b"torn and long"])
def test_a_file_without_a_whole_line_ends_at_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(files, "_BLOCK", 4)
    descriptor = opened(tmp_path / "f", data)
    assert files.end_of_lines(descriptor) == 0
    os.close(descriptor)


def test_a_line_follows_the_place_and_the_bytes_of_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\ntwo\nto")
    seen: list[tuple[int, bytes]] = []

    def following(place: int, last: bytes) -> bytes:
        seen.append((place, last))
        return b"three\n"

    assert files.append(path, following) == b"three\n"
    assert seen == [(4, b"two")]
    assert path.read_bytes() == b"one\ntwo\nthree\n"
    assert (tmp_path / "journal.torn").read_bytes() == b"to\n"
    files.append(path, lambda place, last: b"four\n")
    assert (tmp_path / "journal.torn").read_bytes() == b"to\n"


def test_an_error_of_the_writer_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\n")

    def following(place: int, last: bytes) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        files.append(path, following)
    assert path.read_bytes() == b"one\n"
    assert files.append(path, lambda place, last: b"two\n") == b"two\n"


def test_a_disk_that_does_not_sync_gives_no_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\n")

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fdatasync", fails)
    with pytest.raises(Unavailable) as refused:
        files.append(path, lambda place, last: b"two\n")
    problem = refused.value.problem
    assert problem.code is ErrorCode.STORE_UNAVAILABLE
    assert problem.detail == f"The disk refused an entry of {path}: Input/output error."


def test_the_lock_is_given_back_before_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\n")

    def sync(descriptor: int) -> None:
        other = os.open(path, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(other)

    monkeypatch.setattr(files.os, "fdatasync", sync)
    assert files.append(path, lambda place, last: b"two\n") == b"two\n"


@pytest.mark.parametrize("name", ["none/journal.jsonl", "file/journal.jsonl"])
def test_a_journal_that_is_not_there_is_not_found(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotFound) as refused:
        files.open_to_read(tmp_path / name)
    assert refused.value.problem.object is not None
    assert refused.value.problem.object.id == str((tmp_path / name).parent)


def test_a_journal_that_cannot_be_opened_says_why(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").mkdir()
    with pytest.raises(InvalidInput, match="cannot be opened: Is a directory") as refused:
        files.append(tmp_path / "journal.jsonl", lambda place, last: b"")
    assert refused.value.problem.code is ErrorCode.INVALID_REFERENCE


def test_a_folder_is_held_by_one_at_a_time(tmp_path: Path) -> None:
    with (
        files.folder_lock(tmp_path, wait=True) as first,
        files.folder_lock(tmp_path, wait=False) as second,
    ):
        assert (first, second) == (True, False)
    with files.folder_lock(tmp_path, wait=False) as third:
        assert third is True


def test_a_file_that_was_taken_away_while_the_lock_was_waited_for_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"one\n")
    real = fcntl.flock

    def flock(descriptor: Any, how: int) -> None:
        path.unlink(missing_ok=True)
        real(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with pytest.raises(NotFound):
        files.append(path, lambda place, last: b"two\n")
