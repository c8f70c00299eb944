"""What a new session should know at its start: open runs and the journal's last entries.

It reads what answers at once and starts nothing. Every line costs tokens in every session, so there
are few of them and they are cut.
"""

from pathlib import Path
from typing import Final

from journals import Journal
from runtime.home import Home
from specs.errors import PracticumError
from specs.journal import JournalEntry
from specs.run import Run, RunState
from tools.context import Context

RUNS: Final = 2
ENTRIES: Final = 3
CHARACTERS: Final = 100
"""Of a name, a reason or an entry."""
LOOKED_THROUGH: Final = 50
"""Newest runs among which the open ones are sought."""


async def overview(context: Context, folder: Path) -> str:
    """Open runs, and the newest journal of the home or of a folder; on cancel nothing is told."""
    return "\n".join([*await _runs(context), *_journal(context.home, folder)])


async def _runs(context: Context) -> list[str]:
    home = context.home
    try:
        if context.remote is None and not home.gateway_socket.exists():
            return [f"Practicum: no stack runs in {home.root}; the first call starts it."]
        async with context.client(patience=0) as gateway:
            page = await gateway.runs(limit=LOOKED_THROUGH)
    except PracticumError as error:
        return [f"Practicum: the gateway does not answer: {_cut(str(error))}"]
    opened = [run for run in page.items if not run.state.terminal]
    if not opened:
        return ["Practicum: no open runs."]
    more = "" if len(opened) <= RUNS else f", the newest {RUNS}"
    return [f"Practicum: {len(opened)} open runs{more}:", *map(_run, opened[:RUNS])]


def _run(run: Run) -> str:
    about = f"- {run.id} {run.kind} {run.state}, {_cut(run.dataset or 'rows of a file')}"
    blocked = run.state is RunState.BLOCKED and run.reason is not None
    return f"{about}: {_cut(run.reason.detail)}" if blocked and run.reason else about


def _journal(home: Home, folder: Path) -> list[str]:
    """The last entries of the journal that was written to last; a damaged one is named."""
    files = [*home.journals.glob("*/journal.jsonl"), folder / "journal" / "journal.jsonl"]
    found = [file for file in files if file.is_file()]
    if not found:
        return []
    newest = max(found, key=lambda file: file.stat().st_mtime_ns).parent
    name = newest.name if newest.parent == home.journals else "./journal"
    try:
        entries = Journal(newest).page(limit=ENTRIES).entries
    except PracticumError as error:
        return [f"Journal {name}: {_cut(str(error))}"]
    return [f"Journal {name} ends (journal_show has more):", *map(_entry, entries)]


def _entry(entry: JournalEntry) -> str:
    return f"- {entry.seq} {entry.kind}: {_cut(' '.join(entry.text.split()))}"


def _cut(text: str) -> str:
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 1]}…"
