"""The example harness against a Messages API that answers from a list."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, override

import pytest

type Answer = str | int
"""A reply of the model, or an HTTP status to fail with."""


@dataclass
class Model:
    """A Messages API on a free port of loopback; `answers` are used up in order."""

    url: str = ""
    answers: list[Answer] = field(default_factory=list[Answer])
    requests: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    tokens: list[str | None] = field(default_factory=list[str | None])

    def answer(self, path: str, body: bytes, token: str | None) -> tuple[int, bytes]:
        assert path == "/v1/messages"
        self.requests.append(json.loads(body))
        self.tokens.append(token)
        match self.answers.pop(0):
            case int(status):
                return status, b"{}"
            case reply:
                content = [{"type": "text", "text": reply}]
                return 200, json.dumps({"content": content}).encode()


@pytest.fixture
def model() -> Iterator[Model]:
    answers = Model()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            status, answer = answers.answer(self.path, body, self.headers["authorization"])
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            """Keep the test output quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        answers.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield answers
        server.shutdown()
        thread.join()


class Agent:
    """Runs the harness in `folder` as a profile does."""

    def __init__(self, program: Path, folder: Path, model: Model) -> None:
        self._program, self._folder, self._model = program, folder, model

    def run(self, instruction: str, *options: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-I", "-S", str(self._program), *options],
            input=instruction,
            cwd=self._folder,
            env={
                "PATH": "/usr/bin:/bin",
                "ANTHROPIC_BASE_URL": self._model.url,
                "ANTHROPIC_AUTH_TOKEN": "trial-token",
                "ANTHROPIC_MODEL": "some-model",
            },
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def agent(examples: Path, tmp_path: Path, model: Model) -> Agent:
    return Agent(examples / "profiles" / "agent.py", tmp_path, model)


def test_output_is_fed_back_and_silence_ends(agent: Agent, model: Model, tmp_path: Path) -> None:
    (tmp_path / "memo.txt").write_text("Make moss.\n", encoding="utf-8")
    model.answers = ["cat memo.txt", "mkdir moss"]
    done = agent.run("Do what memo.txt says.\n", "--max-turns", "9")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "moss").is_dir()
    assert model.requests[1]["messages"] == [
        {"role": "user", "content": "Do what memo.txt says."},
        {"role": "assistant", "content": "cat memo.txt"},
        {"role": "user", "content": "Make moss."},
    ]
    assert model.requests[0]["model"] == "some-model"
    assert model.tokens == ["Bearer trial-token"] * 2


def test_turns_are_bounded(agent: Agent, model: Model) -> None:
    model.answers = ["echo again"] * 3
    assert agent.run("Go.", "--max-turns", "3").returncode == 0
    assert len(model.requests) == 3


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("printf 'a%.0s' {1..99}", "a" * 10 + " ..."),
        ("exit 3", "The command failed with code 3."),
        ("sleep 20", "The command took too long."),
        ("echo \0oops", "oops"),
        ("printf '\\xff'", "\ufffd"),
    ],
)
def test_what_the_model_is_shown(agent: Agent, model: Model, command: str, shown: str) -> None:
    model.answers = [command, "true"]
    limits = ("--output-limit", "10", "--command-timeout", "1")
    limits = limits if command.startswith(("printf 'a", "sleep")) else ()
    assert agent.run("Go.", *limits).returncode == 0
    assert model.requests[1]["messages"][-1]["content"] == shown


def test_a_busy_service_is_asked_again_with_the_same_body(agent: Agent, model: Model) -> None:
    model.answers = [529, 429, "true"]
    assert agent.run("Go.").returncode == 0
    assert model.requests[0] == model.requests[1] == model.requests[2]


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refusal_is_final(agent: Agent, model: Model, status: int) -> None:
    model.answers = [status]
    done = agent.run("Go.")
    assert done.returncode == 3
    assert f"HTTP {status}" in done.stderr


def test_no_instruction_is_a_bad_call(agent: Agent, model: Model) -> None:
    assert agent.run(" \n").returncode == 2
    assert not model.requests


def test_every_folder_that_carries_the_harness_carries_this_one(examples: Path) -> None:
    harness = (examples / "profiles" / "agent.py").read_bytes()
    copies = [path for path in examples.rglob("agent.py") if path.parent.name != "profiles"]
    assert copies
    assert all(path.read_bytes() == harness for path in copies)
