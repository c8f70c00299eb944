"""Threads: flag, then environment, then default."""

import pytest

from runtime.compute.threads import Threads
from specs.errors import InvalidInput


def test_a_flag_beats_the_environment_and_that_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Threads.choose().sample == 1
    assert 1 <= Threads.choose().train <= 4
    monkeypatch.setenv("PRACTICUM_SAMPLE_THREADS", "3")
    monkeypatch.setenv("PRACTICUM_TRAIN_THREADS", "5")
    assert Threads.choose() == Threads(3, 5)
    assert Threads.choose(2) == Threads(2, 2)


@pytest.mark.parametrize("text", ["0", "-1", "two", ""])
def test_a_bad_setting_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("PRACTICUM_SAMPLE_THREADS", text)
    with pytest.raises(InvalidInput, match="PRACTICUM_SAMPLE_THREADS"):
        Threads.choose()
