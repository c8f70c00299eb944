"""One running sandbox: commands, isolation, files."""

import os
import socket
from pathlib import Path

import anyio
import pytest

from runtime.execution.sandbox.errors import CommandTimedOut, SandboxFailed
from runtime.execution.sandbox.sandbox import Sandbox, Settings
from runtime.execution.sandbox.sandboxd.transfer import Bounds
from specs.errors import InvalidInput, NotFound
from tests.runtime.execution.sandbox.support import (
    exists,
    mode_of,
    open_descriptors,
    sh,
    start,
    text,
)

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]


# ------------------------------------------------------------------------ commands
async def test_a_command_gets_its_input_environment_and_folder(sandbox: Sandbox) -> None:
    data = os.urandom(3_000_000)
    done = await sh(sandbox, "cat", stdin=data)
    assert (done.code, done.stdout, done.truncated) == (0, data, False)
    done = await sh(sandbox, "pwd; echo $A; exit 7", cwd="/usr/lib", env={"A": "x y"})
    assert (done.code, done.stdout) == (7, b"/usr/lib\nx y\n")


async def test_a_command_without_input_reads_nothing(sandbox: Sandbox) -> None:
    assert (await sh(sandbox, "cat; echo end")).stdout == b"end\n"


async def test_three_megabytes_arrive_intact_and_more_is_bounded(
    sandbox: Sandbox, settings: Settings
) -> None:
    done = await sh(sandbox, "head -c 3000000 /dev/zero | tr '\\0' b; echo err >&2")
    assert done.stdout == b"b" * 3_000_000
    assert done.stderr == b"err\n"
    done = await sh(sandbox, "echo first; head -c 30000000 /dev/zero; echo last")
    assert done.truncated
    assert done.stdout.startswith(b"first\n")
    assert done.stdout.endswith(b"last\n")
    assert b"bytes of output left out" in done.stdout
    assert len(done.stdout) < settings.output_bytes + 100


async def test_endless_output_is_stopped_by_the_deadline_alone(sandbox: Sandbox) -> None:
    with pytest.raises(CommandTimedOut):
        await sh(sandbox, "yes", timeout=1)
    assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def test_output_is_passed_on_while_the_command_runs(sandbox: Sandbox) -> None:
    seen: list[tuple[bytes, str]] = []
    first = anyio.Event()

    async def on_output(data: bytes, name: str) -> None:
        seen.append((data, name))
        first.set()

    async with anyio.create_task_group() as group:
        group.start_soon(
            lambda: sh(sandbox, "echo one; read -t 30 < <(sleep 30)", on_output=on_output)
        )
        with anyio.fail_after(20):
            await first.wait()
        group.cancel_scope.cancel()
    assert seen == [(b"one\n", "stdout")]


async def test_a_background_process_survives_its_command_and_does_not_delay_it(
    sandbox: Sandbox,
) -> None:
    with anyio.fail_after(20):
        done = await sh(sandbox, "sleep 300 & echo $!")
    pid = int(done.stdout)
    assert (await sh(sandbox, f"kill -0 {pid}")).code == 0


async def test_another_user_has_no_way_back_to_root(sandbox: Sandbox) -> None:
    done = await sh(
        sandbox, "id -un; touch /etc/x; grep NoNewPrivs /proc/self/status", user="nobody"
    )
    assert done.stdout.split() == [b"nobody", b"NoNewPrivs:", b"1"]
    assert b"Permission denied" in done.stderr
    done = await sh(sandbox, "true", user="nobody-else")
    assert (done.code, b"no user" in done.stderr) == (126, True)


async def test_commands_run_side_by_side(sandbox: Sandbox) -> None:
    results: list[bytes] = []

    async def one(number: int) -> None:
        results.append((await sh(sandbox, f"sleep 0.2; echo {number}")).stdout.strip())

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(one, number)
    assert sorted(results) == [b"%d" % n for n in range(8)]


async def test_sixteen_sandboxes_run_side_by_side(settings: Settings) -> None:
    names: set[bytes] = set()

    async def one(number: int) -> None:
        running = await start(settings)
        try:
            await running.put_bytes(b"%d" % number, "/root/mine")
            names.add((await sh(running, "cat /root/mine; ls /root | wc -l")).stdout)
        finally:
            await running.stop()

    async with anyio.create_task_group() as group:
        for number in range(16):
            group.start_soon(one, number)
    assert names == {b"%d1\n" % n for n in range(16)}


