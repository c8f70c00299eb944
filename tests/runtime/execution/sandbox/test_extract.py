"""Archives from a sandbox are untrusted: whatever they hold, nothing lands outside."""

import io
import os
import tarfile
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from runtime.execution.sandbox.extract import Extracted, extract
from runtime.execution.sandbox.sandboxd.transfer import Bounds

BOUNDS = Bounds(file_bytes=1000, total_bytes=3000, members=50)
Entry = tuple[str, str, str]


def archive(entries: list[Entry]) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|") as tar:
        for kind, name, content in entries:
            member = tarfile.TarInfo(name)
            if kind == "file":
                member.size = len(content)
            elif kind == "directory":
                member.type = tarfile.DIRTYPE
            elif kind == "device":
                member.type = tarfile.CHRTYPE
            elif kind == "pipe":
                member.type = tarfile.FIFOTYPE
            else:
                member.type = tarfile.SYMTYPE if kind == "symlink" else tarfile.LNKTYPE
                member.linkname = content
            tar.addfile(member, io.BytesIO(content.encode()))
    buffer.seek(0)
    return buffer


def run(entries: list[Entry], destination: Path) -> Extracted:
    return extract(archive(entries), destination, BOUNDS)


def test_one_bad_member_costs_that_member(tmp_path: Path) -> None:
    result = run(
        [
            ("file", "a/good", "1"),
            ("file", "../escaped", "1"),
            ("file", "/absolute", "1"),
            ("symlink", "link", "/etc/shadow"),
            ("symlink", "up", "../outside"),
            ("pipe", "pipe", ""),
            ("device", "device", ""),
            ("hardlink", "hard", "/etc/shadow"),
            ("file", "large", "x" * 1001),
            ("symlink", "a/inside", "../b/fine"),
            ("file", "b/fine", "2"),
        ],
        tmp_path / "out",
    )
    assert (tmp_path / "out/a/good").read_text() == "1"
    assert (tmp_path / "out/a/inside").read_text() == "2"
    assert [name for name, _ in result.left_out] == [
        *("../escaped", "/absolute", "pipe", "device", "hard", "large", "link", "up")
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]
    assert result.files == 2


def test_files_do_not_go_through_links_of_an_earlier_transfer(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/d").symlink_to(outside)
    (tmp_path / "out/f").symlink_to(outside / "f")
    run([("file", "d/x", "1"), ("file", "f", "1")], tmp_path / "out")
    assert list(outside.iterdir()) == []
    assert (tmp_path / "out/d/x").read_text() == "1"


def test_bounds_on_size_and_number_hold(tmp_path: Path) -> None:
    many: list[Entry] = [("file", f"f{i}", "x" * 900) for i in range(60)]
    result = run(many, tmp_path)
    assert result.bytes <= BOUNDS.total_bytes
    assert result.left_out[-1][1] == "too many files"


names = st.lists(st.sampled_from(["a", "b", "..", ".", "", "c"]), max_size=5).map("/".join)
entries = st.lists(
    st.one_of(
        st.tuples(st.just("file"), names, st.just("x")),
        st.tuples(st.just("directory"), names, st.just("")),
        st.tuples(st.sampled_from(["symlink", "hardlink"]), names, names),
    ),
    max_size=12,
)


@given(entries)
def test_no_chain_of_links_leaves_the_directory(items: list[Entry]) -> None:
    with tempfile.TemporaryDirectory() as name:
        top = Path(name).resolve()
        out = top / "deep/out"
        for _ in range(2):  # a second time over what the first left
            run([item for item in items if item[1]], out)
        assert sorted(p.name for p in top.iterdir()) == ["deep"]
        assert sorted(p.name for p in (top / "deep").iterdir()) == ["out"]
        for path in out.rglob("*"):
            if path.is_symlink():
                target = os.path.realpath(path)
                assert target == str(out) or target.startswith(f"{out}/")
