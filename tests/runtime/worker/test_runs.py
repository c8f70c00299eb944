"""Runs through the real processes: from the queue to the end, and past every kind of trouble."""

import signal
import time

import anyio
import pytest

from runtime.client import WorkerClient
from specs import canonical, evidence
from specs.errors import ErrorCode
from specs.ids import Prefix, new_id
from specs.launch import TOKEN_PLACEHOLDER, LaunchPlan
from specs.operator_api import Extend
from specs.plans import Budget
from specs.records import TrialOutcome, TrialState
from specs.run import RunState
from tests.runtime.execution.bench import Bench, processes_with
from tests.runtime.worker.stack import LEASE_SEC, Operator, calling_profile, profile

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox, pytest.mark.timeout(180)]


async def running(op: Operator, run: str, marker: str, count: int) -> None:
    """Wait until `count` harnesses are at work."""
    deadline = anyio.current_time() + 60
    while len(processes_with(marker)) < count:
        told = [(str(e.type), e.data) for e in await op.events(run)]
        assert anyio.current_time() < deadline, (told, op.stack.log("worker"))
        await anyio.sleep(0.1)


async def test_an_evaluation_goes_from_queued_to_completed(op: Operator, tasks: Bench) -> None:
    reward = "[ -s /app/report.md ] && echo 1 > /logs/verifier/reward.txt"
    one, two = (tasks.task(name, reward, agent=120) for name in ("one", "two"))
    dataset = await op.publish(one, two)  # the first call waits until compute has started
    actor = calling_profile()
    actor["agent"]["args"] = ["bash", "-c", "python3 /opt/agent.py | tee report.md"]
    actor["agent"]["outputs"] = [{"path": "report.md"}]
    run = await op.start(dataset, actor, trials_per_task=2)
    ended = await op.end(run)
    assert ended.state == RunState.COMPLETED, ended.reason
    result = await op.client.result(run)
    assert (result.planned_slots, result.trials_settled, result.trials_scored) == (4, 4, 4)
    assert (result.trials_started, result.success) == (4, 1.0)
    trials = (await op.client.trials(run)).items
    for trial in trials:
        assert trial.settled is not None
        assert trial.settled.outcome == TrialOutcome.COMPLETED
        assert trial.settled.seal is not None
        assert trial.settled.seal.complete
        assert trial.settled.seal.object is not None
        (call,) = evidence.interactions(await op.client.object(trial.settled.seal.object))
        assert call.intent.trial == trial.id
        (artifact,) = trial.settled.artifacts
        assert artifact.path == "report.md"
        assert b"200" in await op.client.object(artifact.digest)
        assert trial.assessment is not None
        assert trial.assessment.artifacts == {"report.md": artifact.digest}
    assert op.stack.left() == []


async def test_invariant_13_the_recorded_launch_plan_is_readable_and_holds_no_credential(
    op: Operator, tasks: Bench
) -> None:
    actor = profile("echo $KEY", env={"KEY": "${model.token}"})
    run = await op.start(await op.publish(tasks.task("plan")), actor, trials_per_task=1)
    await op.end(run)
    (trial,) = (await op.client.trials(run)).items
    assert trial.settled is not None
    assert trial.settled.launch_plan is not None
    data = await op.client.object(trial.settled.launch_plan)
    plan = canonical.read(LaunchPlan, data, what="plan")
    assert plan.env["KEY"] == TOKEN_PLACEHOLDER
    assert plan.stdin == "Do the task.\n"
    logs = {item.source: item.text for item in (await op.client.logs(run, trial=trial.id)).items}
    assert logs["harness"] == "[model.token]\n"


async def test_invariant_17_a_killed_worker_is_succeeded_and_leaves_nothing(
    op: Operator, tasks: Bench
) -> None:
    quick, slow = tasks.task("quick"), tasks.task("slow", agent=120)
    marker = f"killed-{time.time_ns()}"
    actor = profile(
        f"case $TASK in */slow) exec -a {marker} sleep 20;; esac", env={"TASK": "${task.name}"}
    )
    run = await op.start(await op.publish(quick, slow), actor, trials_per_task=2)
    await running(op, run, marker, 2)
    while (await op.client.result(run)).trials_settled < 2:  # noqa: ASYNC110
        await anyio.sleep(0.1)
    op.stack.end("worker")
    with anyio.fail_after(10):
        while processes_with(marker):  # noqa: ASYNC110 - the kernel's doing
            await anyio.sleep(0.05)
    before = {t.id for t in (await op.client.trials(run)).items if t.state == TrialState.SETTLED}
    op.stack.start("worker")
    ended = await op.end(run, seconds=120)
    assert (ended.state, ended.claims) == (RunState.COMPLETED, 2)
    result = await op.client.result(run)
    assert (result.trials_settled, result.trials_started, result.trials_abandoned) == (4, 6, 2)
    trials = (await op.client.trials(run)).items
    assert before <= {t.id for t in trials if t.counted}, "settled trials were run again"
    assert op.stack.left() == []