# ----------------------------------------------------------------------- isolation
async def test_nothing_of_the_host_is_visible(sandbox: Sandbox, tmp_path: Path) -> None:
    """A home, the project, another trial's folder, the state folder, keys: not there."""
    (tmp_path / "other-trial").write_text("secret")
    project = Path(__file__).parents[4]
    paths = [Path.home() / ".bashrc", project, tmp_path / "other-trial", sandbox.settings.state]
    for path in paths:
        assert (await sh(sandbox, f"test -e '{path}'")).code != 0, path
    done = await sh(
        sandbox, "ls -A /root /home /srv /mnt /media /boot /tmp /opt | grep -v : | xargs"
    )
    assert done.stdout.strip() == b""
    done = await sh(sandbox, "cat /etc/shadow; ls /etc/ssh /etc/ssl/private")
    assert b"$" not in done.stdout


async def test_the_kernel_tells_no_path_of_the_host(sandbox: Sandbox) -> None:
    everything = text(
        await sh(sandbox, "cat /proc/self/mountinfo /proc/[0-9]*/cmdline /proc/[0-9]*/environ; env")
    )
    project = str(Path(__file__).parents[4])
    for path in (project, str(Path.home()), str(sandbox.settings.state), os.environ["PATH"]):
        assert path == "/" or path not in everything.replace("HOME=/root", "")


async def test_root_inside_cannot_widen_the_sandbox(sandbox: Sandbox) -> None:
    for attempt in (
        "mount -t tmpfs x /mnt",
        "umount /proc",
        "unshare -U true",
        "unshare -m true",
        "cat /proc/1/environ",
        "ls /proc/1/root/",
        "ls -l /proc/1/fd/",
        "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk",
        "mknod /dev/disk b 254 0 && head -c 1 /dev/disk",
        "echo 1 > /proc/sys/kernel/printk",
        "hostname other",
        "chroot /proc/1/root true",
        "nsenter -t 1 -m true",
        "strace -p 1",
        "kill -9 1; kill -TERM 1; kill -INT 1; exit 1",
        "dmesg",
    ):
        done = await sh(sandbox, attempt, timeout=20)
        assert done.code != 0, f"{attempt}: {text(done)}"
    assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


async def test_device_nodes_are_its_own(sandbox: Sandbox) -> None:
    mode = mode_of("/dev/null")
    assert (await sh(sandbox, "chmod 600 /dev/null /dev/zero")).code == 0
    assert mode_of("/dev/null") == mode


async def test_changes_to_the_system_stay_in_the_sandbox(
    sandbox: Sandbox, settings: Settings
) -> None:
    done = await sh(sandbox, "echo x > /usr/bin/planted; rm /usr/bin/env; echo x >> /etc/passwd")
    assert done.code == 0
    assert not exists("/usr/bin/planted")
    assert exists("/usr/bin/env")
    other = await start(settings)
    try:
        assert (await sh(other, "test -e /usr/bin/planted")).code != 0
    finally:
        await other.stop()


