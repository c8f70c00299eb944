"""A cursor is a position that a page gave; whatever else is there is refused by its own text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs import cursors
from specs.errors import ErrorCode, ErrorObject, InvalidInput


@given(st.integers(min_value=0, max_value=10**18 - 1))
def test_a_position_is_read_as_it_was_written(place: int) -> None:
    assert cursors.position(str(place)) == cursors.start(str(place)) == place


def test_no_cursor_is_the_beginning() -> None:
    assert cursors.start(None) == 0


@pytest.mark.parametrize("text", ["1" * 19, "9" * 5000, "-1", "1.5", "２", "", "x", " 1", "1_0"])
def test_what_no_page_gives_is_no_position(text: str) -> None:
    assert cursors.position(text) is None
    with pytest.raises(InvalidInput) as refused:
        cursors.start(text)
    problem = refused.value.problem
    assert problem.code is ErrorCode.INVALID_DOCUMENT
    assert problem.detail == f"{text!r} is not a cursor of this list."
    assert problem.object == ErrorObject(type="arguments", pointer="/cursor")
    assert problem.next == "Use `next` of the page before, or leave the cursor out."


def test_a_refusal_says_whose_pages_did_not_give_it() -> None:
    assert cursors.foreign("7", "journal").problem.detail == "'7' is not a cursor of this journal."
    assert cursors.foreign(None, "journal").problem.detail == "'' is not a cursor of this journal."
