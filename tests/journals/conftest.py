"""A journal to write in."""

from pathlib import Path

import pytest

from journals import Journal


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "j", title="A journal", author="tester")