# --------------------------------------------------------------------------- files
async def test_trees_go_in_and_out(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "sub").mkdir(parents=True)
    (source / "sub/run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "sub/run.sh").chmod(0o755)
    (source / "naïve \udcff name").write_bytes(b"\0\1")
    (source / "link").symlink_to("sub/run.sh")
    await sandbox.put_tree(source, "/parcel/in")
    assert (
        await sh(sandbox, "/parcel/in/link; stat -c %U /parcel/in/link")
    ).stdout == b"ran\nroot\n"
    result = await sandbox.get_tree("/parcel/in", tmp_path / "out")
    assert (result.files, result.left_out) == (2, [])
    assert (tmp_path / "out/link").read_text() == (source / "sub/run.sh").read_text()
    assert (tmp_path / "out/naïve \udcff name").read_bytes() == b"\0\1"
    assert os.access(tmp_path / "out/sub/run.sh", os.X_OK)


async def test_planted_links_pipes_and_huge_files_neither_break_a_download_nor_escape(
    settings: Settings, tmp_path: Path
) -> None:
    bounds = Bounds(file_bytes=1 << 20, total_bytes=1 << 21, members=1000)
    sandbox = await start(settings, bounds=bounds, max_file_bytes=1 << 50)
    try:
        await sh(
            sandbox,
            "mkdir -p /out/d; cd /out; ln -s /etc/shadow abs; ln -s ../../../../etc/shadow rel;"
            "ln -s d dir; mkfifo pipe; truncate -s 1T huge; echo ok > d/fine; chmod 0 d/fine;"
            "ln -s loop loop; mknod dev c 1 5;"
            "python3 -c 'import socket; socket.socket(1).bind(\"s\")'",
        )
        result = await sandbox.get_tree("/out", tmp_path / "got")
        names = {str(p.relative_to(tmp_path / "got")) for p in (tmp_path / "got").rglob("*")}
        assert names == {"d", "dir", "d/fine", "loop"}
        assert {name for name, _ in result.left_out} >= {"abs", "rel", "pipe", "huge", "dev", "s"}
        for name in ("pipe", "dev", "d"):
            with pytest.raises(InvalidInput):
                await sandbox.get_file(f"/out/{name}", tmp_path / "one")
        with pytest.raises(InvalidInput, match="larger"):
            await sandbox.get_file("/out/huge", tmp_path / "one")
        with pytest.raises(NotFound):
            await sandbox.get_tree("/nowhere", tmp_path / "none")
        with pytest.raises(NotFound):
            await sandbox.get_file("/nowhere", tmp_path / "one")
        assert not (tmp_path / "one").exists()
        await sandbox.get_file("/out/abs", tmp_path / "shadow")  # the sandbox's own
        assert b"$" not in (tmp_path / "shadow").read_bytes()
    finally:
        await sandbox.stop()


async def test_a_planted_link_or_pipe_does_not_redirect_an_upload(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    target = tmp_path / "host-file"
    target.write_text("mine")
    await sh(sandbox, f"mkdir -p /in; ln -s '{target}' /in/link; mkfifo /in/pipe")
    for name in ("link", "pipe"):
        with anyio.fail_after(20):
            await sandbox.put_bytes(b"new", f"/in/{name}")
        assert (await sh(sandbox, f"cat /in/{name}")).stdout == b"new"
    assert target.read_text() == "mine"


async def test_replaced_programs_do_not_take_part_in_transfers(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    await sh(sandbox, "for p in tar cat sh bash; do echo broken > /usr/bin/$p; done; true")
    await sandbox.put_bytes(b"x", "/a/b/c")
    await sandbox.get_file("/a/b/c", tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == b"x"


async def test_files_that_change_while_they_are_read_do_not_break_a_download(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    await sh(
        sandbox,
        "mkdir /busy; for i in 1 2 3; do (while :; do head -c $((RANDOM*20)) /dev/zero > /busy/$i;"
        " done) & done; sleep 0.3",
    )
    for number in range(3):
        await sandbox.get_tree("/busy", tmp_path / str(number))


# ------------------------------------------------------------------- its own end
async def test_a_sandbox_that_dies_says_so(settings: Settings) -> None:
    sandbox = await start(settings)
    try:
        async with anyio.create_task_group() as group:

            async def run() -> None:
                with pytest.raises(SandboxFailed):
                    await sh(sandbox, "sleep 60")

            group.start_soon(run)
            await anyio.sleep(0.3)
            sandbox._control.shutdown(socket.SHUT_RDWR)  # pyright: ignore[reportPrivateUsage]
    finally:
        await sandbox.stop()


async def test_a_cancelled_start_leaves_nothing(settings: Settings) -> None:
    run = settings.state / "run"
    before = set(run.iterdir())
    for delay in (0.0, 0.005, 0.01, 0.02, 0.05):
        with anyio.move_on_after(delay):
            running = await start(settings)
            await running.stop()
    assert set(run.iterdir()) == before


async def test_no_descriptor_is_leaked(settings: Settings) -> None:
    sandbox = await start(settings)
    await sh(sandbox, "true")
    before = open_descriptors()
    for _ in range(5):
        await sh(sandbox, "true", stdin=b"x")
        await sandbox.put_bytes(b"x", "/x")
        with pytest.raises(CommandTimedOut):
            await sh(sandbox, "sleep 60", timeout=0.05)
    assert open_descriptors() == before
    await sandbox.stop()
    assert open_descriptors() < before
