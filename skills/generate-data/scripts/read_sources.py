"""Which source files hold what their names promise, and which only wrap something else?

    read_sources.py FOLDER [--min-words 60] [--suffix .mdx …]

A page may be long and say nothing: imports, component tags, links, and content that is loaded from
elsewhere. What is left after taking those away is counted in words. Writes one JSON object;
exits 1 if a file is only a wrapper. Needs Python alone.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

SUFFIXES = (".md", ".mdx", ".rst", ".txt", ".html", ".adoc")
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_IMPORT = re.compile(r"^\s*(?:import|export)\s.*$", re.MULTILINE)
_TAG = re.compile(r"<!--.*?-->|</?[A-Za-z][^<>]*>|\{[^{}\n]*\}", re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\([^)]*\)|https?://\S+")
_DIRECTIVE = re.compile(r"^\s*(?:\.\. \S+::.*|\{%.*%\}|include::.*)$", re.MULTILINE)
_WORD = re.compile(r"[^\W\d_]{2,}")
_LOADS = (
    re.compile(r"^\s*import\s.*?from\s+['\"]([^'\"]+\.(?:mdx?|json|ya?ml|txt|html))['\"]", re.M),
    re.compile(
        r"<(?:Include|Snippet|Import|Embed|iframe|Content)\b[^>]*?(?:src|file|path)=['\"]([^'\"]+)"
    ),
    re.compile(r"^\s*\.\. (?:literal)?include:: *(\S+)", re.M),
    re.compile(r"^\s*include::([^\[\s]+)", re.M),
    re.compile(r"\{% *include *['\"]?([^'\"%\s]+)"),
    re.compile(r"\{\{ *#include +([^}\s]+)"),
)


def words_of_its_own(text: str) -> int:
    """Words that are left without imports, tags, links and directives."""
    for pattern in (_FRONT, _IMPORT, _DIRECTIVE, _LINK, _TAG):
        text = pattern.sub(" ", text)
    return len(_WORD.findall(text))


def loaded(text: str) -> list[str]:
    """What the file takes from elsewhere: its words are there, not here."""
    return sorted({found for pattern in _LOADS for found in pattern.findall(text)})


def read(folder: Path, suffixes: tuple[str, ...], least: int) -> list[dict[str, Any]]:
    """One record per file, those with the fewest words first."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in suffixes or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        words = words_of_its_own(text)
        record = {
            "file": path.relative_to(folder).as_posix(),
            "words": words,
            "characters": len(text),
            "wrapper": words < least,
            "loads": loaded(text),
        }
        found.append(record)
    return sorted(found, key=lambda record: record["words"])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Find source files that only wrap something else.")
    made.add_argument("folder", type=Path)
    made.add_argument("--min-words", type=int, default=60)
    made.add_argument("--suffix", action="append", help=f"instead of {' '.join(SUFFIXES)}")
    return made


def main() -> int:
    given = parser().parse_args()
    files = read(given.folder, tuple(given.suffix or SUFFIXES), given.min_words)
    wrappers = [record for record in files if record["wrapper"]]
    loading = [record for record in files if record["loads"] and not record["wrapper"]]
    summary = {"files": len(files), "wrappers": wrappers, "usable_but_loading": loading}
    print(json.dumps(summary, indent=1))
    return 1 if wrappers or not files else 0


if __name__ == "__main__":
    sys.exit(main())
