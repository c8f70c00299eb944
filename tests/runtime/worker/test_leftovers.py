"""Invariant 12: what a dead worker left is gone before anything new begins."""

import os
from pathlib import Path

import pytest

from runtime.execution.workplace import Places
from runtime.home import Home
from runtime.worker import __main__ as entry
from runtime.worker import leftovers
from runtime.worker.leftovers import Busy, alone, sweep_leftovers


@pytest.fixture
def home(short_dir: Path) -> Home:
    home = Home.at(short_dir / "h")
    home.create()
    return home


def test_invariant_12_trial_folders_and_drafts_are_swept_and_tasks_are_kept(home: Home) -> None:
    places = Places.of(home)
    (places.trials / "trl_1" / "agent").mkdir(parents=True)
    (places.tasks / ".new-abc" / "tests").mkdir(parents=True)
    (places.tasks / "0123" / "tests").mkdir(parents=True)
    sweep_leftovers(home)
    assert list(places.trials.iterdir()) == []
    assert [path.name for path in places.tasks.iterdir()] == ["0123"]


def test_sweeping_a_fresh_home_makes_its_folders(home: Home) -> None:
    sweep_leftovers(home)
    places = Places.of(home)
    assert places.trials.is_dir()
    assert places.tasks.is_dir()


def test_a_home_has_one_worker(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "LOCK_SEC", 0.0)
    with alone(home), pytest.raises(Busy, match=r"worker\.lock"), alone(home):
        pass
    with alone(home):
        pass


def test_invariant_13_the_worker_forgets_what_a_task_could_ask_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "environ", {"PATH": "/bin", "AWS_SECRET": "x", "PYTHONPATH": "/p"})
    entry.forget_environment()
    assert os.environ == {"PATH": "/bin", "PYTHONPATH": "/p"}
