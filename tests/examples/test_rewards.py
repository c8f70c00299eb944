"""Every example task in the local sandbox: its solution earns 1, anything less earns 0."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.task.task import Task
from harbor.models.trial.paths import TrialPaths

from runtime.execution.sandbox.environment import LocalSandboxEnvironment

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox, pytest.mark.timeout(240)]

AT_ONCE = 4


class Workplace:
    """A started environment of one task."""

    def __init__(self, task: Task, environment: LocalSandboxEnvironment) -> None:
        self._task, self._environment = task, environment

    async def run(self, command: str) -> str:
        done = await self._environment.exec(command, timeout_sec=30)
        assert done.return_code == 0, f"{self._task.name}: {command}: {done.stderr or done.stdout}"
        return (done.stdout or "").strip()

    async def solve(self) -> None:
        await self._environment.upload_dir(self._task.paths.solution_dir, "/solution")
        await self.run("bash /solution/solve.sh")

    async def reward(self) -> str:
        await self._environment.upload_dir(self._task.paths.tests_dir, "/tests")
        await self.run("mkdir -p /logs/verifier && bash /tests/test.sh")
        return await self.run("cat /logs/verifier/reward.txt")


type Open = Callable[[Task], AbstractAsyncContextManager[Workplace]]


@pytest.fixture
def open_task(short_dir: Path) -> Open:
    """Opens a task's environment; its sandbox is gone when the block ends, also on cancel."""

    @asynccontextmanager
    async def opened(task: Task) -> AsyncGenerator[Workplace]:
        name = task.task_dir.name
        paths = TrialPaths(short_dir / "trials" / name)
        paths.mkdir()
        environment = LocalSandboxEnvironment(
            environment_dir=task.paths.environment_dir,
            environment_name=name,
            session_id=name,
            trial_paths=paths,
            task_env_config=task.config.environment,
            network_policy=NetworkPolicy(network_mode=NetworkMode.NO_NETWORK),
            state_dir=short_dir / "sandboxes",
        )
        await environment.start(force_build=False)
        try:
            yield Workplace(task, environment)
        finally:
            with anyio.CancelScope(shield=True):
                await environment.stop(delete=True)

    return opened


async def test_the_solution_earns_1_and_doing_nothing_earns_0(
    practice: list[Task], held_out: list[Task], open_task: Open
) -> None:
    rewards: dict[str, tuple[str, str]] = {}
    limit = anyio.CapacityLimiter(AT_ONCE)

    async def attempt(task: Task) -> None:
        async with limit, open_task(task) as place:
            nothing = await place.reward()
            await place.solve()
            rewards[task.name] = (nothing, await place.reward())

    async with anyio.create_task_group() as group:
        for task in practice + held_out:
            group.start_soon(attempt, task)
    assert rewards == {task.name: ("0", "1") for task in practice + held_out}


SPOILS = (
    "touch extra.txt",
    "mkdir extra",
    "mkdir .hidden && touch .hidden/file",
    "f=$(ls | head -n 1) && echo more >> $f",
    "f=$(ls | head -n 1) && mv $f /tmp/kept && ln -s /tmp/kept $f",
    "f=$(ls | head -n 1) && rm $f && mkfifo $f",
    "head -c 3000000 /dev/zero > extra.txt",
    "rm -r ./*",
    "touch $'a\\nfile b'",
)


async def test_a_solved_task_that_is_spoiled_earns_0(practice: list[Task], open_task: Open) -> None:
    rewards: dict[str, tuple[str, str]] = {}
    for spoil in SPOILS:
        async with open_task(practice[0]) as place:
            await place.solve()
            solved = await place.reward()
            await place.run(f"cd /app && {spoil}")
            rewards[spoil] = (solved, await place.reward())
    assert rewards == dict.fromkeys(SPOILS, ("1", "0"))


async def test_a_count_that_is_off_by_one_earns_0(practice: list[Task], open_task: Open) -> None:
    task = next(task for task in practice if task.config.metadata["family"] == "count-lines")
    source, target = task.instruction.rstrip(".\n").split(" of ")[-1].split(" to ")
    async with open_task(task) as place:
        await place.run(f"cd /app && echo $(( $(wc -l < {source}) + 1 )) > {target}")
        assert await place.reward() == "0"
        await place.run(f"cd /app && wc -l {source} > {target}")
        assert await place.reward() == "0", "the file name is not part of the number"
        await place.run(f"cd /app && printf %d $(wc -l < {source}) > {target}")
        assert await place.reward() == "1", "a missing newline is forgiven"
