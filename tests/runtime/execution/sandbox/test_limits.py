"""A trial that misbehaves costs itself alone (invariant 16): deadlines, processes, memory, disk."""

from pathlib import Path

import anyio
import pytest

from runtime.execution.sandbox import cgroups
from runtime.execution.sandbox.errors import CommandTimedOut
from runtime.execution.sandbox.sandbox import Sandbox, Settings
from tests.runtime.execution.sandbox.support import sh, start, text

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

needs_cgroups = pytest.mark.skipif(
    {"memory", "pids"} - cgroups.available() != set(), reason="no writable cgroups here"
)
DAEMON = (
    "setsid sh -c '(trap \"\" TERM HUP; while :; do sleep 1000; done) &' </dev/null &>/dev/null"
)
COUNT = "grep -l sleep /proc/[0-9]*/comm 2>/dev/null | wc -l"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000",
        "sleep 1000 & sleep 1000 | sleep 1000",
        f"{DAEMON}; sleep 1000",
        "nohup setsid sleep 1000 & disown; trap '' TERM INT; sleep 1000",
        "python3 -c 'import os\nfor _ in range(3):\n  if os.fork(): os._exit(0)\n  os.setsid()\n"
        'os.execvp("sleep", ["sleep", "1000"])\'; sleep 1000',
    ],
)
async def test_the_deadline_kills_every_descendant(sandbox: Sandbox, command: str) -> None:
    with pytest.raises(CommandTimedOut, match=r"timed out after 0\.7 seconds"):
        await sh(sandbox, command, timeout=0.7)
    assert (await sh(sandbox, COUNT)).stdout.strip() == b"0"


async def test_cancelling_kills_every_descendant(sandbox: Sandbox) -> None:
    with anyio.move_on_after(0.7) as scope:
        await sh(sandbox, f"{DAEMON}; sleep 1000")
    assert scope.cancelled_caught
    assert (await sh(sandbox, COUNT)).stdout.strip() == b"0"


async def test_the_deadline_spares_earlier_services_and_other_commands(sandbox: Sandbox) -> None:
    await sh(sandbox, "python3 -c 'import time; time.sleep(1000)' </dev/null &>/dev/null &")
    await anyio.sleep(0.1)

    async def other() -> None:
        assert (await sh(sandbox, "sleep 2; echo survived")).stdout == b"survived\n"

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        await anyio.sleep(0.2)
        with pytest.raises(CommandTimedOut):
            await sh(sandbox, f"{DAEMON}; sleep 1000", timeout=0.7)
    done = await sh(sandbox, f"{COUNT}; cat /proc/[0-9]*/comm | grep -c python3")
    assert done.stdout.split()[:2] == [b"0", b"1"]


@needs_cgroups
async def test_a_fork_bomb_is_bounded_and_dies_at_the_deadline(sandbox: Sandbox) -> None:
    with pytest.raises(CommandTimedOut):
        await sh(sandbox, "f() { f | f & sleep 100; f; }; f", timeout=2)
    done = await sh(sandbox, "ls -d /proc/[0-9]* | wc -l")
    assert int(done.stdout) < 10


@needs_cgroups
async def test_the_pids_limit_counts_the_whole_sandbox(sandbox: Sandbox) -> None:
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 1000:\n    if os.fork() == 0: time.sleep(30)\n"
        "    n += 1\nexcept OSError: print(n)\nos.kill(0, 9)"
    )
    done = await sh(sandbox, f"python3 - <<'P'\n{code}\nP", timeout=40)
    with_limit = await sh(sandbox, "echo alive")
    assert with_limit.stdout == b"alive\n", text(done)


@needs_cgroups
async def test_a_memory_hog_dies_alone(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "python3 -c 'bytearray(2 << 30)'", timeout=40)
    assert done.code in (1, 137)
    done = await sh(sandbox, "head -c 1G /dev/zero | tail", timeout=50)
    assert done.code != 0
    assert sandbox.cgroups.oom_kills() >= 1
    assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


@needs_cgroups
async def test_memory_in_shm_counts(sandbox: Sandbox) -> None:
    done = await sh(sandbox, "head -c 100M /dev/zero > /dev/shm/x", timeout=40)
    assert done.code != 0  # /dev/shm itself is 64 MiB


async def test_declared_storage_is_a_limit(settings: Settings) -> None:
    sandbox = await start(settings, storage_mb=20)
    try:
        done = await sh(sandbox, "head -c 30M /dev/zero > /root/x")
        assert b"No space left" in done.stderr
        assert (
            await sh(sandbox, "rm /root/x; echo y > /usr/bin/y && cat /usr/bin/y")
        ).stdout == b"y\n"
    finally:
        await sandbox.stop()


async def test_a_single_file_is_bounded(settings: Settings) -> None:
    sandbox = await start(settings, max_file_bytes=1 << 20)
    try:
        done = await sh(sandbox, "head -c 2M /dev/zero > /root/x; stat -c %s /root/x")
        assert done.stdout.strip() == b"1048576"
    finally:
        await sandbox.stop()


@pytest.mark.parametrize("unified", [False, True])
def test_settings_of_both_cgroup_versions(tmp_path: Path, unified: bool) -> None:
    """The files that v1 and v2 expect; the kernel here has only one of them."""
    limits = cgroups.Limits(memory_mb=64, cpus=0.5, pids=10)
    written = {
        name: value
        for controller in cgroups.CONTROLLERS
        for name, value in cgroups._settings(controller, limits, unified)  # pyright: ignore[reportPrivateUsage]
    }
    if unified:
        assert written == {
            "memory.max": str(64 << 20),
            "memory.swap.max": "0",
            "cpu.max": "50000 100000",
            "pids.max": "10",
        }
    else:
        assert written["cpu.cfs_quota_us"] == "50000"
        assert written["memory.limit_in_bytes"] == str(64 << 20)
