"""What the pipelines share: `practicum` commands, run as a person would run them, in named stages.

A pipeline adds nothing to the commands but their order. Each command's JSON is its result; a
command that fails ends the pipeline, and its own report is on stderr.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODEL = "smollm2-135m-instruct"
WAIT = "60m"


class StepError(Exception):
    """A command that did not do what the pipeline needs; its own report is on stderr."""


@dataclass
class Pipeline:
    """One pass in one home."""

    name: ClassVar[str]

    home: Path
    seed: int
    smoke: bool
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    runs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def folder(self) -> Path:
        """Where the plans and profiles of this pass are kept."""
        return self.home / self.name

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", flush=True)

    @contextmanager
    def stage(self, name: str, title: str) -> Generator[None]:
        """A named part of the pipeline, announced and timed."""
        self.say(title)
        start = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - start, 1)

    def command(self, *words: str) -> Any:
        """Run one command and return its JSON result."""
        done = subprocess.run(
            [practicum(), *words, "--home", str(self.home), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise StepError(f"practicum {' '.join(words)} ended with {done.returncode}")
        return json.loads(done.stdout)

    def follow(self, run: str, slots: int) -> None:
        """Wait for a run by its events, saying how far it is."""
        words = ["run", "events", run, "--follow", "--timeout", WAIT]
        process = subprocess.Popen(
            [practicum(), *words, "--home", str(self.home), "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        settled, told = 0, time.monotonic()
        for line in process.stdout:
            event = json.loads(line)
            kind = event.get("type", "")
            settled += kind == "trial.settled"
            if kind.startswith(("update.ack", "checkpoint.", "run.")):
                self.say(f"  {kind} {brief(event['data'])}")
            elif kind == "trial.settled" and time.monotonic() - told > 10:
                told = time.monotonic()
                self.say(f"  {settled} of {slots} trials")
        if process.wait() != 0:
            raise StepError(f"following {run} ended with {process.returncode}")

    def run(self, noun: str, name: str, actor: str, plan: str, dataset: str | None) -> str:
        """Start a run, wait for it, and return its id."""
        words = [noun, "start", "--actor", f"@{actor}", "--plan", f"@{plan}"]
        words += ["--dataset", dataset] if dataset else []
        started = self.command(*words)
        run = self.runs[name] = started["run"]
        self.say(f"  {run}: {started['admission']['planned_slots']} trial slots")
        self.follow(run, started["admission"]["planned_slots"])
        state = self.command("run", "show", run)["state"]
        if state != "completed":
            raise StepError(f"{run} is {state}; see: practicum run show {run}")
        return run

    def publish(self, folder: str) -> str:
        """Publish a dataset of the examples, its version named after its content."""
        tree = EXAMPLES / folder
        reference = f"practicum-examples/{folder}@{tree_version(tree)}"
        published = self.command("dataset", "publish", str(tree), "--as", reference)
        self.say(f"  {reference} {published['digest']}")
        return reference

    def last_checkpoint(self, run: str, start: str) -> str:
        """The checkpoint of a run's last applied update; `start` where every batch was skipped,
        because the policy is then still what the run started from."""
        page = self.command("run", "checkpoints", run, "--limit", "500")
        if not page["items"]:
            self.say(f"  {run} changed nothing: every batch was skipped")
            return start
        return page["items"][-1]["id"]

    def verify(self) -> None:
        """Derive every run again; a violation ends the pipeline."""
        for name, run in self.runs.items():
            self.command("run", "verify", run)
            self.say(f"  {name} verified")

    def planned(self, source: Path, smoke: dict[str, Any], changes: dict[str, Any]) -> str:
        """A plan of the examples with this pass's seed, written into the folder of the pass."""
        plan = json.loads(source.read_text())
        plan |= {"seed": self.seed, **(smoke if self.smoke else {}), **changes}
        if "lora" in plan:
            plan["lora"]["seed"] = self.seed
        return self.write(f"plan-{source.stem}.json", plan)

    def write(self, name: str, value: Any) -> str:
        """Keep a plan or profile of this pass; its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2) + "\n")
        return str(path)

    def down(self) -> None:
        subprocess.run([practicum(), "down", "--home", str(self.home)], check=False)


def arguments(about: str, name: str) -> argparse.Namespace:
    """The command line of a pipeline: `home`, `seed`, `smoke` and `keep`.

    Its home is `PRACTICUM_HOME`, else one of its own.
    """
    home = Path(os.environ.get("PRACTICUM_HOME") or Path.home() / f".practicum-{name}")
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--home", type=Path, default=home, help="home of the stack")
    parser.add_argument("--seed", type=int, default=0, help="seed of every plan")
    parser.add_argument("--smoke", action="store_true", help="see that it runs, on a few tasks")
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    given = parser.parse_args()
    given.home = given.home.expanduser().absolute()
    return given


def brief(data: dict[str, Any]) -> str:
    """The scalars of an event on one line."""
    shown = {key: value for key, value in data.items() if isinstance(value, str | int | float)}
    return " ".join(f"{key}={value}" for key, value in shown.items())


def tree_version(folder: Path) -> str:
    """A version name that changes with the folder's files."""
    hasher = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        hasher.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return f"v1-{hasher.hexdigest()[:12]}"


def practicum() -> str:
    """The console script beside this interpreter."""
    return str(Path(sys.executable).parent / "practicum")
