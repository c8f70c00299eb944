"""Documents show commands that exist, with the options that exist, and make targets that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer import main
from typer.exceptions import TyperException

from tests.docs.blocks import PAGES, ROOT, block_commands, inline_commands
from tools.cli import build


def refusal(words: list[str]) -> str | None:
    """Why the command line would not be understood; nothing of it is run."""
    command: Any = main.get_command(build(words))
    rest = list(words)
    while commands := getattr(command, "commands", None):
        name = rest.pop(0) if rest else ""
        if name not in commands:
            return f"no such command: {name}"
        command = commands[name]
    try:
        command.make_context(words[0], rest)
    except TyperException as error:
        return error.format_message()
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_a_document_shows_is_understood(page: Path) -> None:
    whole = [words for words in block_commands(page) if words[0] == "practicum"]
    for words in whole:
        assert refusal(words[1:]) is None, " ".join(words)
    for words in inline_commands(page):  # these may leave out what the sentence says
        cause = refusal(words[1:])
        assert cause is None or cause.startswith("Missing "), " ".join(words)


def test_every_make_target_that_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        named = set(re.findall(r"`make ([a-z-]+)", page.read_text()))
        named |= {words[1] for words in block_commands(page) if words[0] == "make"}
        assert named <= targets, page.name
