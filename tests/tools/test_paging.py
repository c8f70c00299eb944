"""Cursors that a page did not give are refused, whatever they are."""

import pytest

from specs.errors import InvalidInput
from tools.excerpts import excerpt
from tools.paging import cut


@pytest.mark.parametrize("cursor", ["9" * 5000, "-1", "1.5", "２", "", "x"])
def test_a_cursor_that_is_no_position_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        cut([1, 2, 3], 2, cursor)
    with pytest.raises(InvalidInput):
        excerpt("a", b"abc", 2, cursor)


def test_pages_follow_one_another() -> None:
    assert cut([1, 2, 3], 2, None) == ([1, 2], "2")
    assert cut([1, 2, 3], 2, "2") == ([3], None)
