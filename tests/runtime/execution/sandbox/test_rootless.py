"""Without root: a user namespace of its own, and clear refusals of what it cannot do.

The worker runs in a user namespace in which it is not root, as it would for a person.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

WORKER = """
import os, sys, anyio
from pathlib import Path
from runtime.execution.sandbox.base import derive
from runtime.execution.sandbox.cgroups import Limits
from runtime.execution.sandbox.sandbox import Sandbox, Settings
async def main():
    assert os.geteuid() != 0
    state = Path(sys.argv[1])
    sandbox = await Sandbox.start(Settings(state, derive(state), limits=Limits(pids=100)))
    try:
        done = await sandbox.exec(["bash", "-c", "id -u; touch /usr/local/bin/x; ls /root /home"])
        assert done.stdout.split() == [b"0", b"/home:", b"/root:"], done
        for command in ("mount -t tmpfs x /mnt", "unshare -U true", "cat /proc/1/environ",
                        "echo 1 > /proc/sys/kernel/printk", "kill -9 1; exit 1"):
            done = await sandbox.exec(["bash", "-c", command])
            assert done.code != 0, command
        done = await sandbox.exec(["true"], user="nobody")
        assert done.code == 126 and b"one user: root" in done.stderr
        await sandbox.put_bytes(b"x", "/app/x")
        assert (await sandbox.get_tree("/app", state / "got")).files == 1
    finally:
        await sandbox.stop()
    assert os.listdir(state / "run") == []
    print("fine")
anyio.run(main)
"""


def test_a_sandbox_without_root(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("no unshare program to become another user with")
    mapped = [unshare, "--user", "--map-user=1000", "--map-group=1000"]
    if subprocess.run([*mapped, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this kernel gives this user no user namespace")
    run = subprocess.run(
        [*mapped, sys.executable, "-c", WORKER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )
    assert run.stdout == "fine\n", run.stderr
