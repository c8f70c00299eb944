"""Links as people write them: what a text names, in which revision, and whether it still is."""

from pathlib import Path

import pytest

from journals import links
from specs import canonical, package
from specs.errors import ErrorCode, InvalidInput
from specs.journal import Link

RUN = "run_01a22bd3facb777c8f8e5a98a97ce5ae"  # a case's name: the same in every worker


def refused(text: str) -> str:
    with pytest.raises(InvalidInput) as caught:
        links.parse(text)
    problem = caught.value.problem
    assert problem.code is ErrorCode.INVALID_REFERENCE
    assert problem.object is not None
    assert (problem.object.type, problem.object.id) == ("link", text[:512])
    assert problem.detail.startswith(f"{text!r} is not a link: ")
    return problem.detail


def skill(folder: Path) -> Path:
    folder.mkdir()
    (folder / "SKILL.md").write_text("# how")
    return folder


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        (f"run:{RUN}", "run", RUN),
        ("dataset:a/d@v1", "dataset", "a/d@v1"),
        ("model-spec:a/s", "model-spec", "a/s"),
    ],
)
def test_a_record_and_a_published_name_are_named_as_they_are(
    text: str, kind: str, name: str
) -> None:
    link = links.parse(text)
    assert (link.type, link.id, link.digest) == (kind, name, None)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "write it as type:id; the types are run, trial, "),
        ("run", "write it as type:id"),
        ("run:", "write it as type:id"),
        (f"ran:{RUN}", "write it as type:id"),
        (f":{RUN}", "write it as type:id"),
        ("run:run_1", "a run is named by its whole id"),
        (f"trial:{RUN}", "a trial is named by its whole id"),
        ("dataset:a/d", "a dataset is named as org/name@version"),
        ("dataset:d@v1", "a dataset is named as org/name@version"),
        ("model-spec:s", "it is neither a file that is there nor org/name"),
        ("model-spec:a/s@v1", "it is neither a file that is there nor org/name"),
        ("file:/no/such/file", "/no/such/file: No such file or directory"),
        ("skill:/no/such/folder", "/no/such/folder holds no SKILL.md"),
        ("run:" + "x" * 600, "is not a link"),
    ],
)
def test_what_names_nothing_is_refused_by_what_is_wrong_with_it(text: str, cause: str) -> None:
    assert cause in refused(text)


def test_a_file_is_named_by_its_absolute_path_and_has_a_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a:b.txt").write_text("seen")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for text in ("file:a:b.txt", "file:~/a:b.txt", f"file:{tmp_path}/a:b.txt"):
        link = links.parse(text)
        assert (link.type, link.id) == ("file", f"{tmp_path}/a:b.txt")
        assert link.digest == canonical.digest_bytes(b"seen")
    assert "directory" in refused("file:.")


def test_a_filter_names_every_revision_and_reads_nothing() -> None:
    link = links.parse("file:/no/such/file", with_digest=False)
    assert (link.id, link.digest) == ("/no/such/file", None)
    assert links.parse("skill:/no/such/folder", with_digest=False).digest is None


def test_a_skill_is_its_folder_by_either_name(tmp_path: Path) -> None:
    folder = skill(tmp_path / "s")
    digest = canonical.digest_bytes(package.pack(folder))
    for text in (f"skill:{folder}", f"skill:{folder}/SKILL.md"):
        link = links.parse(text)
        assert (link.type, link.id, link.digest) == ("skill", str(folder), digest)
    named = links.parse(f"file:{folder}/SKILL.md")
    assert (named.id, named.digest) == (f"{folder}/SKILL.md", canonical.digest_bytes(b"# how"))


def test_a_skill_that_cannot_be_packed_is_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path / "s")
    (folder / "link").symlink_to("/etc/passwd")
    assert "only regular files and directories are allowed" in refused(f"skill:{folder}")


def test_a_model_specification_is_a_file_or_a_name(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("{}")
    link = links.parse(f"model-spec:{path}")
    assert (link.type, link.id) == ("model-spec", str(path))
    assert link.digest == canonical.digest_bytes(b"{}")
    assert links.parse("model-spec:a/s").digest is None


def test_a_linked_file_or_skill_has_changed_when_it_has_other_bytes_or_is_gone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt"
    folder = skill(tmp_path / "s")
    spec = tmp_path / "spec.json"
    for path in (file, spec):
        path.write_text("one")
    found = [links.parse(f"file:{file}"), links.parse(f"skill:{folder}")]
    found.append(links.parse(f"model-spec:{spec}"))
    assert [links.changed(link) for link in found] == [False] * 3
    for path in (file, folder / "SKILL.md", spec):
        path.write_text("two")
    assert [links.changed(link) for link in found] == [True] * 3
    for path in (file, folder / "SKILL.md", spec):
        path.unlink()
    assert [links.changed(link) for link in found] == [True] * 3


def test_what_has_no_revision_or_no_bytes_here_never_changed() -> None:
    digest = canonical.digest_bytes(b"x")
    for link in (
        Link(type="file", id="/no/such/file"),
        Link(type="run", id=RUN, digest=digest),
        Link(type="dataset", id="a/d@v1", digest=digest),
    ):
        assert not links.changed(link)
    assert links.changed(Link(type="file", id="/no/such/file", digest=digest))
