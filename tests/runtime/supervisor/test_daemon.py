"""The supervisor outlives what it cannot write: parts that work are not ended for that."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import override

import anyio
import pytest

from runtime.home import Home
from runtime.supervisor import daemon
from runtime.supervisor.daemon import Supervisor
from runtime.supervisor.parts import Part
from runtime.supervisor.settings import Settings
from runtime.supervisor.state import StackState, lives, read_state, sweep, write_state

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


class Sleeper(Part):
    """A part that does nothing, for long."""

    @override
    def command(self, home: Home, settings: Settings) -> list[str]:
        return ["sleep", "300"]

    @override
    def environment(self, source: Mapping[str, str], settings: Settings) -> dict[str, str]:
        return {"PATH": source["PATH"]}


class Disk:
    """Writes states as the supervisor does, or refuses them as a full disk would."""

    def __init__(self) -> None:
        self.full = False
        self._last: tuple[StackState, bool] | None = None
        self._new = anyio.Event()

    def write(self, home: Home, state: StackState) -> None:
        self._last = (state, not self.full)
        self._new.set()
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_state(home, state)

    async def until(
        self, condition: Callable[[StackState], bool], *, written: bool = True
    ) -> StackState:
        """The first state that fulfils a condition and was written, or was refused."""
        while self._last is None or self._last[1] != written or not condition(self._last[0]):
            self._new = anyio.Event()
            await self._new.wait()
        return self._last[0]


@pytest.fixture
def home(short_dir: Path) -> Iterator[Home]:
    made = Home.at(short_dir / "home")
    made.create()
    yield made
    sweep(made)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(daemon, "write_state", made.write)
    monkeypatch.setattr(daemon, "PARTS", tuple(Sleeper(name, "") for name in ("gateway", "proxy")))
    monkeypatch.setattr(daemon, "GATEWAY_HEAD_START_SEC", 0)
    monkeypatch.setattr(daemon, "FIRST_DELAY_SEC", 0.01)
    monkeypatch.setattr(daemon, "RECORD_AGAIN_SEC", 0.01)
    return made


@asynccontextmanager
async def supervised(home: Home) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Supervisor(home, Settings()).run)
        yield
        os.kill(os.getpid(), signal.SIGTERM)


def all_run(state: StackState) -> bool:
    return {part.state for part in state.parts.values()} == {"running"}


async def test_a_full_disk_ends_no_part_and_the_state_is_written_once_there_is_room(
    home: Home, disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    async with supervised(home):
        before = (await disk.until(all_run)).parts
        disk.full = True
        os.kill(before["proxy"].pid or 0, signal.SIGKILL)
        after = await disk.until(
            lambda state: state.parts["proxy"].restarts == 1 and all_run(state), written=False
        )
        assert after.parts["gateway"] == before["gateway"]
        assert all(lives(part.pid, part.ticks) for part in after.parts.values())
        told = read_state(home)
        assert told is not None and told.parts == before
        disk.full = False
        await disk.until(all_run)
        assert read_state(home) == after
    said = capsys.readouterr().err
    assert said.count("cannot be written: [Errno 28]") == 1
    assert said.count("is written again") == 1


async def test_a_part_that_cannot_be_started_is_tried_again_and_costs_no_other(
    home: Home, disk: Disk
) -> None:
    log = home.logs / "proxy.log"
    log.mkdir()
    async with supervised(home):
        state = await disk.until(lambda state: state.parts["proxy"].restarts >= 2)
        assert state.parts["proxy"].state == "backoff"
        assert state.parts["gateway"].state == "running"
        log.rmdir()
        healed = await disk.until(all_run)
        assert healed.parts["gateway"] == state.parts["gateway"]


async def test_without_a_first_state_nothing_is_started(home: Home, disk: Disk) -> None:
    """No command could find such a supervisor, nor end it."""
    disk.full = True
    with pytest.raises(OSError, match="space"):
        await Supervisor(home, Settings()).run()
    assert list(home.logs.iterdir()) == []


def test_a_log_without_room_is_no_reason_to_end() -> None:
    code = "from runtime.supervisor.daemon import say; say('x'); print('alive')"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.stdout == b"alive\n"
