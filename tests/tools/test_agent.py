"""What `practicum agent run` tells of a harness that has ended."""

import json
from pathlib import Path

import pytest

from tools.agent import last_words


def ended(folder: Path, text: str) -> str:
    """The last words of a harness that wrote `text`."""
    log = folder / "harness.log"
    log.write_text(text, encoding="utf-8", newline="\n")
    return last_words(log)


def result(text: str) -> str:
    """The line with which Claude Code ends, as it writes it: everything but ASCII as it is."""
    line = {"type": "result", "result": text}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n"


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029"], ids=["next", "line", "paragraph"])
def test_a_result_is_told_whole_whatever_ends_of_lines_it_holds(tmp_path: Path, sign: str) -> None:
    said = f"Made it.{sign}All of it."
    assert ended(tmp_path, '{"type":"system"}\n' + result(said)) == said


def test_half_a_character_of_a_result_is_replaced(tmp_path: Path) -> None:
    line = result("cut HERE").replace("HERE", r"\ud83d")
    assert ended(tmp_path, line) == "cut \ufffd"


def test_without_a_result_the_end_of_the_log_is_told(tmp_path: Path) -> None:
    assert ended(tmp_path, "one\r\ntwo\n") == "one\ntwo"
    assert ended(tmp_path, f"cut\n{result('Made it.')[:-9]}\n").startswith("cut\n{")
    assert ended(tmp_path, "x" * 5000) == "x" * 4000
    assert ended(tmp_path, "") == ""