async def test_a_spent_budget_stops_the_run_at_once_and_an_extended_one_goes_on(
    op: Operator, tasks: Bench
) -> None:
    marker = f"spent-{time.time_ns()}"
    quick, slow = tasks.task("quick"), tasks.task("slow", agent=120)
    waits = f"case $TASK in */slow) exec -a {marker} sleep 100;; esac"
    actor = profile(waits, env={"TASK": "${task.name}"})
    limits = {"run": {"max_sec": 12}}
    dataset = await op.publish(quick, slow)
    run = await op.start(dataset, actor, trials_per_task=1, limits=limits)
    stopped = await op.until(run, RunState.BLOCKED)
    assert stopped.reason is not None
    assert stopped.reason.code == ErrorCode.BUDGET_EXHAUSTED
    assert processes_with(marker) == []
    assert op.stack.left() == []
    states = [trial.state for trial in (await op.client.trials(run)).items]
    assert TrialState.OPEN not in states
    more = Extend(run=Budget(max_sec=3600))
    await op.client.extend(run, more)
    await running(op, run, marker, 1)
    await op.client.cancel(run)
    ended = await op.end(run)
    assert (ended.state, ended.claims) == (RunState.CANCELLED, 2)
    (budget,) = (await op.client.result(run)).budgets
    assert budget.extended
    assert budget.used > 12


async def test_invariant_16_cancelling_reaches_the_sandbox_and_settles_every_record(
    op: Operator, tasks: Bench
) -> None:
    marker = f"cancelled-{time.time_ns()}"
    task = tasks.task("endless", agent=120)
    run = await op.start(
        await op.publish(task),
        profile(f"exec -a {marker} sleep 300"),
        trials_per_task=3,
        resources={"concurrency": 2},
    )
    await running(op, run, marker, 2)
    await op.client.cancel(run)
    ended = await op.end(run)
    assert ended.state == RunState.CANCELLED
    assert processes_with(marker) == []
    trials = (await op.client.trials(run)).items
    assert [trial.state for trial in trials] == [TrialState.SETTLED] * 2
    for trial in trials:
        assert trial.settled is not None
        assert trial.settled.outcome == TrialOutcome.CANCELLED
        assert trial.assessment is not None
        assert (trial.assessment.reward, trial.assessment.reason) == (None, "cancelled")
    assert op.stack.left() == []


async def test_invariant_16_a_run_cancelled_while_its_worker_is_dead_is_settled_too(
    op: Operator, tasks: Bench
) -> None:
    marker = f"dead-{time.time_ns()}"
    dataset = await op.publish(tasks.task("endless", agent=120))
    run = await op.start(dataset, profile(f"exec -a {marker} sleep 300"), trials_per_task=1)
    await running(op, run, marker, 1)
    op.stack.end("worker")
    await op.client.cancel(run)
    op.stack.start("worker")
    ended = await op.end(run)
    assert ended.state == RunState.CANCELLED
    (trial,) = (await op.client.trials(run)).items
    assert trial.settled is not None
    assert trial.settled.outcome == TrialOutcome.CANCELLED


async def test_a_stopped_worker_releases_its_run(op: Operator, tasks: Bench) -> None:
    marker = f"stopped-{time.time_ns()}"
    dataset = await op.publish(tasks.task("released", agent=120))
    run = await op.start(dataset, profile(f"exec -a {marker} sleep 8"), trials_per_task=1)
    await running(op, run, marker, 1)
    assert op.stack.end("worker", signal.SIGTERM) == 0
    assert (await op.client.run(run)).state == RunState.QUEUED
    assert processes_with(marker) == []
    assert op.stack.left() == []
    op.stack.start("worker")
    ended = await op.end(run)
    assert (ended.state, ended.claims) == (RunState.COMPLETED, 2)


