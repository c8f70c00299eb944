"""Real Harbor trials in real sandboxes: every end of a trial is an outcome and a verdict."""

import time
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from runtime.execution import scripts
from runtime.execution.board import Board
from runtime.execution.collect import collect_file, collect_tree
from runtime.execution.harbor import Deadlines, run_trial, task_facts
from specs.records import TrialOutcome
from tests.runtime.execution.bench import TOKEN, Bench, processes_with

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

EXAMPLE = Path(__file__).parents[3] / "examples" / "shell-practice" / "practice-09-copy-file"


@pytest.mark.parametrize(("agent", "reward"), [("oracle", 1.0), ("nop", 0.0)])
async def test_harbors_own_agents_run_through_the_adapter(
    bench: Bench, agent: Literal["oracle", "nop"], reward: float
) -> None:
    ran = await bench.run(EXAMPLE, agent=agent)
    assert (ran.board.outcome, ran.verdict) == (TrialOutcome.COMPLETED, (reward, None)), (
        ran.board.detail
    )
    assert ran.board.environment_version is not None
    assert ran.board.environment_version.startswith("sha256:")


async def test_a_launch_plan_runs_as_it_is(bench: Bench) -> None:
    task = bench.task("literal", "[ -f /app/done ] && echo 1 > /logs/verifier/reward.txt")
    weird = "a b'c\"d $HOME `id` \\ \n*;&|"
    ran = await bench.run(
        task,
        args=["bash", "/opt/agent/run.sh", weird, "${model.token}"],
        files=[
            {
                "path": "/opt/agent/run.sh",
                "content": 'printf "<%s>" "$@"; cat; pwd; echo "$RUN $ANTHROPIC_BASE_URL"; '
                "cat own.txt; touch done",
                "mode": "755",
            },
            {"path": "own.txt", "content": "ä ${run.id}\n"},
        ],
        setup=["echo prepared > /tmp/prepared", "cat /tmp/prepared"],
        env={"RUN": "${run.id}"},
    )
    assert (ran.board.outcome, ran.board.exit_code) == (TrialOutcome.COMPLETED, 0)
    assert ran.verdict == (1.0, None)
    text = ran.log("agent/harness.log")
    assert text == (
        f"<{weird}><{TOKEN}>Do the task.\n/app\nrun_1 http://127.0.0.1:8484\nä ${{run.id}}\n"
    )
    assert "prepared" in ran.log("agent/setup.log")
    assert {"environment", "setup", "agent", "verifier"} <= set(ran.concluded.seconds)


@pytest.mark.parametrize("deliver", ["argument", "file"])
async def test_the_instruction_arrives(bench: Bench, deliver: str) -> None:
    word = {"argument": "${instruction}", "file": "${instruction.file}"}[deliver]
    command = {"argument": 'printf %s "$1"', "file": 'cat "$1"'}[deliver]
    ran = await bench.run(
        bench.task(f"deliver-{deliver}"),
        args=["bash", "-c", command, "sh", word],
        instruction={"deliver": deliver},
    )
    assert ran.board.outcome == TrialOutcome.COMPLETED
    assert ran.log("agent/harness.log") == "Do the task.\n"


@pytest.mark.parametrize(
    ("recipe", "cause"),
    [
        ({"setup": ["true", "echo broken; exit 3", "touch /app/never"]}, "setup command"),
        ({"args": ["/no/such/harness"]}, "could not be started"),
        ({"args": ["bash", "-c", "true", "x" * 200_000]}, "could not be started"),
        ({"files": [{"path": "/proc/version/x", "content": ""}]}, "could not be written"),
        ({"workdir": "/etc/passwd"}, "workdir"),
    ],
)
async def test_invariant_4_a_launch_that_fails_is_a_state_of_its_own(
    bench: Bench, recipe: dict[str, Any], cause: str
) -> None:
    ran = await bench.run(bench.task("launch"), **recipe)
    assert ran.board.outcome == TrialOutcome.LAUNCH_FAILED
    assert cause in ran.board.detail
    assert ran.verdict == (None, "launch_failed")


async def test_invariant_4_a_task_that_cannot_be_built_is_a_launch_failure(bench: Bench) -> None:
    files = {"environment/Dockerfile": "FROM scratch\nADD https://example.org/x /x\n"}
    ran = await bench.run(bench.task("unbuildable", files=files))
    assert ran.board.outcome == TrialOutcome.LAUNCH_FAILED
    assert ran.verdict == (None, "launch_failed")


