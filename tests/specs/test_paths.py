"""Paths of people: what is wrong with one is a refusal that names it."""

from pathlib import Path

import pytest

from specs.errors import ErrorCode, InvalidInput
from specs.paths import resolved, user_path


@pytest.mark.parametrize("text", ["~no-such-user/x", "a" * 256, "a/" + "ä" * 128, "a/" * 2500])
def test_a_path_that_no_file_can_have_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        user_path(text)
    assert refused.value.problem.code is ErrorCode.INVALID_REFERENCE


def test_the_home_of_a_user_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/here")
    assert user_path("~/x y/ü") == Path("/here/x y/ü")
    assert user_path("a" * 255) == Path("a" * 255)


def test_a_loop_of_links_is_no_defect(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert resolved(tmp_path / "loop") == resolved(tmp_path) / "loop"
    (tmp_path / "link").symlink_to(tmp_path)
    assert resolved(tmp_path / "link" / "x") == resolved(tmp_path) / "x"
