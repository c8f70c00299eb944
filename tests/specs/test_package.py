"""Task packages: deterministic, and safe to unpack from untrusted bytes."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import package
from specs.errors import ErrorCode, InvalidInput


def _tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, data in entries:
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    return entry


def test_equal_trees_give_equal_bytes_whatever_their_times_and_order(tmp_path: Path) -> None:
    for name, order in (("one", ["a", "b"]), ("two", ["b", "a"])):
        for file in order:
            path = tmp_path / name / "dir" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(file)
    os.utime(tmp_path / "one" / "dir" / "a", (1, 1))
    (tmp_path / "two" / "dir" / "a").chmod(0o600)
    (tmp_path / "two" / "__pycache__").mkdir()
    assert package.pack(tmp_path / "one") == package.pack(tmp_path / "two")


_name = st.text("abcXYZ._-é ", min_size=1, max_size=8).filter(lambda n: n.strip(". ") != "")


@given(st.dictionaries(_name, st.tuples(st.binary(max_size=100), st.booleans()), max_size=5))
def test_unpacking_restores_content_and_executable_bits(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, tuple[bytes, bool]]
) -> None:
    source = tmp_path_factory.mktemp("source")
    for name, (data, executable) in files.items():
        (source / name).write_bytes(data)
        (source / name).chmod(0o755 if executable else 0o644)
    target = tmp_path_factory.mktemp("target") / "not" / "there"
    data = package.pack(source)
    package.unpack(data, target)
    package.unpack(data, target)
    assert {path.name for path in target.iterdir()} == set(files)
    assert package.pack(target) == data


@pytest.mark.parametrize(
    "entry",
    [
        tarfile.TarInfo("../escape"),
        tarfile.TarInfo("/absolute"),
        tarfile.TarInfo("a/../../b"),
        _link("link", "/etc/passwd"),
        _link("hard", "task.toml", tarfile.LNKTYPE),
        _link("fifo", "", tarfile.FIFOTYPE),
    ],
)
def test_a_package_that_could_leave_its_folder_is_refused_whole(
    tmp_path: Path, entry: tarfile.TarInfo
) -> None:
    target = tmp_path / "target"
    with pytest.raises(InvalidInput) as caught:
        package.unpack(_tar((tarfile.TarInfo("task.toml"), b"x"), (entry, b"")), target)
    assert caught.value.problem.code is ErrorCode.INVALID_PACKAGE
    assert not target.exists()


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x00" * 2000])
def test_bytes_that_are_no_tar_leave_no_files(tmp_path: Path, data: bytes) -> None:
    try:
        package.unpack(data, tmp_path / "target")
    except InvalidInput as error:
        assert error.problem.code is ErrorCode.INVALID_PACKAGE
    assert not list((tmp_path / "target").glob("*"))


def test_a_duplicate_or_nested_under_file_path_is_refused(tmp_path: Path) -> None:
    twice = _tar((tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a"), b"2"))
    under = _tar((tarfile.TarInfo("a"), b"1"), (tarfile.TarInfo("a/b"), b"2"))
    for data in (twice, under):
        with pytest.raises(InvalidInput):
            package.unpack(data, tmp_path / "target")


def test_a_link_or_special_file_in_a_task_directory_is_refused_by_name(tmp_path: Path) -> None:
    task = tmp_path / "task"
    task.mkdir()
    (task / "secret").symlink_to("/etc/shadow")
    with pytest.raises(InvalidInput, match="secret"):
        package.pack(task)
    (task / "secret").unlink()
    os.mkfifo(task / "pipe")
    with pytest.raises(InvalidInput, match="pipe"):
        package.pack(task)