async def test_the_evidence_is_sealed_between_the_harness_and_its_verifier(bench: Bench) -> None:
    """Also behind a harness that failed: its verifier looks at it all the same."""
    task = bench.task("sealed", "cat /app/seen > /logs/verifier/reward.txt")
    seen: list[tuple[int | None, object]] = []

    async def seal(board: Board) -> None:
        seen.append((board.exit_code, board.verdict))

    ran = await bench.run(task, "echo 0.5 > seen; exit 3", seal=seal)
    assert seen == [(3, None)]
    assert ran.verdict == (0.5, None)


async def test_a_harness_that_fails_is_still_assessed(bench: Bench) -> None:
    ran = await bench.run(bench.task("exit"), "exit 7")
    assert (ran.board.outcome, ran.board.exit_code) == (TrialOutcome.AGENT_FAILED, 7)
    assert ran.verdict == (1.0, None)


async def test_invariant_16_a_deadline_kills_all_children_and_is_assessed(bench: Bench) -> None:
    task = bench.task("slow", "pgrep -f sleep-marker; echo $? > /logs/verifier/reward.txt", agent=1)
    marker = f"sleep-marker-{time.time_ns()}"
    script = (
        f"(exec -a {marker} sleep 600) & setsid bash -c 'exec -a {marker} sleep 600' & "
        f"exec -a {marker} sleep 600"
    )
    ran = await bench.run(task, script)
    assert ran.board.outcome == TrialOutcome.AGENT_TIMEOUT
    assert ran.verdict == (1.0, None), "a child outlived the deadline"
    assert processes_with(marker) == []
    assert ran.concluded.seconds["agent"] < 20


async def test_missing_required_outputs_are_an_outcome_of_their_own(bench: Bench) -> None:
    outputs = [
        {"path": "report.md"},
        {"path": "link.md"},
        {"path": "kept.md"},
        {"path": "optional.md", "required": False},
    ]
    script = "echo kept > kept.md; ln -s /etc/passwd link.md"
    ran = await bench.run(bench.task("outputs"), script, outputs=outputs)
    assert ran.board.outcome == TrialOutcome.MISSING_OUTPUT
    assert ran.board.missing_outputs == ("report.md", "link.md")
    kept = collect_file(ran.concluded.folder / "agent" / scripts.OUTPUTS / "2")
    assert kept is not None
    assert kept.data == b"kept\n"
    assert collect_file(ran.concluded.folder / "agent" / scripts.OUTPUTS / "1") is None


@pytest.mark.parametrize(
    ("test", "reward", "reason"),
    [
        ("echo 0 > /logs/verifier/reward.txt", 0.0, None),
        ("echo -1.5 > /logs/verifier/reward.txt", -1.5, None),
        ('echo \'{"reward": 0.5, "style": 1}\' > /logs/verifier/reward.json', 0.5, None),
        ("echo 1 > /logs/verifier/reward.txt; exit 9", 1.0, None),
        ("true", None, "reward_missing"),
        (": > /logs/verifier/reward.txt", None, "reward_missing"),
        ("echo nan > /logs/verifier/reward.txt", None, "reward_malformed"),
        ("echo passed > /logs/verifier/reward.txt", None, "reward_malformed"),
        ("echo [1] > /logs/verifier/reward.json", None, "reward_malformed"),
        ("yes 1 | head -c 9000000 > /logs/verifier/reward.txt", None, "reward_malformed"),
        ("sleep 60", None, "verifier_failed"),
    ],
)
async def test_invariant_4_every_reward_file_is_a_number_or_a_reason(
    bench: Bench, test: str, reward: float | None, reason: str | None
) -> None:
    ran = await bench.run(bench.task("reward", test, verifier=2 if "sleep" in test else 30))
    assert ran.board.outcome == TrialOutcome.COMPLETED
    assert ran.verdict == (reward, reason)
    if reason:
        assert ran.concluded.verdict.detail


async def test_a_reward_that_is_a_link_to_the_host_is_not_followed(bench: Bench) -> None:
    secret = bench.root / "secret-reward"
    secret.write_text("1")
    ran = await bench.run(
        bench.task("link", f"ln -sf {secret} /logs/verifier/reward.txt; ls /logs/verifier")
    )
    assert ran.concluded.verdict.reward is None


