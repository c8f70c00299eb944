"""A small shell agent: what the model replies is run, what that prints is shown to the model.

A profile carries this file into the task's environment and starts it there with the
instruction on stdin. The rule of the conversation is short enough for a small model:

* the whole reply is one shell command;
* its output, cut to a few lines, is the next user turn;
* silence ends the work: a command that prints nothing and does not fail has acted.

It speaks the Anthropic Messages API at `ANTHROPIC_BASE_URL` and imports the standard library
alone. Exit codes: 0 the conversation ended, by silence or at its last turn; 2 bad call or
environment; 3 the model could not be reached or refused the request.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

SYSTEM = "Reply with one shell command."
RETRIED = frozenset({408, 429, 500, 502, 503, 504, 529})
ATTEMPTS = 8
MODEL_TIMEOUT = 600.0


class ModelError(Exception):
    """The model cannot be asked, now or at all."""


class Model:
    """A Messages API endpoint, asked over one kept connection."""

    def __init__(
        self, base_url: str, token: str, name: str, max_tokens: int, system: str = SYSTEM
    ) -> None:
        url = urlsplit(base_url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(url.hostname or "127.0.0.1", url.port, timeout=MODEL_TIMEOUT)
        self._path = url.path.rstrip("/") + "/v1/messages"
        self._headers = {
            "authorization": f"Bearer {token}",
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
        }
        self._name, self._max_tokens, self._system = name, max_tokens, system

    def reply(self, messages: list[dict[str, str]]) -> str:
        """The text of the model's next turn; a busy or restarting service is asked again."""
        body = json.dumps(
            {
                "model": self._name,
                "max_tokens": self._max_tokens,
                "system": self._system,
                "messages": messages,
            }
        ).encode()
        problem = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(min(0.25 * 2**attempt, 10.0))
            try:
                self._connection.request("POST", self._path, body, self._headers)
                response = self._connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                problem = f"{type(error).__name__}: {error}"
                continue
            if response.status == 200:
                return _text(json.loads(answer))
            problem = f"HTTP {response.status}: {answer[:500].decode(errors='replace')}"
            if response.status not in RETRIED:
                break
        raise ModelError(problem)


def _text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")


def run(command: str, timeout: float, limit: int) -> str:
    """Run a command; what it printed, cut to `limit` characters, or why it failed silently."""
    try:
        done = subprocess.run(
            ["bash", "-c", command.replace("\0", "")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "The command took too long."
    output = done.stdout.decode(errors="replace").strip()
    if not output and done.returncode:
        return f"The command failed with code {done.returncode}."
    return output if len(output) <= limit else output[:limit] + " ..."


def work(model: Model, instruction: str, options: argparse.Namespace) -> None:
    """Ask and run until a command is silent or the turns are used up."""
    messages = [{"role": "user", "content": instruction}]
    for _ in range(options.max_turns):
        command = model.reply(messages)
        print(f"$ {command}", flush=True)
        output = run(command, options.command_timeout, options.output_limit)
        if not output:
            return
        print(output, flush=True)
        messages += [
            {"role": "assistant", "content": command},
            {"role": "user", "content": output},
        ]


def main() -> int:
    parser = argparse.ArgumentParser(description="A small shell agent; the task is on stdin.")
    parser.add_argument("--system", default=SYSTEM, help="instructions of every conversation")
    parser.add_argument("--max-turns", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--output-limit", type=int, default=160)
    parser.add_argument("--command-timeout", type=float, default=10.0)
    options = parser.parse_args()
    try:
        model = Model(
            os.environ["ANTHROPIC_BASE_URL"],
            os.environ["ANTHROPIC_AUTH_TOKEN"],
            os.environ["ANTHROPIC_MODEL"],
            options.max_tokens,
            options.system,
        )
    except KeyError as missing:
        print(f"agent: {missing.args[0]} is not set", file=sys.stderr)
        return 2
    instruction = sys.stdin.read().strip()
    if not instruction:
        print("agent: no instruction on stdin", file=sys.stderr)
        return 2
    try:
        work(model, instruction, options)
    except ModelError as error:
        print(f"agent: the model did not answer: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
