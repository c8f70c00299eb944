"""SIGKILL of writers at random moments and within lines, and restarts: no acknowledged entry is
lost, none is torn, none is joined to another, and the chain holds."""

import multiprocessing
import random
import time
from collections import Counter
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

from journals import Journal, files
from tests.journals.writer import ACK, write


class Writers:
    """Processes that write one journal, each with a file of what was acknowledged to it."""

    def __init__(self, journal: Journal, folder: Path, writers: int, count: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.journals.writer"])
        self._journal = journal
        self._count = count
        self.acks = [folder / f"writer-{number}" for number in range(writers)]
        self._running: dict[Path, ForkServerProcess] = {}
        self.deaths = 0

    def settle(self) -> bool:
        """Start again whoever died; whether there is work left."""
        for acks in self.acks:
            process = self._running.get(acks)
            if process is None or process.exitcode not in (None, 0):
                self.deaths += process is not None
                arguments = (self._journal.folder, acks, self._count, hash((acks, self.deaths)))
                self._running[acks] = self._context.Process(target=write, args=arguments)
                self._running[acks].start()
        return any(process.exitcode is None for process in self._running.values())

    def progress(self) -> int:
        """Entries that were acknowledged."""
        return sum(acks.stat().st_size // ACK for acks in self.acks if acks.exists())

    def kill(self, chance: random.Random) -> None:
        """Kill one of those that run."""
        if alive := [one for one in self._running.values() if one.exitcode is None]:
            victim = chance.choice(alive)
            victim.kill()
            victim.join()


def killed(journal: Journal, folder: Path, *, writers: int, count: int, kills: int) -> None:
    chance = random.Random(count)
    crowd = Writers(journal, folder, writers, count)
    strikes = sorted((chance.uniform(0, 0.9 * writers * count) for _ in range(kills)), reverse=True)
    while crowd.settle():
        time.sleep(0.001)
        if strikes and crowd.progress() >= strikes[-1]:
            strikes.pop()
            crowd.kill(chance)
    assert crowd.deaths >= kills // 2

    entries = list(journal.entries())
    assert journal.verify() == []
    at = {entry.digest: place for place, entry in enumerate(entries)}
    written = Counter(" ".join(entry.text.split()[:2]) for entry in entries)
    for acks in crowd.acks:
        digests = acks.read_text().splitlines()
        assert len(digests) == count == acks.stat().st_size // ACK
        places = [at[digest] for digest in digests]
        assert places == sorted(places), "acknowledged in the order of the record"
        assert all(written[f"{acks.name} {number}"] for number in range(count))
    repeated = len(entries) - writers * count
    assert 0 <= repeated <= crowd.deaths, "a death leaves one entry unacknowledged at most"
    whole = (journal.folder / files.LINES).read_bytes()
    assert whole.endswith(b"\n")
    assert whole.count(b"\n") == len(entries) + 1


def test_writers_that_are_killed_lose_and_tear_nothing(journal: Journal, tmp_path: Path) -> None:
    killed(journal, tmp_path, writers=3, count=80, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_eight_writers_of_a_thousand_entries_killed_at_random_lose_and_tear_nothing(
    journal: Journal, tmp_path: Path
) -> None:
    killed(journal, tmp_path, writers=8, count=1000, kills=40)
    assert (journal.folder / files.TORN).stat().st_size > 0, "no writer died within a line"
