"""Entries for tests."""

from typing import Any

from specs.journal import JournalDraft


def draft(text: str = "seen", **values: Any) -> JournalDraft:
    return JournalDraft.model_validate({"kind": "note", "author": "tester", "text": text} | values)
