"""`practicum claude`: which arguments and settings reach the developer's program."""

import json
from pathlib import Path

import pytest

from specs.errors import InvalidInput
from tools.claude import merged_settings

OURS = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "ANTHROPIC_MODEL": "tiny"}


def test_other_arguments_arrive_in_order_and_untouched() -> None:
    words = ["--resume", "-p", "a b", "--tools", "", "--", "--settings", "x"]
    rest, settings = merged_settings(words, OURS)
    assert rest == words
    assert settings["env"]["ANTHROPIC_MODEL"] == "tiny"
    assert settings["env"]["CLAUDE_CODE_USE_BEDROCK"] == ""


@pytest.mark.parametrize("spelled", ["two words", "one word", "a file"])
def test_given_settings_are_kept_and_routing_goes_on_top(tmp_path: Path, spelled: str) -> None:
    text = json.dumps({"theme": "dark", "env": {"A": "1", "ANTHROPIC_BASE_URL": "elsewhere"}})
    file = tmp_path / "mine.json"
    file.write_text(text)
    words = {
        "two words": ["--settings", text],
        "one word": [f"--settings={text}"],
        "a file": ["--settings", str(file)],
    }[spelled]
    rest, settings = merged_settings([*words, "-c"], OURS)
    assert rest == ["-c"]
    assert settings["theme"] == "dark"
    assert settings["env"]["A"] == "1"
    assert settings["env"]["ANTHROPIC_BASE_URL"] == OURS["ANTHROPIC_BASE_URL"]


def test_settings_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(InvalidInput):
        merged_settings(["--settings", "{"], OURS)
