"""Journals: local records, which need no stack. `journals` says what makes them safe."""

from contextlib import suppress
from typing import Annotated, Literal

import anyio.to_thread
from pydantic import Field, JsonValue

from journals import Filter, Journal
from journals.links import changed, parse
from journals.searching import Found, words_of
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput, PracticumError
from specs.journal import (
    EntryKind,
    JournalDraft,
    JournalEntry,
    JournalExport,
    JournalInfo,
    JournalList,
    JournalPage,
)
from specs.paths import user_path
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit
from tools.journal_inputs import data_of, is_name, moment, place, text_of, user
from tools.journal_text import entry_text, export_text, info_text, list_text, page_text
from tools.registry import READ_LOCAL, Traits, operation

APPENDING = 128 << 10
READING = 2 << 20
"""Bytes of a journal whose page is made again at each append, and whenever it is shown."""

JournalRef = Annotated[
    str, Field(description="Journal name, or path of its folder"), Cli(positional=True)
]
AuthorField = Annotated[str | None, Field(description="Who writes; else the user's name")]


class New(Input):
    journal: JournalRef
    title: Annotated[str | None, Field(description="Title; else the name")] = None
    author: AuthorField = None


class ListJournals(Input):
    pass


class Append(Input):
    journal: JournalRef
    text: Annotated[
        str,
        Field(description="What to record, or @FILE"),
        Cli(positional=True, metavar="TEXT|@FILE"),
    ]
    kind: Annotated[EntryKind, Field(description="What it is")] = "note"
    links: Annotated[
        tuple[str, ...],
        Field(description="type:id, file:PATH, skill:FOLDER or entry:jrn_…"),
        Cli(option="--link", metavar="TYPE:ID"),
    ] = ()
    data: Annotated[
        dict[str, JsonValue] | str | None,
        Field(description="Numbers and facts as a JSON object"),
        Cli(metavar="JSON|@FILE"),
    ] = None
    author: AuthorField = None


class Show(Input):
    journal: JournalRef
    entry: Annotated[str | None, Field(description="This entry alone: id or number")] = None
    open: Annotated[bool, Field(description="Hypotheses that nothing has answered yet")] = False
    verify: Annotated[bool, Field(description="Check every line, and these linked files")] = False
    limit: Limit = 10
    cursor: Cursor = None


class Search(Input):
    journal: JournalRef
    text: Annotated[
        str | None, Field(description='Words that all occur; "quoted words" stand together')
    ] = None
    kind: Annotated[tuple[EntryKind, ...], Field(description="Kinds")] = ()
    link: Annotated[str | None, Field(description="type:id that it links to")] = None
    since: Annotated[str | None, Field(description="ISO time in UTC, or 7d, 12h, 30m ago")] = None
    limit: Limit = 10
    cursor: Cursor = None


class Export(Input):
    journal: JournalRef
    out: Annotated[
        str | None, Field(description="File; else journal-NAME.md here"), Cli(metavar="FILE")
    ] = None
    format: Annotated[Literal["markdown", "jsonl"], Field(description="Form")] = "markdown"


def _info(name: str, journal: Journal) -> JournalInfo:
    header, last = journal.header(), journal.last()
    return JournalInfo(
        journal=name,
        folder=str(journal.folder),
        title=header.title,
        created_at=header.at,
        entries=0 if last is None else last.seq,
        last_at=None if last is None else last.at,
    )


@operation("journal", "new", Traits(local=True), text=info_text)
async def new(context: Context, request: New) -> JournalInfo:
    """Begin a journal in the home, or in a folder of your own. One that exists is refused."""
    folder = place(context.home, request.journal)

    def begin() -> JournalInfo:
        context.home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        title = folder.name if request.title is None else request.title
        journal = Journal.create(folder, title=title, author=user(request.author))
        _refresh(journal, READING)
        return _info(request.journal, journal)

    return await anyio.to_thread.run_sync(begin)


