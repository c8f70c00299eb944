"""Task packages: their bounds, and what an entry may be."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from specs import package
from specs.errors import ErrorCode, InvalidInput


def entry(name: str, data: bytes = b"", **values: object) -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.size = len(data)
    for key, value in values.items():
        setattr(found, key, value)
    return found, data


def tar(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for found, data in entries:
            archive.addfile(found, io.BytesIO(data))
    return buffer.getvalue()


def refused(data: bytes) -> str:
    with pytest.raises(InvalidInput) as caught:
        package.files(data)
    assert caught.value.problem.code is ErrorCode.INVALID_PACKAGE
    return str(caught.value)


def tree(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def test_a_package_has_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_PACKAGE_BYTES", 4)
    fits = tree(tmp_path / "fits", a=b"12", b__c=b"34")
    data = package.pack(fits)
    assert package.files(data) == {"a": b"12", "b/c": b"34"}
    tree(fits, b__c=b"345")
    with pytest.raises(InvalidInput, match="b/c: the package exceeds 4 bytes"):
        package.pack(fits)
    assert "the package exceeds 4 bytes" in refused(tar(entry("a", b"12"), entry("b", b"345")))


def test_a_package_has_so_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "MAX_ENTRIES", 3)
    fits = tree(tmp_path / "fits", a=b"1", b__c=b"2")
    assert set(package.files(package.pack(fits))) == {"a", "b/c"}
    tree(fits, d=b"3")
    with pytest.raises(InvalidInput, match="more than 3 entries"):
        package.pack(fits)
    names = [entry(name) for name in ("a", "b", "c", "d")]
    assert set(package.files(tar(*names[:3]))) == {"a", "b", "c"}
    assert "more than 3 entries" in refused(tar(*names))


def test_a_package_may_have_256_mebibytes(tmp_path: Path) -> None:
    with (tree(tmp_path / "t", a=b"") / "a").open("r+b") as file:
        file.truncate(256 * 1024 * 1024 + 1)
    with pytest.raises(InvalidInput, match="a: the package exceeds 268435456 bytes"):
        package.pack(tmp_path / "t")


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    name = os.fsdecode(b"a\xff")
    tree(tmp_path / "t", **{name: b"1"})
    with pytest.raises(InvalidInput, match="the name is not UTF-8"):
        package.pack(tmp_path / "t")


def test_what_tools_leave_behind_is_not_packed(tmp_path: Path) -> None:
    folder = tree(tmp_path / "t", a=b"1", d__e=b"2")
    for inner in (folder / ".git", folder / "__pycache__", folder / "d" / "__pycache__"):
        inner.mkdir()
        (inner / "x").write_bytes(b"3")
    (folder / "d" / ".DS_Store").write_bytes(b"4")
    assert set(package.files(package.pack(folder))) == {"a", "d/e"}


def test_what_is_no_folder_is_no_task(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tree(tmp_path, file=b"1") / "file"):
        with pytest.raises(InvalidInput, match="it is not a directory"):
            package.pack(path)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("/a", "the path leaves the package"),
        ("..", "the path leaves the package"),
        ("a/..", "the path leaves the package"),
        (".", "the path leaves the package"),
        ("ok", None),
        ("..a", None),
    ],
)
def test_a_path_stays_in_the_package(name: str, cause: str | None) -> None:
    data = tar(entry("first", b"1"), entry(name, b"2"))
    if cause is None:
        assert package.files(data)[name] == b"2"
    else:
        assert cause in refused(data)


@pytest.mark.parametrize(
    ("entries", "cause"),
    [
        ([entry("a", b"1"), entry("a", b"2")], "the path appears twice"),
        ([entry("a", b"1"), entry("./a", b"2")], "the path appears twice"),
        ([entry("a", type=tarfile.DIRTYPE), entry("a", b"")], "the path appears twice"),
        ([entry("a", b"1"), entry("a/b", b"2")], "a file is used as a directory"),
        ([entry("a", b"1"), entry("a/b/c", b"2")], "a file is used as a directory"),
        ([entry("a", type=tarfile.CHRTYPE)], "only regular files and directories"),
    ],
)
def test_two_entries_agree(entries: list[tuple[tarfile.TarInfo, bytes]], cause: str) -> None:
    assert cause in refused(tar(*entries))


def test_a_folder_holds_files_and_may_come_without_its_parents(tmp_path: Path) -> None:
    data = tar(
        entry("deep/folder", type=tarfile.DIRTYPE),
        entry("deep/folder/a", b"1"),
        entry("other/b", b"2", mode=0o700),
        entry("c", b"3", mode=0o001),
    )
    package.unpack(data, tmp_path / "x")
    assert (tmp_path / "x/deep/folder/a").read_bytes() == b"1"
    modes = [(tmp_path / "x" / name).stat().st_mode & 0o777 for name in ("other/b", "c")]
    assert modes == [0o755, 0o755]
    assert (tmp_path / "x/deep/folder/a").stat().st_mode & 0o777 == 0o644
    assert (tmp_path / "x/deep/folder").is_dir()


def test_a_cut_package_is_refused() -> None:
    whole = tar(entry("a", b"x" * 2000))
    for size in (1000, 1500, 600):
        assert "cannot be used" in refused(whole[:size])
    assert "it is not a readable tar" in refused(b"garbage" * 100)


def test_the_executable_bit_of_anybody_is_kept_and_no_other_mode(tmp_path: Path) -> None:
    folder = tree(tmp_path / "t", a=b"1", b=b"2", c__d=b"3")
    (folder / "a").chmod(0o610)
    (folder / "b").chmod(0o600)
    (folder / "c").chmod(0o700)
    with tarfile.open(fileobj=io.BytesIO(package.pack(folder))) as archive:
        found = {member.name: (member.mode, member.mtime, member.uid) for member in archive}
    assert found == {
        "a": (0o755, 0, 0),
        "b": (0o644, 0, 0),
        "c": (0o755, 0, 0),
        "c/d": (0o644, 0, 0),
    }
