"""What skills and agents tell a model to call, as a reader would find it.

A call is written `run_show {"run": "RUN"}`: the tool and its arguments as JSON, in backticks or one
after another in a block ```tool. Words in capitals stand for ids. Commands stand in blocks ```sh.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "plugins" / "claude"
SKILLS = sorted(ROOT.glob("skills/*/SKILL.md"))
AGENTS = sorted(PLUGIN.glob("agents/*.md"))
PAGES = [*SKILLS, *AGENTS]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([a-z]+(?:_[a-z]+)+) (\{[^`]*\})`")
_EITHER = re.compile(f"{_BLOCK.pattern}|{_INLINE.pattern}", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+)[` ]")


@dataclass(frozen=True)
class Call:
    """A tool and its arguments."""

    tool: str
    arguments: dict[str, Any]


def front(page: Path) -> dict[str, str]:
    """The fields at the head of a page: YAML, and so plain that every reader takes it alike."""
    head = page.read_text().split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())
    for value in fields.values():
        assert ": " not in value and " #" not in value, value
        assert value[0].isalnum() or (value[0], value[-1]) == ('"', '"'), value
    return fields


def blocks(page: Path, language: str) -> list[str]:
    """Texts of the blocks in one language."""
    return [text for found, text in _BLOCK.findall(page.read_text()) if found == language]


def calls(page: Path) -> list[Call]:
    """Every call that is written with its arguments, from the top of the page to its end."""
    found: list[Call] = []
    for language, block, tool, arguments in _EITHER.findall(page.read_text()):
        if language == "tool":
            found += _in_block(block)
        elif tool:
            found.append(Call(tool, json.loads(arguments)))
    return found


def named(page: Path, nouns: set[str]) -> set[str]:
    """Every word in backticks that looks like a tool: a noun, `_`, and more."""
    words = set(_NAME.findall(page.read_text()))
    return {word for word in words if any(word.startswith(f"{noun}_") for noun in nouns)}


def _in_block(text: str) -> list[Call]:
    found: list[Call] = []
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        tool, _, after = rest.partition(" ")
        arguments, end = decoder.raw_decode(after)
        found.append(Call(tool, arguments))
        rest = after[end:].strip()
    return found
