"""A whole local stack in a folder of its own, driven by `practicum` commands alone.

The tasks here suit the `tiny` model, whose replies are noise: the harness writes the reply's
length into a file and the verifier rewards an even one, so that groups have variance, batches
have updates, and every layer does what it does for real work.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from runtime.client import OperatorClient
from runtime.home import Home
from specs import evidence
from specs.errors import Unavailable
from specs.interaction import Interaction
from specs.operator_api import Session

_TASK = """\
schema_version = "1.4"

[task]
name = "e2e/{name}"

[metadata]
family = "parity"

[agent]
timeout_sec = 60.0

[verifier]
timeout_sec = 30.0

[environment]
network_mode = "no-network"
workdir = "/app"
cpus = 1
memory_mb = 256
"""

_TEST = """\
#!/bin/bash
read -r length < /app/length.txt || exit 0
echo $(( (length + 1) % 2 )) > /logs/verifier/reward.txt
"""

_AGENT = """\
import http.client, json, os, sys
from urllib.parse import urlsplit

url = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
messages = [{"role": "user", "content": sys.stdin.read()}]
total = 0
for _ in range(2):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    body = json.dumps({"model": "any", "max_tokens": 6, "messages": messages})
    connection.request("POST", "/v1/messages", body, {
        "authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"],
        "content-type": "application/json",
    })
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        sys.exit(data.decode())
    reply = "".join(b["text"] for b in json.loads(data)["content"] if b["type"] == "text")
    total += len(reply)
    messages += [{"role": "assistant", "content": reply or "-"}]
    messages += [{"role": "user", "content": "go on"}]
open("/app/length.txt", "w").write(f"{total}\\n")
"""


@dataclass(frozen=True)
class Done:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass(frozen=True)
class Attempt:
    """The one trial of an evaluation, at its end."""

    stack: "Stack"
    run: str
    trial: dict[str, Any]
    verified: dict[str, Any]
    """What `run verify` found."""

    async def recorded(self) -> tuple[list[Interaction], list[str]]:
        """The calls of the trial out of its sealed evidence, and why others were refused."""
        async with OperatorClient.at(Home.at(self.stack.home)) as gateway:
            data = await gateway.object(self.trial["settled"]["seal"]["object"])
        return evidence.interactions(data), [one.code for one in evidence.refusals(data)]


@dataclass(frozen=True)
class Stack:
    """Commands against one home."""

    root: Path

    @property
    def home(self) -> Path:
        return self.root / "home"

    def run(self, *words: str, timeout: float = 120) -> Done:
        """Run `practicum words…` and wait."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tools", *words],
            env={**os.environ, "PRACTICUM_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def json(self, *words: str, timeout: float = 120) -> Any:
        """The JSON that a command prints; it must succeed."""
        return self.run(*words, "--json", timeout=timeout).json()

    def solved(
        self,
        dataset: str,
        actor: dict[str, Any],
        *,
        plan: dict[str, Any] | None = None,
        minutes: int = 14,
    ) -> Attempt:
        """One trial of the actor on the dataset's one task: it completes, earns 1, and verifies."""
        started = self.json(
            *("run", "start", "--dataset", dataset),
            *("--actor", self.write("actor.json", actor)),
            *("--plan", self.write("plan.json", plan or {"trials_per_task": 1})),
        )
        run = str(started["run"])
        ended = self.json("run", "wait", run, "--timeout", f"{minutes}m", timeout=60 * minutes + 30)
        logs = self.run("run", "logs", run).out[-4000:]
        assert ended["state"] == "completed", logs
        (trial,) = self.json("run", "trials", run)["items"]
        assert trial["settled"]["outcome"] == "completed", logs
        assert trial["assessment"]["reward"] == 1.0, logs
        verified = self.run("run", "verify", run, "--json")
        assert verified.code == 0, verified.out
        return Attempt(self, run, trial, verified.json())

    def processes(self) -> list[int]:
        """Every live process whose command line names this home, the sandboxes included."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                line = (entry / "cmdline").read_bytes()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if os.fsencode(self.home) in line and state != "Z":
                found.append(int(entry.name))
        return found

    def kill(self) -> None:
        """`kill -9` everything of this home at once, the supervisor first."""
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 30
        while self.processes():
            assert time.monotonic() < deadline, "killed processes are still there"
            time.sleep(0.02)

    def write(self, name: str, value: object) -> str:
        """A JSON file, as an `@file` argument."""
        path = self.root / name
        path.write_text(json.dumps(value))
        return f"@{path}"


async def until_sealed(home: Path, session: str) -> Session:
    """A session that has ended, once the proxy has handed over what was said in it."""
    with anyio.fail_after(60):
        async with OperatorClient.at(Home.at(home), patience=10) as gateway:
            while (found := await gateway.session(session)).seal is None:  # noqa: ASYNC110
                await anyio.sleep(0.2)
            return found


def obtained[T](get: Callable[[], T]) -> T:
    """What must be fetched once; where it cannot be, the tests that need it are skipped."""
    try:
        return get()
    except Unavailable as error:
        pytest.skip(str(error))


@contextmanager
def own_stack() -> Generator[Stack]:
    """A home and a model cache of one's own, not started; the stack is ended and checked after."""
    with (
        tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        made = Stack(Path(name))
        patch.setenv("PRACTICUM_MODELS", str(made.root / "models"))
        yield made
        down = made.run("down")
        assert down.code == 0, down.err
        assert not made.processes()


def write_tasks(folder: Path, count: int) -> None:
    """`count` parity tasks as Harbor directories."""
    for number in range(count):
        task = folder / f"task-{number}"
        for part in ("environment", "tests", "solution"):
            (task / part).mkdir(parents=True)
        (task / "task.toml").write_text(_TASK.format(name=f"parity-{number}"))
        (task / "instruction.md").write_text(f"Say something ({number}).\n")
        (task / "environment" / "Dockerfile").write_text(
            "FROM debian:bookworm-slim\nWORKDIR /app\n"
        )
        (task / "tests" / "test.sh").write_text(_TEST)
        (task / "solution" / "solve.sh").write_text("#!/bin/bash\necho 2 > /app/length.txt\n")


def profile(**changes: object) -> dict[str, object]:
    """A profile that works on parity tasks with the tiny model."""
    agent: dict[str, object] = {
        "model": "tiny",
        "engine": {"name": "command", "version": "1"},
        "files": [{"path": "/opt/agent/agent.py", "content": _AGENT}],
        "workdir": "/app",
        "args": ["python3", "/opt/agent/agent.py"],
        "instruction": {"deliver": "stdin"},
        "sampling": {"temperature": 1.0},
        **changes,
    }
    return {"schema": "practicum.profile/v1", "name": "e2e/parity", "agent": agent}
