"""A training run whose model is at the training service: the whole stack over the real SDK.

The service is the loopback one, so that its numbers are real: `tiny`, behind HTTP.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.e2e.support import Stack, profile, write_tasks
from tests.runtime.compute.loopback import REMOTE, Loopback, loopback
from tests.runtime.compute.tinker_server.app import KEY, MODEL

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(1800)]

PLAN = {
    "num_batches": 2,
    "batch": {"tasks": 2, "trials_per_task": 3},
    "learning_rate": 0.001,
    "resources": {"concurrency": 2},
    "lora": {"rank": 2},
}
SETTINGS = """\
[tinker]
base_url = "{base_url}"
keep_sec = 864000
[[tinker.models]]
name = "tiny"
model = "{model}"
tokenizer = "tiny"
context_tokens = 4096
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """The service of these tests."""
    with loopback(tmp_path_factory.mktemp("service")) as made:
        yield made


@pytest.fixture
def stack(service: Loopback) -> Iterator[Stack]:
    """A stack that is configured for the service, and not started."""
    with TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        made = Stack(Path(name))
        made.home.mkdir()
        settings = SETTINGS.format(base_url=service.base_url, model=MODEL)
        (made.home / "config.toml").write_text(settings)
        write_tasks(made.root / "tasks", 2)
        yield made
        assert made.run("down").code == 0
        assert not made.processes()


def _train(stack: Stack, *words: str) -> tuple[str, ...]:
    deadline = time.monotonic() + 120
    while REMOTE not in {model["name"] for model in stack.json("model", "list")["models"]}:
        assert time.monotonic() < deadline, "the worker announces no model of the service"
        time.sleep(0.5)
    tasks = str(stack.root / "tasks")
    stack.run("dataset", "publish", tasks, "--as", "e2e/parity@v1")
    actor = stack.write("actor.json", profile(model=REMOTE))
    plan = stack.write("train.json", PLAN)
    return (
        "train", "start", "--dataset", "e2e/parity@v1", "--actor", actor, "--plan", plan, *words,
    )  # fmt: skip


def test_without_the_key_a_run_is_refused_before_any_work(
    stack: Stack, service: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    before = service.counts()
    assert stack.run("up").code == 0
    for words in (("--dry-run",), ()):
        refused = stack.run(*_train(stack, *words))
        assert refused.code == 2
        assert "key of the training service is not set" in refused.err
    assert service.counts() == before


def test_a_run_trains_at_the_service_and_verifies(
    stack: Stack, service: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)
    assert stack.run("up").code == 0
    run = str(stack.json(*_train(stack))["run"])
    service.fault("optim_step", "drop")
    service.fault("retrieve_future", "paused", detail="paused_capacity", count=300)
    stack.run("run", "events", run, "--follow", "--timeout", "15m", timeout=1000)
    shown = stack.json("run", "show", run)
    assert shown["state"] == "completed", shown
    updates = stack.json("run", "result", run)["updates"]
    assert updates.get("acknowledged", 0) + updates.get("skipped", 0) == 2
    assert updates.get("acknowledged", 0) >= 1
    told: list[str] = [
        e["data"]["state"] for e in _events(stack, run) if e["type"] == "compute.waiting"
    ]
    assert "no_capacity" in told and told[-1] == "active"
    verified = stack.run("run", "verify", run, timeout=600)
    assert verified.code == 0, verified.out + verified.err
    (last, *_) = stack.json("run", "checkpoints", run)["items"]
    assert last["state_expires_at"] is not None, "the service keeps states for `keep_sec`"
    evaluated = profile(model=last["id"])
    plan = stack.write("eval.json", {"trials_per_task": 1})
    actor = stack.write("trained.json", evaluated)
    words = ("run", "start", "--dataset", "e2e/parity@v1", "--actor", actor, "--plan", plan)
    evaluation = str(stack.json(*words)["run"])
    stack.run("run", "events", evaluation, "--follow", "--timeout", "5m", timeout=400)
    assert stack.json("run", "show", evaluation)["state"] == "completed"
    for log in (stack.home / "logs").iterdir():
        assert KEY not in log.read_text(), f"the key is in {log.name}"


def _events(stack: Stack, run: str) -> list[Any]:
    return stack.json("run", "events", run, "--limit", "500")["events"]
