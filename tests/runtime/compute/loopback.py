"""A Tinker loopback service for a test: started, steered, killed and started again.

Its configuration names one model that it trains and one that it only samples.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtime.compute.router import LocalCompute
from specs.tinker import TinkerModel, TinkerSettings
from tests.runtime.compute.tinker_server.app import KEY, MODEL, SERVED

REMOTE = "tinker/tiny"
"""Our name of the model that the service trains."""
START_SEC = 120.0
LEAVES = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""The SDK never closes the connection over which it fetches its configuration."""


class Loopback:
    """One service on a port of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port: int = found.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_url(self) -> str:
        """As the configuration names it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the process and wait until it answers."""
        command = [sys.executable, "-P", "-m", "tests.runtime.compute.tinker_server"]
        command += ["--port", str(self.port), "--folder", str(self.folder)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(command, env=environment)
        deadline = time.monotonic() + START_SEC
        while True:
            try:
                self.ask("GET", "counts")
            except httpx.TransportError:
                assert self._process.poll() is None, "the loopback service ended"
                assert time.monotonic() < deadline, "the loopback service does not answer"
                time.sleep(0.05)
            else:
                return

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def ask(self, method: str, what: str, body: Any = None) -> Any:
        """Talk to its test side."""
        with httpx.Client(trust_env=False, timeout=30) as client:
            answer = client.request(method, f"{self.base_url}/test/{what}", json=body)
        return answer.raise_for_status().json()

    def fault(self, path: str, kind: str, **more: Any) -> None:
        """Let something go wrong: see `tinker_server.faults`."""
        self.ask("POST", "fault", {"path": path, "kind": kind, **more})

    def reset(self) -> None:
        """Let nothing go wrong any more."""
        self.ask("POST", "reset")

    def counts(self) -> dict[str, int]:
        """How many requests of each path came."""
        return self.ask("GET", "counts")

    def settings(self, **more: Any) -> TinkerSettings:
        """A configuration that names this service."""
        models = (
            TinkerModel(name="tiny", model=MODEL, tokenizer="tiny", context_tokens=4096),
            TinkerModel(name="served", model=SERVED, tokenizer="tiny", context_tokens=4096),
            TinkerModel(name="other", model="local/other", tokenizer="tiny", context_tokens=4096),
        )
        return TinkerSettings(base_url=self.base_url, models=models, **more)

    def compute(self, state: Path, **more: Any) -> LocalCompute:
        """A compute whose remote models are this service's."""
        key = {"TINKER_API_KEY": KEY}
        return LocalCompute(state, tinker=self.settings(**more), environment=key)


@contextmanager
def loopback(folder: Path) -> Generator[Loopback]:
    """A running service."""
    made = Loopback(folder)
    made.start()
    try:
        yield made
    finally:
        made.kill()
