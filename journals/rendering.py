"""journal.md: the lines as a page to read, oldest first.

Its first line says up to which byte of journal.jsonl it was made, so that whoever comes next sees
whether it lags. Texts stand in quotations: a heading or an open code fence of one entry cannot
swallow the next. The file is written aside and renamed; a writer that dies leaves the old one.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from journals import files, lines
from journals.reading import Snapshot, snapshot
from specs.journal import JournalEntry, JournalHeader, Link

PAGE: Final = "journal.md"
_ASIDE: Final = ".journal.md.part"
_MARK: Final = re.compile(r"<!-- journal\.jsonl through byte (\d+) -->")

_SHARE: Final = 8
_SHORT_DATA: Final = 100


def render(path: Path, *, promptly: int | None = None) -> bool:
    """Bring the page of the journal at `path` up to date; False where it was left as it is.

    With `promptly` that is done for a journal of so many bytes or fewer; the page of a longer one
    is made again once an eighth of the lines is new, so that the work of many appends stays
    linear, and one that another process is making is left to it.

    Raises:
        OSError: the folder cannot be written.
    """
    page = path.with_name(PAGE)
    wait = promptly is None
    with files.folder_lock(path.parent, wait=wait) as mine, snapshot(path) as lines_now:
        behind = lines_now.end - rendered(page)
        due = wait or lines_now.end <= promptly or behind * _SHARE >= lines_now.end
        if not mine or behind == 0 or not due:
            return False
        aside = page.with_name(_ASIDE)
        with aside.open("w", encoding="utf-8") as file:
            file.writelines(markdown(lines_now))
        aside.replace(page)
        return True


def rendered(page: Path) -> int:
    """Bytes of journal.jsonl that a page shows; 0 where it is absent or not ours."""
    try:
        with page.open("rb") as file:
            first = file.readline(100)
    except FileNotFoundError:
        return 0
    mark = _MARK.match(first.decode("utf-8", "replace"))
    return int(mark[1]) if mark else 0


def markdown(journal: Snapshot) -> Iterator[str]:
    """The page, in pieces."""
    yield f"<!-- journal.jsonl through byte {journal.end} -->\n"
    yield from _opening(journal.header)
    for line in journal.forwards():
        if line.place < journal.start:
            continue
        try:
            yield from section(lines.entry(line.data))
        except lines.BadLine as error:
            yield f"\n## damaged line at byte {line.place}\n\n{error}\n"


def section(entry: JournalEntry) -> Iterator[str]:
    """One entry."""
    moment = entry.at[:19].replace("T", " ")
    yield f"\n## {entry.seq} · {entry.kind} · {moment} · {entry.author}\n\n"
    yield "".join(f"> {line}".rstrip() + "\n" for line in entry.text.strip().splitlines())
    if entry.links:
        yield "\n" + "".join(f"- {link_text(link)}\n" for link in entry.links)
    if entry.data:
        body = json.dumps(entry.data, ensure_ascii=False)
        if len(body) > _SHORT_DATA:
            body = json.dumps(entry.data, indent=2, ensure_ascii=False)
        yield "\n" + "".join(f"    {line}\n" for line in body.split("\n"))
    yield f"\n`{entry.id}`\n"


def link_text(link: Link) -> str:
    """A link as it is written on the command line, and its digest."""
    return f"{link.type}:{link.id}" + ("" if link.digest is None else f" ({link.digest})")


def _opening(header: JournalHeader) -> Iterable[str]:
    return (
        f"# {header.title}\n\n",
        f"Begun {header.at[:19].replace('T', ' ')} UTC by {header.author}. Made from journal.jsonl;"
        " what is written here is lost. `practicum journal append` adds to it.\n",
    )
