"""What leaves a trial's folder: regular files, bounded; a link is never followed."""

import os
from pathlib import Path

from runtime.execution import collect
from runtime.execution.collect import collect_file, collect_tree, read_log


def test_files_come_with_relative_paths(tmp_path: Path) -> None:
    (tmp_path / "logs" / "artifacts").mkdir(parents=True)
    (tmp_path / "logs" / "artifacts" / "b.txt").write_text("b")
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "manifest.json").write_text("[]")
    found = collect_tree(tmp_path, skip=frozenset({"manifest.json"}))
    assert [(f.path, f.data) for f in found] == [("a.txt", b"a"), ("logs/artifacts/b.txt", b"b")]


def test_links_pipes_and_devices_are_left_out(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("key")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "shadow").symlink_to("/etc/shadow")
    (tree / "up").symlink_to("../secret/key")
    (tree / "folder").symlink_to(secret)
    os.mkfifo(tree / "pipe")
    assert collect_tree(tree) == []
    (tmp_path / "root").symlink_to(secret)
    assert collect_tree(tmp_path / "root") == []
    assert collect_file(tree / "up") is None
    assert collect_file(tree / "pipe") is None
    assert read_log(tree / "up") == ""
    assert read_log(tree / "pipe") == ""


def test_a_file_longer_than_the_bound_is_cut_and_says_so(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 33)
    (found,) = collect_tree(tmp_path)
    assert (len(found.data), found.truncated) == (collect.MAX_ARTIFACT_BYTES, True)
    exact = collect_file(tmp_path / "large", limit=10)
    assert exact is not None
    assert (len(exact.data), exact.truncated) == (10, True)


def test_number_and_depth_are_bounded(tmp_path: Path) -> None:
    deep = tmp_path
    for _ in range(collect.MAX_DEPTH + 5):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "too-deep").write_text("x")
    for index in range(collect.MAX_ARTIFACTS + 10):
        (tmp_path / f"f{index:04}").write_text("x")
    found = collect_tree(tmp_path)
    assert len(found) == collect.MAX_ARTIFACTS
    assert not any("too-deep" in item.path for item in found)


def test_a_log_keeps_beginning_and_end_as_clean_text(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\x00\xff" + b"." * 200_000 + b"last")
    text = read_log(log)
    assert text.startswith("first\ufffd\ufffd")
    assert text.endswith("last")
    assert "bytes left out" in text
    assert len(text) <= 65_536


def test_a_log_does_not_show_the_credential(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("key=eyJabc end")
    assert read_log(tmp_path / "log", {"eyJabc": "[model.token]"}) == "key=[model.token] end"


def test_names_that_are_no_text_become_text(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.txt")).write_text("x")
    (found,) = collect_tree(tmp_path)
    found.path.encode("utf-8")
