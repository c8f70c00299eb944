"""A folder of tasks is read as it is, and the error names the file that is wrong."""

from pathlib import Path

import pytest

from specs.canonical import digest_bytes
from specs.errors import ErrorCode, InvalidInput
from tools.task_folders import read_task, task_folders

TOML = '[task]\nname = "acme/one"\n\n[metadata]\nfamily = "copy"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    task = tmp_path / "one"
    (task / "tests").mkdir(parents=True)
    (task / "task.toml").write_text(TOML)
    (task / "instruction.md").write_text("Copy it.\n")
    (task / "tests" / "test.sh").write_text("echo 1\n")
    return tmp_path


def test_a_task_has_its_name_metadata_and_package(root: Path) -> None:
    [folder] = task_folders(str(root))
    task = read_task(folder)
    assert (task.entry.name, task.entry.metadata) == ("acme/one", {"family": "copy"})
    assert task.entry.digest == digest_bytes(task.package)
    assert read_task(folder) == task


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("task.toml", "[task", "not valid TOML"),
        ("task.toml", "[task]\n", "[task] name is missing"),
        ("task.toml", '[task]\nname = "No Name"\n', "/name"),
        ("task.toml", TOML + "at = 2024-01-01\n", "not JSON"),
        ("task.toml", TOML + "x = nan\n", "not JSON"),
        ("instruction.md", None, "no such regular file"),
    ],
)
def test_a_bad_task_names_its_file(root: Path, file: str, content: str | None, says: str) -> None:
    path = root / "one" / file
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidInput) as caught:
        read_task(root / "one")
    problem = caught.value.problem
    assert problem.code is ErrorCode.INVALID_PACKAGE
    assert problem.object is not None
    assert problem.object.id == str(path)
    assert says in problem.detail


def test_a_link_in_a_task_is_refused(root: Path) -> None:
    (root / "one" / "escape").symlink_to("/etc/passwd")
    with pytest.raises(InvalidInput) as caught:
        read_task(root / "one")
    assert caught.value.problem.code is ErrorCode.INVALID_PACKAGE
    assert "escape" in caught.value.problem.detail


def test_a_linked_task_folder_is_refused(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (root / "two").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    with pytest.raises(InvalidInput, match="symbolic link"):
        task_folders(str(root))


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="holds no task"):
        task_folders(str(tmp_path))
    with pytest.raises(InvalidInput, match="not a folder"):
        task_folders(str(tmp_path / "absent"))
    (tmp_path / "notes").mkdir()
    with pytest.raises(InvalidInput, match=r"no task\.toml"):
        task_folders(str(tmp_path))
