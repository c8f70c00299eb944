"""A launch in somebody's folder: it writes what it may, says how it ended, and leaves nothing."""

import time
from pathlib import Path
from typing import Any

import anyio
import pytest

from runtime.native.launch import execute, inherited, write_files
from specs.errors import Conflict, InvalidInput, Unavailable
from specs.launch import LaunchFile, LaunchOutput, LaunchPlan
from specs.profile import Engine
from tests.runtime.execution.bench import processes_with

pytestmark = pytest.mark.anyio


def plan(folder: Path, *argv: str, **more: Any) -> LaunchPlan:
    base: dict[str, Any] = {
        "engine": Engine(name="command", version="1"),
        "workdir": str(folder),
        "files": (),
        "setup": (),
        "argv": argv,
        "env": {},
        "stdin": None,
        "instruction_file": None,
        "outputs": (),
    }
    return LaunchPlan(**{**base, **more})


async def ran(made: LaunchPlan, state: Path, timeout: float | None = None) -> tuple[Any, str]:
    log = state / "log"
    with log.open("wb") as file:
        ended = await execute(made, state, file, replace=False, timeout=timeout)
    return ended, log.read_text()


async def test_setup_harness_and_outputs_happen_in_the_folder(tmp_path: Path) -> None:
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    state.mkdir()
    made = plan(
        work,
        *("bash", "-c", 'cat > said; echo "$A $(pwd)"; exit 3'),
        files=(LaunchFile(path=f"{work}/x/a.md", content="hello", mode=0o600),),
        setup=("touch ready",),
        env={"A": "b c"},
        stdin="do it",
        outputs=(
            LaunchOutput(name="said", path=f"{work}/said", required=True),
            LaunchOutput(name="never", path=f"{work}/never", required=True),
            LaunchOutput(name="maybe", path=f"{work}/maybe", required=False),
        ),
    )
    ended, log = await ran(made, state)
    assert (ended.code, ended.missing) == (3, ("never",))
    assert log == f"+ touch ready\nb c {work}\n"
    assert (work / "said").read_text() == "do it"
    assert (work / "x/a.md").stat().st_mode & 0o777 == 0o600
    assert (work / "ready").exists()


@pytest.mark.parametrize("how", ["deadline", "cancel", "end"])
async def test_a_harness_ends_with_everything_that_it_started(tmp_path: Path, how: str) -> None:
    marker = f"native-{how}-{time.time_ns()}"
    script = f"(trap '' TERM HUP; exec -a {marker} sleep 300) & "
    script += "sleep 0.3; exit 0" if how == "end" else "exec sleep 300"
    made = plan(tmp_path, "bash", "-c", script)
    if how == "cancel":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ran, made, tmp_path)
            while not processes_with(marker):  # noqa: ASYNC110 - another process's doing
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
    else:
        ended, _ = await ran(made, tmp_path, timeout=2.0 if how == "deadline" else None)
        assert ended.code == (None if how == "deadline" else 0)
    assert processes_with(marker) == []


async def test_a_program_or_setup_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no-such-program"):
        await ran(plan(tmp_path, "no-such-program"), tmp_path)
    with pytest.raises(InvalidInput, match="'false' ended with 1"):
        await ran(plan(tmp_path, "true", setup=("false",)), tmp_path)


def test_files_stay_below_the_folder_and_replace_nothing_unasked(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    work.mkdir()
    outside.mkdir()
    (work / "link").symlink_to(outside)
    (work / "mine.md").write_text("mine")

    def file(path: str) -> LaunchFile:
        return LaunchFile(path=path, content="new", mode=0o644)

    for path in (f"{outside}/a", f"{work}/link/a", "/etc/practicum-test"):
        with pytest.raises(InvalidInput):
            write_files((file(f"{work}/b"), file(path)), (work,), replace=True)
    with pytest.raises(Conflict) as caught:
        write_files((file(f"{work}/b"), file(f"{work}/mine.md")), (work,), replace=False)
    assert caught.value.problem.object is not None
    assert caught.value.problem.object.pointer == "/agent/files/1"
    assert not (work / "b").exists()
    write_files((file(f"{work}/mine.md"),), (work,), replace=True)
    write_files((file(f"{work}/mine.md"),), (work,), replace=False)
    assert (work / "mine.md").read_text() == "new"


def test_a_users_environment_is_kept_but_for_what_routes_elsewhere() -> None:
    given = {
        "PATH": "/bin",
        "EDITOR": "vi",
        "ANTHROPIC_BASE_URL": "http://elsewhere",
        "ANTHROPIC_API_KEY": "key",
        "CLAUDE_CODE_USE_BEDROCK": "1",
        "CLAUDE_CONFIG_DIR": "/home/u/.claude-work",
        "NO_PROXY": "internal.example",
    }
    assert inherited(given) == {
        "PATH": "/bin",
        "EDITOR": "vi",
        "CLAUDE_CONFIG_DIR": "/home/u/.claude-work",
        "NO_PROXY": "127.0.0.1,localhost,internal.example",
        "no_proxy": "127.0.0.1,localhost",
    }