@pytest.mark.parametrize("part", ["gateway", "proxy"])
async def test_invariant_17_a_part_that_is_killed_and_comes_back_costs_no_trial(
    op: Operator, tasks: Bench, part: str
) -> None:
    op.stack.end("worker")
    op.stack.start("worker", lease=60)  # a loaded machine takes long to start a process
    marker = f"{part}-{time.time_ns()}"
    dataset = await op.publish(tasks.task("patient", agent=120))
    run = await op.start(dataset, profile(f"bash -c 'exec -a {marker} sleep 4'"), trials_per_task=2)
    await running(op, run, marker, 2)
    op.stack.end(part)
    op.stack.start(part)
    op.stack.ready(part)
    ended = await op.end(run)
    assert (ended.state, ended.claims) == (RunState.COMPLETED, 1), op.stack.log("worker")
    result = await op.client.result(run)
    assert (result.trials_started, result.trials_settled, result.trials_scored) == (2, 2, 2)
    op.stack.end("worker")
    op.stack.start("worker")


async def test_invariant_16_one_task_that_cannot_run_costs_its_own_trials(
    op: Operator, tasks: Bench
) -> None:
    broken = tasks.task("broken", files={"environment/Dockerfile": "FROM alpine\n"})
    dataset = await op.publish(broken, tasks.task("fine"))
    run = await op.start(dataset, profile("true"), trials_per_task=1)
    ended = await op.end(run)
    assert ended.state == RunState.COMPLETED
    result = await op.client.result(run)
    assert (result.trials_settled, result.trials_scored, result.launch_failed) == (2, 1, 1)
    assert result.by_task == {"tests/broken": [None], "tests/fine": [1.0]}


async def test_invariant_16_a_reward_that_no_record_can_hold_costs_its_own_trial(
    op: Operator, tasks: Bench
) -> None:
    huge = tasks.task("huge", "echo 1e16 > /logs/verifier/reward.txt")
    dataset = await op.publish(huge, tasks.task("plain"))
    run = await op.start(dataset, profile("true"), trials_per_task=1)
    ended = await op.end(run)
    assert ended.state == RunState.COMPLETED, ended.reason
    result = await op.client.result(run)
    assert (result.trials_settled, result.trials_scored) == (2, 1)
    assert result.by_task == {"tests/huge": [None], "tests/plain": [1.0]}


async def test_a_tampered_profile_is_refused_by_the_worker_that_reads_it(
    op: Operator, tasks: Bench
) -> None:
    dataset = await op.publish(tasks.task("tampered"))
    op.stack.end("worker")
    run = await op.start(dataset, profile("echo tampered-with"), trials_per_task=1)
    digest = (await op.client.run(run)).spec.actor.removeprefix("sha256:")
    (stored,) = op.stack.home.objects.rglob(f"*{digest[8:]}")
    content = stored.read_bytes().replace(b"tampered-with", b"tampered_with")
    stored.chmod(0o600)
    stored.write_bytes(content)
    op.stack.start("worker")
    ended = await op.end(run)
    assert ended.state == RunState.FAILED
    assert ended.reason is not None
    assert ended.reason.code == "digest_mismatch"
    assert (await op.client.result(run)).trials_started == 0


async def test_invariant_10_a_worker_that_slept_through_its_lease_changes_nothing(
    op: Operator, tasks: Bench
) -> None:
    marker = f"slept-{time.time_ns()}"
    dataset = await op.publish(tasks.task("sleeper", agent=120))
    run = await op.start(dataset, profile(f"exec -a {marker} sleep 300"), trials_per_task=1)
    await running(op, run, marker, 1)
    process = op.stack.processes["worker"]
    process.send_signal(signal.SIGSTOP)
    async with WorkerClient.at(op.stack.home) as thief:
        claim = None
        with anyio.fail_after(20 * LEASE_SEC):
            while claim is None:
                claim = await thief.claim(new_id(Prefix.WORKER), LEASE_SEC)
                await anyio.sleep(0.1)
    assert claim.run == run
    taken = (await op.client.run(run)).last_event
    process.send_signal(signal.SIGCONT)
    with anyio.fail_after(30):
        while processes_with(marker):  # noqa: ASYNC110 - the sleeper drops its trial
            await anyio.sleep(0.05)
    assert (await op.client.run(run)).last_event == taken
    await op.client.cancel(run)
    await op.end(run, seconds=60)
    assert op.stack.left() == []
