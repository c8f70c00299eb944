"""The shell commands that the documents show, as a reader would copy them."""

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "AGENTS.md", *ROOT.glob("docs/*.md"), *ROOT.glob("skills/*/*.md")]
)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELLS = ("", "sh", "bash", "console")
_INLINE = re.compile(r"`(practicum [^`\n]+)`")


def block_commands(page: Path) -> list[list[str]]:
    """Words of each command in a page's shell blocks, comments and line joints resolved."""
    found: list[list[str]] = []
    for language, block in _BLOCK.findall(page.read_text()):
        if language not in _SHELLS:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                found.append(words)
    return found


def inline_commands(page: Path) -> list[list[str]]:
    """Words of each `practicum` command that stands in a sentence."""
    return [shlex.split(text) for text in _INLINE.findall(page.read_text())]
