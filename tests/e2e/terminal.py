"""A person at a terminal: `practicum claude` in a pseudo-terminal, configured on its own."""

import json
import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from runtime.native import engines
from tests.e2e.support import Stack

_ESCAPE = re.compile(rb"\x1b\][^\x07]*\x07|\x1b[\[(][0-9;?<>=]*[ -/]*[@-~]|\x1b[=>78]")
WAIT_SEC = 240.0
MARK = "PRACTICUM_TEST_TERMINAL"


@dataclass
class Program:
    """One `practicum claude` under way; `screen` is everything that it has drawn."""

    pid: int
    terminal: int
    screen: bytes = b""
    code: int | None = None

    def send(self, text: str, *, until: str | Callable[[], bool]) -> None:
        """Type a prompt and wait for what answers it: words on the screen, or another sign."""
        self.screen = b""
        os.write(self.terminal, text.encode())
        self.pump(1.5)
        os.write(self.terminal, b"\r")
        self.wait_for(until)

    def wait_for(self, sign: str | Callable[[], bool]) -> None:
        """Until there is a sign, such as words that the screen has had, however placed."""
        deadline = time.monotonic() + WAIT_SEC
        while not (sign() if callable(sign) else self.has_shown(sign)):
            assert time.monotonic() < deadline, f"never saw {sign!r} in: {self.plain()[-3000:]}"
            assert self.pump(0.3), f"ended before {sign!r}: {self.plain()[-3000:]}"

    def has_shown(self, text: str) -> bool:
        return text.replace(" ", "") in self.plain().replace(" ", "")

    def plain(self) -> str:
        """The screen's words without control sequences."""
        return re.sub(r"\s+", " ", _ESCAPE.sub(b" ", self.screen).decode(errors="replace"))

    def pump(self, seconds: float) -> bool:
        """Read for a while; False when the program has closed the terminal."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.terminal], [], [], left)
            if ready:
                try:
                    data = os.read(self.terminal, 65536)
                except OSError:
                    return False
                if not data:
                    return False
                self.screen += data
        return True

    def leave(self) -> None:
        """Press Ctrl-C twice, as Claude Code asks for it, until the program has ended."""
        deadline = time.monotonic() + 60
        while self.code is None:
            assert time.monotonic() < deadline, f"does not end: {self.plain()[-2000:]}"
            for pause in (0.4, 4.0):
                if self.pump(0):
                    os.write(self.terminal, b"\x03")
                if not self.pump(pause):
                    time.sleep(0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        os.close(self.terminal)

    def kill(self) -> None:
        """`kill -9` the command; what it started loses its terminal."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


@dataclass(frozen=True)
class Terminal:
    """A folder, a home and a configuration of one developer."""

    stack: Stack
    folder: Path
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def prepare(cls, stack: Stack, name: str = "developer") -> "Terminal":
        """A developer who has Claude Code on PATH, and has been through its first start."""
        root = stack.root / name
        folder, config, programs = root / "project", root / "config", root / "bin"
        for path in (folder, config, programs):
            path.mkdir(parents=True)
        (programs / "claude").symlink_to(engines.install().program)
        project: dict[str, object] = {
            "hasTrustDialogAccepted": True,
            "hasCompletedProjectOnboarding": True,
            "allowedTools": [],
        }
        state: dict[str, object] = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "projects": {str(folder): project},
        }
        (config / ".claude.json").write_text(json.dumps(state))
        kept = ("PRACTICUM_MODELS", "PRACTICUM_TOOLS", "XDG_CACHE_HOME", "PYTHONPATH")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        environment |= {
            "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(root),
            "CLAUDE_CONFIG_DIR": str(config),
            "PRACTICUM_HOME": str(stack.home),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            MARK: str(root),
        }
        return cls(stack, folder, environment)

    def start(self, *arguments: str) -> Program:
        """`practicum claude arguments…` in a pseudo-terminal; returns when it can be typed to."""
        command = [sys.executable, "-P", "-m", "tools", "claude", *arguments]
        environment = {**self.environment, "PYTHONPATH": str(Path(__file__).parents[2])}
        pid, terminal = pty.fork()
        if pid == 0:
            try:
                os.chdir(self.folder)
                os.execve(command[0], command, environment)
            finally:
                os._exit(127)
        program = Program(pid, terminal)
        program.wait_for("❯")
        program.pump(2)
        return program

    def conversations(self) -> list[str]:
        """Ids by which Claude Code resumes what was said here, oldest first."""
        projects = Path(self.environment["CLAUDE_CONFIG_DIR"]) / "projects"
        files = sorted(projects.glob("*/*.jsonl"), key=lambda path: path.stat().st_ctime)
        return [path.stem for path in files]

    def answers(self) -> int:
        """How many answers Claude Code has written down, its own error messages apart."""
        projects = Path(self.environment["CLAUDE_CONFIG_DIR"]) / "projects"
        files = [file.read_bytes() for file in projects.glob("*/*.jsonl")]
        whole = [line for data in files for line in data.split(b"\n")[:-1]]
        turns = [json.loads(line) for line in whole]
        said = [turn for turn in turns if turn.get("type") == "assistant"]
        return len({turn["message"]["id"] for turn in said if not turn.get("isApiErrorMessage")})

    def left(self) -> list[str]:
        """Processes that a start has left behind, once those that are ending have ended."""
        deadline = time.monotonic() + 30
        while (found := self._processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _processes(self) -> list[str]:
        found: list[str] = []
        mark = f"{MARK}={self.environment[MARK]}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
        return found
