"""Operations by command against a real stack: codes, conflicts, waiting, following."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import Stack, profile, write_tasks

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(600)]

PLAN = {"trials_per_task": 1}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    made = Stack(Path(os.path.realpath(tmp_path_factory.mktemp("s"))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRACTICUM_MODELS", str(made.root / "models"))
        write_tasks(made.root / "tasks", 2)
        assert made.run("model", "pull", "tiny", timeout=180).code == 0, "autostart"
        publish(made, "e2e/cli@v1")
        yield made
        assert made.run("down").code == 0
        assert made.processes() == []


def publish(stack: Stack, name: str) -> Any:
    return stack.json("dataset", "publish", str(stack.root / "tasks"), "--as", name)


def start(stack: Stack, *more: str, actor: Any = None, plan: Any = None) -> Any:
    words = ["--dataset", "e2e/cli@v1", "--actor", stack.write("a.json", actor or profile())]
    words += ["--plan", stack.write("p.json", plan or PLAN), *more]
    return stack.run("run", "start", *words, "--json")


def known_runs(stack: Stack) -> list[str]:
    """Ids alone: a run of an earlier test may still be settling."""
    return [run["id"] for run in stack.json("run", "list")["items"]]


def code(done: Any) -> tuple[int, str]:
    return done.code, json.loads(done.err.splitlines()[-1])["code"]


def test_a_version_is_immutable_and_publishing_it_again_changes_nothing(stack: Stack) -> None:
    first = publish(stack, "e2e/cli@v1")
    assert publish(stack, "e2e/cli@v1") == first
    (stack.root / "tasks" / "task-0" / "extra.txt").write_text("more")
    changed = stack.run(
        "dataset", "publish", str(stack.root / "tasks"), "--as", "e2e/cli@v1", "--json"
    )
    (stack.root / "tasks" / "task-0" / "extra.txt").unlink()
    assert code(changed) == (1, "version_exists")


def test_a_key_gives_one_run_and_refuses_another_body(stack: Stack) -> None:
    """Invariant 9."""
    first = start(stack, "--idempotency-key", "k").json()
    again = start(stack, "--idempotency-key", "k").json()
    assert (first["created"], again["created"], again["run"]) == (True, False, first["run"])
    other = start(stack, "--idempotency-key", "k", plan={"trials_per_task": 2})
    assert code(other) == (1, "idempotency_conflict")


def test_a_dry_run_starts_nothing(stack: Stack) -> None:
    before = known_runs(stack)
    dry = start(stack, "--dry-run").json()
    assert (dry["run"], dry["admission"]["planned_slots"]) == (None, 2)
    assert known_runs(stack) == before


def test_what_is_not_there_exits_3_and_a_judge_is_refused(stack: Stack) -> None:
    for words in (
        ("run", "show", "run_" + "0" * 32),
        ("checkpoint", "show", "ckp_" + "0" * 32),
        ("profile", "show", "no/such@v1"),
        ("dataset", "show", "no/such@v1"),
    ):
        assert code(stack.run(*words, "--json")) == (3, "not_found")
    judge = stack.write("judge.json", profile())
    assert code(start(stack, "--judge", judge)) == (2, "judge_unsupported")
    assert code(start(stack, actor=profile(model="no-such-model")))[0] in (2, 3)


def test_a_run_is_followed_read_and_compared(stack: Stack) -> None:
    run = start(stack).json()["run"]
    followed = stack.run("run", "events", run, "--follow", "--timeout", "4m", "--json", timeout=300)
    assert followed.code == 0
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert [event["seq"] for event in lines[:-1]] == list(range(1, len(lines)))
    assert lines[-1] == {"events": [], "next": len(lines) - 1, "terminal": True}
    assert stack.run("run", "wait", run).code == 0
    assert stack.json("run", "show", run[:16])["id"] == run
    result = stack.json("run", "result", run)
    assert (result["planned_slots"], result["trials_settled"], result["batches"]) == (2, 2, 0)
    logs = stack.json("run", "logs", run, "--source", "worker")
    assert logs["items"]
    assert stack.run("run", "compare", run, run).code == 0
    assert stack.run("run", "verify", run, "--samples", "0").code == 0


def test_a_wait_ends_at_its_timeout_and_fails_once_its_run_is_cancelled(stack: Stack) -> None:
    run = start(stack, plan={"trials_per_task": 100}).json()["run"]
    early = stack.run("run", "events", run, "--follow", "--timeout", "10ms", "--json")
    assert code(early) == (4, "wait_timed_out")
    assert stack.json("run", "cancel", run)["state"] in ("cancelling", "cancelled")
    waited = stack.run("run", "wait", run, "--timeout", "3m", "--json", timeout=240)
    assert (waited.code, json.loads(waited.out)["state"]) == (1, "cancelled")


def test_a_profile_is_published_once_and_started_by_name(stack: Stack) -> None:
    path = stack.write("profile.json", profile())
    published = stack.json("profile", "publish", path, "--version", "v1")
    assert published["reference"] == "e2e/parity@v1"
    shown = stack.json("profile", "show", "e2e/parity@v1")
    assert shown["digest"] == published["digest"]
    assert stack.json("profile", "diff", "e2e/parity@v1", path)["differences"] == []
    words = ("--dataset", "e2e/cli@v1", "--actor", "e2e/parity@v1", "--dry-run")
    dry = stack.json("run", "start", *words, "--plan", stack.write("p.json", PLAN))
    assert dry["admission"]["actor"] == published["digest"]


def test_tasks_are_chosen_and_published_apart(stack: Stack) -> None:
    chosen = stack.json("dataset", "select", "e2e/cli@v1", "--name", "*-1", "--as", "e2e/half@v1")
    assert chosen["tasks"] == {"names": ["e2e/parity-1"]}
    assert stack.json("dataset", "show", "e2e/half@v1")["count"] == 1
    assert code(stack.run("dataset", "select", "e2e/cli@v1", "--family", "x", "--json"))[0] == 3


def test_a_profile_is_checked_with_learning_rate_0(stack: Stack) -> None:
    words = (stack.write("check.json", profile()), "--dataset", "e2e/cli@v1", "--tasks", "1")
    done = stack.run("train", "check", *words, "--timeout", "4m", "--json", timeout=300)
    report = json.loads(done.out)
    assert (done.code, report["ok"]) == (0, True), report
    assert all(finding["holds"] for finding in report["findings"])
    assert report["metrics"]["weights_unchanged"] == 1
    assert report["metrics"]["logprob_change"] == 0
    assert report["metrics"]["max_logprob_difference"] <= 1e-4
    (update,) = stack.json("run", "updates", report["run"])["items"]
    assert (update["state"], update["learning_rate"]) == ("acknowledged", 0)
    assert update["metrics"] == report["metrics"]
    assert stack.run("run", "verify", report["run"], "--samples", "0").code == 0
