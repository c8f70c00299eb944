"""Reading from either end: every line once, whatever the blocks, and cursors that are places."""

import os
from pathlib import Path

import pytest

from journals import Journal, files, reading
from journals.reading import Block, Snapshot, snapshot
from specs.errors import Conflict, ErrorCode, InvalidInput
from tests.journals.drafts import draft

LENGTHS = (1, 40, 700, 3, 2000, 5, 1)


@pytest.fixture
def path(journal: Journal) -> Path:
    for length in LENGTHS:
        journal.append(draft("x" * length))
    return journal.folder / files.LINES


@pytest.mark.parametrize(("smallest", "largest"), [(512, 512), (512, 1024), (600, 4096), (1, 1)])
def test_every_line_is_read_once_from_either_end(
    path: Path, monkeypatch: pytest.MonkeyPatch, smallest: int, largest: int
) -> None:
    whole = path.read_bytes().split(b"\n")[:-1]
    with snapshot(path) as now:
        monkeypatch.setattr(reading, "_SMALLEST", smallest)
        monkeypatch.setattr(reading, "_LARGEST", largest)
        forwards = list(now.forwards())
        backwards = [line for block in now.blocks() for line in block.lines()]
    assert [line.data for line in forwards] == whole
    assert backwards == forwards[:0:-1]
    places = [line.place for line in forwards]
    assert places == [len(b"\n".join(whole[:n])) + (n > 0) for n in range(len(whole))]


def test_blocks_end_before_a_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with snapshot(path) as now:
        lines = list(now.forwards())
        monkeypatch.setattr(reading, "_SMALLEST", 700)
        blocks = list(now.blocks())
        before = [line for block in now.blocks(lines[4].place) for line in block.lines()]
        assert list(now.blocks(now.start)) == []
    assert before == lines[3:0:-1]
    assert blocks[-1].place == now.start
    assert blocks[0].place + len(blocks[0].data) == now.end


def test_blocks_of_whole_lines_grow_up_to_the_largest(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of lines of ten bytes: the first one that is read may be cut, and is left to the next."""
    header = journal.header()
    monkeypatch.setattr(reading, "_SMALLEST", 40)
    monkeypatch.setattr(reading, "_LARGEST", 160)
    (tmp_path / "lines").write_bytes(b"123456789\n" * 50)
    descriptor = files.open_to_read(tmp_path / "lines")
    blocks = list(Snapshot(descriptor, header, 20, 500).blocks())
    assert [len(block.data) for block in blocks] == [30, 70, 150, 150, 80]
    assert [block.place for block in blocks] == [470, 400, 250, 100, 20]
    os.close(descriptor)


def test_a_block_finds_the_line_of_a_byte() -> None:
    block = Block(100, b"ab\ncd\n\n")
    found = [block.line_at(position) for position in (0, 1, 3, 4, 6)]
    assert [(line.place, line.data, following) for line, following in found] == [
        (100, b"ab", 3),
        (100, b"ab", 3),
        (103, b"cd", 6),
        (103, b"cd", 6),
        (106, b"", 7),
    ]
    assert [line.place for line in block.lines()] == [106, 103, 100]


def test_a_cursor_is_the_place_behind_a_line(path: Path) -> None:
    with snapshot(path) as now:
        places = [line.place for line in now.forwards()]
        assert now.place(None) == now.end
        for good in (*places[1:], now.end):
            assert now.place(str(good)) == good
        for bad in (0, places[1] + 1, places[-1] - 1, now.start - 1, now.end + 1, -1):
            with pytest.raises(InvalidInput, match="is not a cursor of this journal"):
                now.place(str(bad))


def test_a_reader_sees_what_there_was_when_it_opened(journal: Journal, path: Path) -> None:
    with snapshot(path) as now:
        journal.append(draft("later"))
        assert len(list(now.forwards())) == 1 + len(LENGTHS)
        assert sum(len(list(block.lines())) for block in now.blocks()) == len(LENGTHS)
    with snapshot(path) as later:
        assert (later.start, later.end > now.end) == (now.start, True)


def test_a_file_that_is_cut_meanwhile_ends_the_reading(path: Path) -> None:
    with snapshot(path) as now:
        path.write_bytes(path.read_bytes()[: now.start])
        assert len(list(now.forwards())) == 1


@pytest.mark.parametrize("first", [b"", b"{}\n", b"no line"])
def test_a_file_without_a_header_is_damaged_at_its_beginning(path: Path, first: bytes) -> None:
    path.write_bytes(first)
    with pytest.raises(Conflict, match="is damaged at byte 0: ") as refused, snapshot(path):
        pass
    assert refused.value.problem.code is ErrorCode.JOURNAL_DAMAGED


def test_a_journal_without_entries_has_a_header_alone(journal: Journal) -> None:
    with snapshot(journal.folder / files.LINES) as now:
        assert now.start == now.end
        assert now.header.title == "A journal"
        assert list(now.blocks()) == []
        assert len(list(now.forwards())) == 1
