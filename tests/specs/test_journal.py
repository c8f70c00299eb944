"""Journal entries: what a link names, and what an entry may hold."""

from typing import Any

import pytest
from pydantic import ValidationError

from specs.ids import Prefix, new_id
from specs.journal import ID_PREFIXES, MAX_LINKS, MAX_TEXT, JournalDraft, JournalPage, Link

DRAFT: dict[str, Any] = {"kind": "note", "author": "ada", "text": "seen"}


@pytest.mark.parametrize("kind", ID_PREFIXES)
def test_a_record_is_named_by_a_whole_id_of_its_kind(kind: str) -> None:
    digits = new_id(Prefix.RUN)[4:]
    right = f"{ID_PREFIXES[kind]}_{digits}"
    assert Link.model_validate({"type": kind, "id": right}).id == right
    for wrong in (f"smp_{digits}", right[:-1], right + "0", "", digits):
        with pytest.raises(ValidationError):
            Link.model_validate({"type": kind, "id": wrong})


def test_what_is_no_record_is_named_freely() -> None:
    for kind in ("file", "skill", "model-spec", "dataset"):
        assert Link.model_validate({"type": kind, "id": "x" * 512}).digest is None
        for wrong in ("", "x" * 513):
            with pytest.raises(ValidationError):
                Link.model_validate({"type": kind, "id": wrong})


def test_an_entry_holds_what_it_may_and_no_more() -> None:
    link = {"type": "file", "id": "/a"}
    largest = {"text": "x" * MAX_TEXT, "links": [link] * MAX_LINKS, "author": "a" * 100}
    assert JournalDraft.model_validate(DRAFT | largest).data == {}
    for wrong in (
        {"text": "x" * (MAX_TEXT + 1)},
        {"text": " \n\t"},
        {"links": [link] * (MAX_LINKS + 1)},
        {"author": "a" * 101},
        {"author": ""},
        {"author": "a\nb"},
        {"kind": "thought"},
        {"mood": "good"},
    ):
        with pytest.raises(ValidationError):
            JournalDraft.model_validate(DRAFT | wrong)


@pytest.mark.parametrize(("problems", "ok"), [([], True), ([{"byte": 0, "cause": "x"}], False)])
def test_a_page_with_damaged_lines_is_not_in_order(
    problems: list[dict[str, Any]], ok: bool
) -> None:
    info = {"journal": "j", "folder": "/j", "title": "t", "created_at": "x", "entries": 0}
    page = JournalPage.model_validate({"journal": info, "items": [], "problems": problems})
    assert page.ok is ok
    assert (page.next, page.changed, page.journal.last_at) == (None, [], None)
