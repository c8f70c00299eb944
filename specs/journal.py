"""Journals: the research record that another agent or person continues from.

A journal is a folder; `journals` documents its files. An entry says what was seen, supposed,
changed, compared or decided, and links it to the records that it is about. Entries are never
changed: a later one that links to an `entry` answers or corrects it.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, StringConstraints, model_validator

from specs.base import Contract
from specs.ids import ID_PATTERN, Digest, Prefix, is_id

MAX_TEXT = 8_000
"""Characters of an entry; longer material belongs into a file that the entry links to."""
MAX_DATA_BYTES = 4_096
MAX_LINKS = 16

EntryKind = Literal["observation", "hypothesis", "change", "comparison", "decision", "note"]
LinkType = Literal[
    "run",
    "trial",
    "checkpoint",
    "construction",
    "model-spec",
    "dataset",
    "skill",
    "file",
    "entry",
]

ID_PREFIXES: dict[str, str] = {
    "run": Prefix.RUN,
    "trial": Prefix.TRIAL,
    "checkpoint": Prefix.CHECKPOINT,
    "construction": "con",
    "entry": Prefix.JOURNAL_ENTRY,
}
"""Types of link that name a record by its whole id."""

EntryId = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
JournalName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Author = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\r\n]+$")]


class Link(Contract):
    """What an entry is about. A file or a skill has the digest that it had at that moment."""

    type: LinkType
    id: str = Field(min_length=1, max_length=512)
    """Record id, published name, or path."""
    digest: Digest | None = None

    @model_validator(mode="after")
    def _names_a_record(self) -> Self:
        prefix = ID_PREFIXES.get(self.type)
        if prefix is not None and not (is_id(self.id) and self.id.startswith(f"{prefix}_")):
            raise ValueError(f"a {self.type} is named by its whole id, {prefix}_ and 32 hex digits")
        return self


class JournalHeader(Contract):
    """First line of a journal."""

    schema_: Literal["practicum.journal/v1"] = Field(default="practicum.journal/v1", alias="schema")
    at: str
    author: Author
    title: str = Field(min_length=1, max_length=200, pattern=r"^[^\r\n]+$")
    digest: Digest


class JournalDraft(Contract):
    """An entry as its author writes it."""

    kind: EntryKind
    author: Author
    text: str = Field(min_length=1, max_length=MAX_TEXT, pattern=r"\S")
    links: list[Link] = Field(default_factory=list[Link], max_length=MAX_LINKS)
    data: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class JournalEntry(JournalDraft):
    """One line of a journal."""

    id: EntryId
    seq: int = Field(ge=1)
    at: str
    """ISO 8601 in UTC; never earlier than the entry before."""
    previous: Digest
    """Digest of the line before."""
    digest: Digest
    """Of this line without its digest."""


class JournalProblem(Contract):
    """A line that is not what was once written there."""

    byte: int
    """Where the line begins in journal.jsonl."""
    cause: str


class JournalInfo(Contract):
    """A journal and how much it holds."""

    journal: str
    """Name or folder that commands take."""
    folder: str
    title: str
    created_at: str
    entries: int
    last_at: str | None = None


class JournalList(Contract):
    items: list[JournalInfo]
    unreadable: list[str] = Field(default_factory=list[str])
    """What is wrong with each journal that could not be read; the others are listed."""

    @property
    def ok(self) -> bool:
        """The exit code of the command follows."""
        return not self.unreadable


class JournalPage(Contract):
    """Entries, newest first."""

    journal: JournalInfo
    items: list[JournalEntry]
    next: str | None = None
    problems: list[JournalProblem] = Field(default_factory=list[JournalProblem])
    """Damaged lines met on the way."""
    changed: list[Link] = Field(default_factory=list[Link])
    """Linked files and skills no longer in that revision."""

    @property
    def ok(self) -> bool:
        """The exit code of the command follows."""
        return not self.problems


class JournalExport(Contract):
    """A journal written as one file."""

    journal: JournalInfo
    file: str
    format: Literal["markdown", "jsonl"]
    digest: Digest
    """Of the file's bytes."""
