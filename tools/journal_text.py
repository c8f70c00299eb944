"""Journals as text: entries, and the commands that show what they link to."""

import json
from typing import Final

from journals.rendering import link_text
from specs.journal import JournalEntry, JournalExport, JournalInfo, JournalList, JournalPage, Link
from tools.tables import pairs, table

_LOOK: Final = {
    "run": "practicum run show {id}",
    "trial": "practicum run transcript {run} {id}",
    "checkpoint": "practicum checkpoint show {id}",
    "construction": "practicum construction show {id}",
    "model-spec": "practicum model-spec show {id}",
    "dataset": "practicum dataset show {id}",
    "entry": "practicum journal show {journal} --entry {id}",
}


def look(link: Link, entry: JournalEntry, journal: str) -> str | None:
    """The command that shows what an entry of `journal` links to; None for what is opened as a
    file is. The run of a trial is the one that the entry links to as well."""
    command = _LOOK.get(link.type)
    if command is None or (link.type == "model-spec" and link.digest is None):
        return None
    run = next((other.id for other in entry.links if other.type == "run"), "RUN")
    return command.format(id=link.id, run=run, journal=journal)


def info_text(info: JournalInfo) -> str:
    """A journal in labelled lines."""
    return pairs(info.model_dump())


def list_text(listed: JournalList) -> str:
    """Journals as a table, and what is wrong with those that are not in it."""
    head = ("journal", "entries", "last", "title")
    shown = table(head, [(i.journal, i.entries, i.last_at, i.title) for i in listed.items])
    return "\n".join([shown, *listed.unreadable])


def entry_text(entry: JournalEntry, journal: str | None = None) -> str:
    """An entry in lines: what it is, its text, data and links, with commands where the journal is
    named."""
    lines = [f"#{entry.seq} {entry.kind}  {entry.at[:19]}Z  {entry.author}  {entry.id}"]
    lines += [f"  {line}" for line in entry.text.strip().splitlines()]
    if entry.data:
        lines.append(f"  {json.dumps(entry.data, ensure_ascii=False)}")
    for link in entry.links:
        command = None if journal is None else look(link, entry, journal)
        lines.append(f"  -> {link_text(link)}" + ("" if command is None else f"   {command}"))
    return "\n".join(lines)


def page_text(page: JournalPage) -> str:
    """A page: what is damaged or has changed, the entries, and where to go on."""
    info = page.journal
    parts = [f"{info.title} ({info.journal}, {info.entries} entries)"]
    parts += [f"damaged at byte {problem.byte}: {problem.cause}" for problem in page.problems]
    parts += [f"not as it was linked: {link_text(link)}" for link in page.changed]
    parts += [entry_text(entry, info.journal) for entry in page.items] or ["(none)"]
    if page.next is not None:
        parts.append(f"more: --cursor {page.next}")
    return "\n\n".join(parts)


def export_text(export: JournalExport) -> str:
    """The file and its digest."""
    return f"{export.file}  {export.digest}"