@operation("journal", "list", READ_LOCAL, text=list_text)
async def list_journals(context: Context, _: ListJournals) -> JournalList:
    """List the named journals, the one last written first, and those that cannot be read."""

    def read() -> JournalList:
        found: list[JournalInfo] = []
        unreadable: list[str] = []
        for path in sorted(context.home.journals.glob("*/journal.jsonl")):
            if not is_name(path.parent.name):
                continue  # no command would take it
            try:
                found.append(_info(path.parent.name, Journal(path.parent)))
            except PracticumError as error:
                unreadable.append(error.problem.detail)
        newest = sorted(found, key=lambda i: i.last_at or i.created_at)[::-1]
        return JournalList(items=newest, unreadable=unreadable)

    return await anyio.to_thread.run_sync(read)


@operation("journal", "append", Traits(local=True), text=entry_text)
async def append(context: Context, request: Append) -> JournalEntry:
    """Add an entry; it is on the disk when this returns, and is never changed.

    Link an earlier entry to answer it. On cancel the entry may have been written.
    """
    journal = Journal(place(context.home, request.journal))

    def write() -> JournalEntry:
        draft: dict[str, JsonValue] = {
            "kind": request.kind,
            "author": user(request.author),
            "text": text_of(request.text),
            "links": [parse(link).model_dump(exclude_none=True) for link in request.links],
            "data": data_of(request.data),
        }
        entry = journal.append(canonical.validate(JournalDraft, draft, what="entry"))
        _refresh(journal, APPENDING)
        return entry

    return await anyio.to_thread.run_sync(write)


@operation("journal", "show", READ_LOCAL, text=page_text)
async def show(context: Context, request: Show) -> JournalPage:
    """Show a journal's last entries, newest first; `open` asks which hypotheses are unanswered."""
    journal = Journal(place(context.home, request.journal))

    def read() -> JournalPage:
        found = Found()
        if request.entry is not None:
            found.entries = [journal.entry(request.entry)]
        elif request.open:
            found = journal.open_hypotheses(limit=request.limit, cursor=request.cursor)
        else:
            found = journal.page(limit=request.limit, cursor=request.cursor)
        page = _page(request.journal, journal, found)
        if request.verify:
            links = [link for entry in found.entries for link in entry.links if changed(link)]
            page = page.model_copy(update={"problems": journal.verify(), "changed": links})
        _refresh(journal, READING)
        return page

    return await anyio.to_thread.run_sync(read)


@operation("journal", "search", READ_LOCAL, text=page_text)
async def search(context: Context, request: Search) -> JournalPage:
    """Find entries, newest first; every condition given holds. Case does not matter."""
    journal = Journal(place(context.home, request.journal))

    def read() -> JournalPage:
        wanted = Filter(
            words=words_of(request.text or ""),
            kinds=request.kind,
            link=None if request.link is None else parse(request.link, with_digest=False),
            since=None if request.since is None else moment(request.since),
        )
        found = journal.search(wanted, limit=request.limit, cursor=request.cursor)
        return _page(request.journal, journal, found)

    return await anyio.to_thread.run_sync(read)


@operation("journal", "export", Traits(idempotent=True, local=True), text=export_text)
async def export(context: Context, request: Export) -> JournalExport:
    """Write a journal as one file. A damaged one is refused, and every line is checked."""
    journal = Journal(place(context.home, request.journal))
    ending = "md" if request.format == "markdown" else "jsonl"
    name = request.out or f"journal-{journal.folder.name}.{ending}"

    def write() -> JournalExport:
        path = user_path(name).absolute()
        data = journal.export(request.format)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise InvalidInput(
                f"{path} cannot be written: {error.strerror or error}.",
                code=ErrorCode.INVALID_REFERENCE,
                object=ErrorObject(type="file", id=str(path)),
                next="Name another file: --out FILE",
            ) from None
        return JournalExport(
            journal=_info(request.journal, journal),
            file=str(path),
            format=request.format,
            digest=canonical.digest_bytes(data),
        )

    return await anyio.to_thread.run_sync(write)


def _page(name: str, journal: Journal, found: Found) -> JournalPage:
    return JournalPage(
        journal=_info(name, journal),
        items=found.entries,
        next=found.next,
        problems=found.problems,
    )


def _refresh(journal: Journal, promptly: int) -> None:
    """Bring journal.md up to date where that is allowed: the record does not depend on it."""
    with suppress(OSError):
        journal.render(promptly=promptly)
