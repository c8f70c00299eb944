"""A local stack of real processes, started by hand, with the tiny model and small tasks."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from runtime.client import OperatorClient
from runtime.home import Home, Role
from runtime.supervisor.health import answers
from specs import canonical, package
from specs.dataset import Dataset, TaskEntry
from specs.events import Event
from specs.ids import Prefix, new_id
from specs.run import Run, RunState, Submission

REPOSITORY = Path(__file__).parents[3]
LEASE_SEC = 8.0
MODULES = {
    "gateway": "runtime.gateway",
    "compute": "runtime.compute",
    "proxy": "proxy",
    "worker": "runtime.worker",
}
CALLING_HARNESS = """\
import http.client, json, os, sys
from urllib.parse import urlsplit
url = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
text = sys.stdin.read()
connection = http.client.HTTPConnection(url.hostname, url.port, timeout=60)
body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": text}]}
headers = {
    "authorization": "Bearer " + os.environ["ANTHROPIC_AUTH_TOKEN"],
    "content-type": "application/json",
}
connection.request("POST", "/v1/messages", json.dumps(body), headers)
answer = connection.getresponse()
data = answer.read()
print(answer.status, data.decode())
sys.exit(0 if answer.status == 200 else 3)
"""


def profile(script: str, **agent: Any) -> dict[str, Any]:
    """A profile whose harness is a bash script."""
    return {
        "schema": "practicum.profile/v1",
        "name": "tests/actor",
        "agent": {
            "model": "tiny",
            "engine": {"name": "command", "version": "1"},
            "args": ["bash", "-c", script],
            **agent,
        },
    }


def calling_profile() -> dict[str, Any]:
    """A profile whose harness makes one model call."""
    return profile(
        "",
        files=[{"path": "/opt/agent.py", "content": CALLING_HARNESS}],
        args=["python3", "/opt/agent.py"],
    )


@dataclass
class Stack:
    """Processes of one home; `kill` and `start` are as abrupt as in real life."""

    home: Home
    processes: dict[str, "subprocess.Popen[bytes]"] = field(
        default_factory=dict[str, "subprocess.Popen[bytes]"]
    )

    def start(self, *parts: str, lease: float = LEASE_SEC) -> None:
        for part in parts:
            with (self.home.logs / f"{part}.log").open("ab") as log:
                command = [sys.executable, "-P", "-m", MODULES[part], "--home", str(self.home.root)]
                if part == "worker":
                    command += ["--lease", str(lease)]
                self.processes[part] = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.home.root,
                    env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
                    start_new_session=True,
                )

    def end(self, part: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Signal a part and wait for its end."""
        process = self.processes.pop(part)
        process.send_signal(how)
        return process.wait(timeout=30)

    def ready(self, *parts: str, seconds: float = 40) -> None:
        sockets = {
            "gateway": (self.home.gateway_socket, None),
            "proxy": (self.home.proxy_socket, self.home.key(Role.WORKER)),
        }
        deadline = time.monotonic() + seconds
        for part in parts:
            path, key = sockets[part]
            while not answers(path, key):
                assert self.processes[part].poll() is None, self.log(part)
                assert time.monotonic() < deadline, f"{part} is not ready: {self.log(part)}"
                time.sleep(0.05)

    def log(self, part: str) -> str:
        return (self.home.logs / f"{part}.log").read_text()[-4000:]

    def stop(self) -> None:
        for part in ("worker", "proxy", "compute", "gateway"):
            if part in self.processes:
                self.end(part)

    def left(self) -> list[str]:
        """Sandboxes and trial folders that lie about."""
        work = self.home.work
        folders = [*(work / "sandboxes" / "run").glob("*"), *(work / "trials").glob("*")]
        return [str(folder.relative_to(work)) for folder in folders]


@dataclass
class Operator:
    """What a test does as an operator."""

    client: OperatorClient
    stack: Stack

    async def publish(self, *folders: Path, name: str = "tests/tasks") -> str:
        """Publish a dataset of task folders; its reference."""
        entries: list[TaskEntry] = []
        for folder in folders:
            data = package.pack(folder)
            digest = await self.client.upload(data)
            entries.append(TaskEntry(name=f"tests/{folder.name}", digest=digest, size=len(data)))
        version = new_id(Prefix.UPLOAD)[4:20]
        dataset = Dataset(name=name, version=version, tasks=tuple(entries))
        return (await self.client.publish_dataset(dataset)).reference

    async def known(self) -> None:
        """Wait until the worker has told of the model."""
        with anyio.fail_after(120):
            while not any(m.name == "tiny" for m in (await self.client.models()).models):  # noqa: ASYNC110
                await anyio.sleep(0.1)

    async def start(self, dataset: str, actor: dict[str, Any], **plan: Any) -> str:
        """Start a run once the model is known."""
        await self.known()
        submission = Submission(dataset=dataset, actor=actor, plan=plan)
        return (await self.client.start(submission)).run

    async def until(self, run: str, *states: RunState, seconds: float = 90) -> Run:
        """Wait for a state."""
        current = await self.client.run(run)
        deadline = anyio.current_time() + seconds
        while current.state not in states:
            told = f"{current.state}: {current.reason}\n{self.stack.log('worker')}"
            assert anyio.current_time() < deadline and not current.state.terminal, told
            await anyio.sleep(0.05)
            current = await self.client.run(run)
        return current

    async def end(self, run: str, seconds: float = 90) -> Run:
        """Wait for the end."""
        states = [state for state in RunState if state.terminal]
        return await self.until(run, *states, seconds=seconds)

    async def events(self, run: str) -> list[Event]:
        page = await self.client.events(run, limit=1000)
        return page.events


@asynccontextmanager
async def operator(stack: Stack) -> AsyncGenerator[Operator]:
    async with OperatorClient.at(stack.home, patience=20) as client:
        yield Operator(client, stack)


def digest_of(folder: Path) -> str:
    return canonical.digest_bytes(package.pack(folder))