async def test_without_scoring_nothing_is_verified(bench: Bench) -> None:
    ran = await bench.run(bench.task("unscored"), scored=False)
    assert (ran.board.outcome, ran.verdict) == (TrialOutcome.COMPLETED, (None, "not_scored"))


async def test_artifacts_are_collected_and_links_in_them_are_not_followed(bench: Bench) -> None:
    task = bench.task("artifacts", before='artifacts = ["/app/out"]\n')
    script = (
        "mkdir out; echo result > out/result.txt; ln -s /etc/shadow out/shadow; "
        "ln -s ../../../../../../etc/passwd out/up; mkfifo out/pipe; "
        "echo note > /logs/artifacts/note.txt; ln -s /etc/shadow /logs/artifacts/abs"
    )
    ran = await bench.run(task, script)
    assert ran.verdict == (1.0, None)
    found = collect_tree(ran.concluded.folder / "artifacts")
    names = {item.path.rpartition("/")[2]: item.data for item in found}
    assert names.pop("manifest.json")
    assert names == {"result.txt": b"result\n", "note.txt": b"note\n"}


async def test_a_task_with_steps_runs_the_harness_once_per_step(bench: Bench) -> None:
    steps = '[[steps]]\nname = "one"\n[[steps]]\nname = "two"\n'
    test = "#!/bin/bash\ngrep -c step /app/seen > /logs/verifier/reward.txt\n"
    files = {
        f"steps/{name}/{part}": content
        for name in ("one", "two")
        for part, content in (("instruction.md", f"step {name}\n"), ("tests/test.sh", test))
    }
    task = bench.task("steps", more=steps, files=files)
    (task / "instruction.md").unlink()
    ran = await bench.run(task, "cat >> seen")
    assert ran.board.outcome == TrialOutcome.COMPLETED
    assert ran.verdict == (1.5, None)
    assert ran.log("steps/two/agent/harness.log") is not None


async def test_invariant_16_the_deadline_of_a_whole_trial_covers_everything(bench: Bench) -> None:
    ran = await bench.run(bench.task("whole", agent=60), "sleep 60", trial_sec=2.5)
    assert ran.board.outcome == TrialOutcome.AGENT_TIMEOUT
    assert ran.verdict == (None, "verifier_failed")
    assert bench.left() == []


async def test_invariant_16_cancelling_stops_the_sandbox_first(bench: Bench) -> None:
    task = bench.task("cancelled", agent=60)
    marker = f"cancel-marker-{time.time_ns()}"
    facts = task_facts(task)
    board = bench.board(f"exec -a {marker} sleep 600", facts.instruction)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:

            async def cancel_when_it_runs() -> None:
                while not processes_with(marker):  # noqa: ASYNC110 - another process's doing
                    await anyio.sleep(0.02)
                scope.cancel()

            group.start_soon(cancel_when_it_runs)
            await run_trial(
                board, task, bench.root / "trials", bench.environment(board), Deadlines.of(facts)
            )
    assert scope.cancelled_caught
    assert processes_with(marker) == []
    assert bench.left() == []


async def test_invariant_13_no_credential_is_written_into_the_trials_records(bench: Bench) -> None:
    ran = await bench.run(bench.task("secret"), env={"KEY": "${model.token}"})
    for name in ("config.json", "lock.json", "result.json", "trial.log"):
        assert TOKEN not in ran.log(name)


async def test_invariant_16_trials_that_fail_do_not_touch_their_neighbours(bench: Bench) -> None:
    bomb = bench.task("bomb", agent=3)
    hog = bench.task("hog", agent=10)
    good = bench.task("good", "[ -f /app/ok ] && echo 1 > /logs/verifier/reward.txt")
    results: dict[str, TrialOutcome | None] = {}

    async def run(name: str, task: Path, script: str) -> None:
        results[name] = (await bench.run(task, script)).board.outcome

    async with anyio.create_task_group() as group:
        group.start_soon(run, "bomb", bomb, ":(){ :|:& };:; sleep 60")
        group.start_soon(run, "hog", hog, "exec tail /dev/zero")
        group.start_soon(run, "good", good, "sleep 1; touch ok")
    assert results["good"] == TrialOutcome.COMPLETED
    assert results["hog"] in (TrialOutcome.AGENT_FAILED, TrialOutcome.AGENT_TIMEOUT)
    assert results["bomb"] in (TrialOutcome.AGENT_TIMEOUT, TrialOutcome.AGENT_FAILED)
