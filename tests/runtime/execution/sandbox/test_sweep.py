"""A worker that is killed leaves nothing that the next start does not remove (invariant 12)."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from runtime.execution.sandbox import cgroups
from runtime.execution.sandbox.sandbox import Sandbox, Settings
from runtime.execution.sandbox.state import Intent, Process, RunDirectory, read_intent
from runtime.execution.sandbox.sweep import sweep

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

WORKER = """
import sys, anyio
from pathlib import Path
from runtime.execution.sandbox.base import derive
from runtime.execution.sandbox.cgroups import Limits
from runtime.execution.sandbox import cgroups
from runtime.execution.sandbox.sandbox import Sandbox, Settings
async def main():
    state = Path(sys.argv[1])
    settings = Settings(state, derive(state), limits=Limits(memory_mb=128, pids=64), trial="t1")
    sandboxes = [await Sandbox.start(settings) for _ in range(3)]
    for sandbox in sandboxes:
        await sandbox.exec(["bash", "-c", "setsid sleep 98765 </dev/null &>/dev/null &"])
    print("ready", flush=True)
    await sandboxes[0].exec(["sleep", "98765"])
anyio.run(main)
"""


def _sleepers() -> list[int]:
    found: list[int] = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if (
                    b"98765" in (path / "cmdline").read_bytes()
                    and b"sleep" in (path / "cmdline").read_bytes()[:8]
                ):
                    found.append(int(path.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def _gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_kill_9_of_the_worker_leaves_no_process_mount_cgroup_or_directory(state: Path) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(state)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[4],
    )
    with worker, ExitStack() as stack:
        stack.callback(worker.kill)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        deadline = time.monotonic() + 30
        while len(sleepers := _sleepers()) < 3:  # a shell has started them; they exec when they can
            assert time.monotonic() < deadline
            time.sleep(0.02)
        directories = [
            path
            for path in (state / "run").iterdir()
            if (intent := read_intent(path)) and intent.owner.pid == worker.pid
        ]
        intents = [read_intent(path) for path in directories]
        assert len(directories) == 3
        assert all(intent and intent.trial == "t1" for intent in intents)
        groups = [path for intent in intents if intent for path in intent.cgroups]
        sweep(state)
        assert all(path.exists() for path in directories), "a live worker's sandboxes are spared"
        os.kill(worker.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while not _gone(sleepers) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert _gone(sleepers), "every process of the sandboxes dies with the worker"
    assert str(state) not in Path("/proc/self/mounts").read_text()
    swept = sweep(state)
    assert {path.name for path in directories} <= set(swept.directories)
    assert not any(path.exists() for path in directories)
    assert not any(Path(path).exists() for path in groups)
    assert sweep(state).directories == []


def test_every_remnant_of_a_dead_owner_is_removed(tmp_path: Path) -> None:
    dead = Process(pid=2**22 + 1, started=1, boot="no-such-boot")
    live = Process.of(os.getpid())
    for name, owner, keep in (("dead", dead, False), ("kept", dead, True), ("live", live, False)):
        RunDirectory.create(tmp_path, Intent(owner=owner, trial=None, keep=keep), name)
    for token in (dead.token, live.token):
        (tmp_path / "run" / f".new-{token}-abcd").mkdir()
    (tmp_path / "run/unreadable").mkdir()
    (tmp_path / "run/unreadable/intent.json").write_text("{")
    sweep(tmp_path)
    left = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert left == sorted([f".new-{live.token}-abcd", "kept", "live"])


def test_cgroups_go_even_when_the_state_folder_was_deleted(tmp_path: Path) -> None:
    mine = cgroups.plan("mine", cgroups.Limits(pids=10))
    if not mine.paths:
        pytest.skip("no writable cgroups here")
    me = Process.of(os.getpid())
    dead = [path.replace(f"-{me.pid}-{me.started}-", f"-{me.pid}-1-") for path in mine.paths]
    try:
        mine.create()
        for path in dead:
            Path(path).mkdir()
        assert set(dead) <= set(sweep(tmp_path).cgroups)
        assert not any(Path(path).exists() for path in dead)
        assert all(Path(path).exists() for path in mine.paths)
    finally:
        cgroups.kill_and_remove(mine.paths)


def test_a_process_number_that_was_reused_is_not_the_owner() -> None:
    me = Process.of(os.getpid())
    assert me.alive
    assert not me.model_copy(update={"started": me.started + 1}).alive
    assert not me.model_copy(update={"boot": "another"}).alive


async def test_a_kept_sandbox_is_left_for_a_person(settings: Settings) -> None:
    sandbox = await Sandbox.start(settings)
    await sandbox.put_bytes(b"evidence", "/root/x")
    await sandbox.stop(keep=True)
    sweep(settings.state)
    upper = Path(sandbox.writable_layer().paths["/"])
    assert (upper / "root/x").read_bytes() == b"evidence"
    sandbox.directory.remove()
    assert not sandbox.directory.path.exists()
