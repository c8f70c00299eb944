"""The quickstart: a small model learns shell work, measured on tasks it has never seen.

    baseline on held-out → scripted demonstrations on practice → supervised → warm start on
    held-out → GRPO on practice → trained on held-out → verification → comparison

Every step is a `practicum` command, run as a person would run it; this script adds nothing but
their order. What is measured was fixed before the first run: the unit is the task, its two
attempts averaged; the difference is paired by task with a 95 % t interval; only the final
checkpoint of each training is evaluated; held-out tasks choose nothing. Kinds of work that
practice never shows are reported apart. Exit code 0 means that every run completed and every
verification passed; the intervals are reported, whatever they say.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODEL = "smollm2-135m-instruct"
DEMONSTRATOR = "scripted/shell-demos"
PRACTISED = ("act", "look-then-act")
UNPRACTISED = ("unpractised",)
WAIT = "60m"
SMOKE: dict[str, dict[str, Any]] = {
    "eval": {"tasks": {"limit": 2}, "trials_per_task": 1},
    "demos": {"tasks": {"limit": 3}},
    "supervised": {},
    "train": {"num_batches": 1, "batch": {"tasks": 2, "trials_per_task": 2}},
}
"""Changes to each plan that leave next to no work: whether everything runs, not how well."""


class StepError(Exception):
    """A command that did not do what the quickstart needs; its own report is on stderr."""


@dataclass
class Quickstart:
    """One pass through the pipeline in one home."""

    home: Path
    seed: int
    smoke: bool
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    runs: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def folder(self) -> Path:
        """Where the plans and profiles of this pass are kept."""
        return self.home / "quickstart"

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

    def plan(self, name: str, **changes: Any) -> str:
        """A plan of the examples with this pass's seed, written into the folder of the pass."""
        plan = json.loads((EXAMPLES / "plans" / f"{name}.json").read_text())
        plan |= {"seed": self.seed, **(SMOKE[name] if self.smoke else {}), **changes}
        if "lora" in plan:
            plan["lora"]["seed"] = self.seed
        return self._write(f"plan-{name}.json", plan)

    def profile(self, name: str, model: str | None = None) -> str:
        """The baseline profile with another model, and nothing else changed."""
        folder = EXAMPLES / "profiles"
        if not self.folder.joinpath("profiles").is_dir():
            shutil.copytree(folder, self.folder / "profiles")
        if model is None:
            return str(self.folder / "profiles" / f"{name}.json")
        profile = json.loads((folder / "baseline.json").read_text())
        profile["agent"]["model"] = model
        return self._write(f"profiles/{name}.json", profile)

    def last_checkpoint(self, run: str, start: str) -> str:
        """The checkpoint of a run's last applied update; `start` where every batch was skipped,
        because the policy is then still what the run started from."""
        page = self.command("run", "checkpoints", run, "--limit", "500")
        if not page["items"]:
            self.say(f"  {run} changed nothing: every batch was skipped")
            return start
        return page["items"][-1]["id"]

    def compare(self, baseline: str, candidate: str, capabilities: tuple[str, ...]) -> Any:
        words = ["run", "compare", self.runs[baseline], self.runs[candidate]]
        for capability in capabilities:
            words += ["--capability", capability]
        return self.command(*words)

    def _write(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2) + "\n")
        return str(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--home", type=Path, default=default_home(), help="home of the stack")
    parser.add_argument("--seed", type=int, default=0, help="seed of every plan")
    parser.add_argument("--smoke", action="store_true", help="see that it runs, on a few tasks")
    parser.add_argument("--keep", action="store_true", help="leave the stack running")
    arguments = parser.parse_args()
    quick = Quickstart(arguments.home.expanduser().absolute(), arguments.seed, arguments.smoke)
    try:
        report = pipeline(quick)
    except StepError as error:
        quick.say(f"failed: {error}")
        return 1
    finally:
        if not arguments.keep:
            subprocess.run([practicum(), "down", "--home", str(quick.home)], check=False)
    path = quick.home / "quickstart.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    print(f"\n{path}")
    return 0


def pipeline(quick: Quickstart) -> dict[str, Any]:
    """Every stage in order; the report."""
    if quick.folder.exists():
        shutil.rmtree(quick.folder)
    with quick.stage("prepare", "starting the stack, fetching the model, publishing the tasks"):
        practice, held_out = prepare(quick)
    evaluation = quick.plan("eval")
    with quick.stage("baseline", "evaluating the untrained model on held-out tasks"):
        quick.run("run", "baseline", quick.profile("baseline"), evaluation, held_out)
    with quick.stage("demonstrations", "recording scripted demonstrations on practice tasks"):
        demonstrator = quick.profile("demonstrator")
        demos = quick.run("run", "demonstrations", demonstrator, quick.plan("demos"), practice)
    with quick.stage("supervised", "learning from the demonstrations"):
        source = {"run": demos, "select": "reward >= 1"}
        plan = quick.plan("supervised", source=source)
        supervised = quick.run("train", "supervised", quick.profile("baseline"), plan, None)
        warm = quick.last_checkpoint(supervised, MODEL)
    with quick.stage("warm", "evaluating the warm start on held-out tasks"):
        actor = quick.profile("warm", warm)
        quick.run("run", "warm", actor, evaluation, held_out)
    with quick.stage("training", "reinforcement learning on practice tasks"):
        training = quick.run("train", "training", actor, quick.plan("train"), practice)
        trained = quick.last_checkpoint(training, warm)
    with quick.stage("trained", "evaluating the trained model on held-out tasks"):
        quick.run("run", "trained", quick.profile("trained", trained), evaluation, held_out)
    with quick.stage("verify", "verifying every run"):
        for name, run in quick.runs.items():
            quick.command("run", "verify", run)
            quick.say(f"  {name} verified")
    return report(quick, {"warm": warm, "trained": trained})


def prepare(quick: Quickstart) -> tuple[str, str]:
    """The stack, the models and the datasets; returns the references of both datasets."""
    quick.command("up")
    quick.command("model", "pull", MODEL)
    scenario = str(EXAMPLES / "scenarios" / "shell-demos.json")
    quick.command("model", "pull", DEMONSTRATOR, "--scenario", scenario)
    references: list[str] = []
    for folder in ("shell-practice", "shell-held-out"):
        reference = f"practicum-examples/{folder}@{tree_version(EXAMPLES / folder)}"
        published = quick.command("dataset", "publish", str(EXAMPLES / folder), "--as", reference)
        quick.say(f"  {reference} {published['digest']}")
        references.append(reference)
    for name in ("baseline", "demonstrator"):
        valid = quick.command("profile", "validate", quick.profile(name))
        quick.say(f"  {valid['name']} {valid['digest']}")
    return references[0], references[1]


def report(quick: Quickstart, checkpoints: dict[str, str]) -> dict[str, Any]:
    """The table as data."""
    total = quick.compare("baseline", "trained", PRACTISED)
    rl = quick.compare("warm", "trained", PRACTISED)
    unpractised = quick.compare("baseline", "trained", UNPRACTISED)
    unpractised_rl = quick.compare("warm", "trained", UNPRACTISED)
    results = {name: quick.command("run", "result", run) for name, run in quick.runs.items()}
    return {
        "seed": quick.seed,
        "model": MODEL,
        "baseline": {"success": total["baseline"]["success"]},
        "warm": {"success": rl["baseline"]["success"]},
        "trained": {"success": total["candidate"]["success"]},
        "difference": bounds(total),
        "rl_difference": bounds(rl),
        "unpractised": {
            "baseline": unpractised["baseline"]["success"],
            "warm": unpractised_rl["baseline"]["success"],
            "trained": unpractised["candidate"]["success"],
            "difference": bounds(unpractised),
            "rl_difference": bounds(unpractised_rl),
        },
        "families": {
            row["family"]: {"baseline": row["baseline"], "trained": row["candidate"]}
            for row in total["by_family"] + unpractised["by_family"]
        },
        "caveats": total["caveats"] + rl["caveats"],
        "seconds": round(time.monotonic() - quick.began, 1),
        "stages": quick.seconds,
        "runs": quick.runs,
        "checkpoints": checkpoints,
        "tokens": {
            name: {"prompt": one["prompt_tokens"], "output": one["output_tokens"]}
            for name, one in results.items()
        },
        "environment": sorted(
            {version for one in results.values() for version in one["environment_versions"]}
        ),
    }


def bounds(comparison: Any) -> dict[str, Any]:
    """The paired difference; nulls where no task is common, as in a smoke run."""
    difference = comparison["difference"] or {"n": 0}
    return {key: difference.get(key) for key in ("estimate", "low", "high", "n")}


def table(report: dict[str, Any]) -> str:
    """The table that a person reads."""
    apart = report["unpractised"]
    lines = ["", f"{'held-out success':<22}{'practised kinds':>16}{'other kinds':>14}"]
    lines += [
        f"{name:<22}{share(report[name]['success']):>16}{share(apart[name]):>14}"
        for name in ("baseline", "warm", "trained")
    ]
    lines.append("")
    lines += [
        f"{title:<22}{interval(report[key])}   other kinds {interval(apart[key])}"
        for title, key in (
            ("trained − baseline", "difference"),
            ("trained − warm", "rl_difference"),
        )
    ]
    output = sum(one["output"] for one in report["tokens"].values())
    prompt = sum(one["prompt"] for one in report["tokens"].values())
    lines += ["", f"{prompt} prompt tokens, {output} sampled tokens, {report['seconds']:.0f} s"]
    return "\n".join(lines)


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def interval(value: dict[str, Any]) -> str:
    if value["estimate"] is None:
        return "-"
    if value["low"] is None:
        return f"{value['estimate']:+.3f}"
    return f"{value['estimate']:+.3f} [{value['low']:+.3f}, {value['high']:+.3f}]"


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


def default_home() -> Path:
    """`PRACTICUM_HOME`, else a home of its own."""
    return Path(os.environ.get("PRACTICUM_HOME") or Path.home() / ".practicum-quickstart")


if __name__ == "__main__":
    sys.exit(main())
