"""Held-out tasks are found by their instruction and by their answer, and by nothing less."""

from pathlib import Path

import pytest

from runtime.specialist.leaks import HeldOutTask, answered, read_held_out, told
from specs.errors import InvalidInput

SOLUTION = "#!/bin/bash\nset -e\ncd /app\n# look first\ncat memo.txt\nrm old.log\nexit 0\n"
TASK = HeldOutTask.of("one", "Remove the file that the memo names.\n", SOLUTION)


def test_only_commands_that_do_something_are_an_answer() -> None:
    assert TASK.answer == {"cat memo.txt", "rm old.log"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("remove  the file\nthat the memo NAMES.", True),
        ("First: Remove the file that the memo names. Then rest.", True),
        ("Remove the file that a memo names.", False),
    ],
)
def test_an_instruction_is_found_in_a_text(text: str, found: bool) -> None:
    assert list(told(text, [TASK])) == ([TASK] if found else [])


def test_a_short_instruction_counts_as_a_whole_only() -> None:
    short = HeldOutTask.of("short", "List it.", None)
    assert list(told(" list it. ", [short])) == [short]
    assert list(told("Please list it. Then go.", [short])) == []


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["RM  old.log", "cat memo.txt", "ls"], True),
        (["cat memo.txt"], False),
        (["rm old.log; cat memo.txt"], False),
    ],
)
def test_an_answer_is_found_where_all_of_it_is(lines: list[str], found: bool) -> None:
    assert list(answered(lines, [TASK])) == ([TASK] if found else [])


def test_an_answer_that_says_too_little_is_not_looked_for() -> None:
    assert HeldOutTask.of("x", "Do.", "ls -la\n").answer == frozenset()
    assert list(answered(["ls -la"], [HeldOutTask.of("x", "Do.", "ls -la\n")])) == []


def test_tasks_are_read_from_their_folders(tmp_path: Path) -> None:
    (tmp_path / "one" / "solution").mkdir(parents=True)
    (tmp_path / "one" / "instruction.md").write_text("Remove the file that the memo names.\n")
    (tmp_path / "one" / "solution" / "solve.sh").write_text(SOLUTION)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "instruction.md").write_text("Say hello to all.\n")
    first, second = read_held_out([tmp_path / "one", tmp_path / "two"])
    assert first == TASK
    assert second.answer == frozenset()
    with pytest.raises(InvalidInput, match=r"three.*cannot be used"):
        read_held_out([tmp_path / "three"])
