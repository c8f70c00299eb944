"""The native loop: the real Claude Code on a small model, taught, then trained on its own attempts.

    scripted demonstrations → supervised → GRPO on practice → evaluation on held-out → verification

The harness is the pinned `claude` in every stage; the model alone changes: a scripted teacher,
SmolLM2 after a short supervised training on what the teacher's calls recorded, and what GRPO
makes of that. Exit code 0 means that every run completed and verified, that at least one update
of GRPO was acknowledged, and that an attempt of the taught model has two calls that continue
another exactly. How well it works is reported and decides nothing.
"""

import json
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from scripts.stages import EXAMPLES, MODEL, Pipeline, StepError, arguments

NATIVE = EXAMPLES / "native"
TEACHER = "scripted/native-demos"
FAMILIES = ("copy-file", "make-requested-folder")
"""Kinds of the example tasks that are one look and one act."""
SMOKE: dict[str, dict[str, Any]] = {
    "demos": {"tasks": {"limit": 2}},
    "supervised": {"epochs": 1, "batch_size": 1},
    "train": {"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 2}},
    "held-out": {"tasks": {"limit": 1}},
}
"""Changes to each plan that leave next to no work: whether everything runs, not how well."""


@dataclass
class NativeLoop(Pipeline):
    """One pass through the loop in one home."""

    name: ClassVar[str] = "native-loop"

    def plan(self, name: str, **changes: Any) -> str:
        return self.planned(NATIVE / "plans" / f"{name}.json", SMOKE[name], changes)

    def learner(self, name: str, model: str) -> str:
        """The learner's profile with another model, and nothing else changed."""
        profile = json.loads((NATIVE / "profiles" / "learner.json").read_text())
        profile["agent"]["model"] = model
        return self.write(f"{name}.json", profile)

    def small(self, dataset: str) -> str:
        """The tasks of `FAMILIES` as a dataset of their own."""
        name, _, version = dataset.partition("@")
        reference = f"{name}-native@{version}"
        words = [word for family in FAMILIES for word in ("--family", family)]
        self.command("dataset", "select", dataset, *words, "--as", reference)
        return reference

    def spans(self, run: str) -> list[list[str]]:
        """Of each counted trial, the span of each of its calls."""
        trials = self.command("run", "trials", run, "--limit", "500")["items"]
        pages = [
            self.command("run", "interactions", run, "--trial", trial["id"], "--limit", "500")
            for trial in trials
            if (trial["settled"]["seal"] or {}).get("object") is not None
        ]
        return [[call["span"] for call in page["items"]] for page in pages]


def main() -> int:
    given = arguments(__doc__ or "", NativeLoop.name)
    loop = NativeLoop(given.home, given.seed, given.smoke)
    try:
        report = pipeline(loop)
        path = loop.home / "native-loop.json"
        path.write_text(json.dumps(report, indent=2) + "\n")
        print(json.dumps(report, indent=2))
        check(report, smoke=loop.smoke)
    except StepError as error:
        loop.say(f"failed: {error}")
        return 1
    finally:
        if not given.keep:
            loop.down()
    print(f"\n{path}")
    return 0


def pipeline(loop: NativeLoop) -> dict[str, Any]:
    """Every stage in order; the report."""
    if loop.folder.exists():
        shutil.rmtree(loop.folder)
    with loop.stage("prepare", "starting the stack, fetching program and model"):
        practice, held_out = prepare(loop)
    with loop.stage("demonstrations", "Claude Code on the scripted teacher"):
        teacher = str(NATIVE / "profiles" / "teacher.json")
        demos = loop.run("run", "demonstrations", teacher, loop.plan("demos"), practice)
    with loop.stage("supervised", "learning the tool format from the demonstrations"):
        plan = loop.plan("supervised", source={"run": demos, "select": "reward >= 1"})
        learner = loop.learner("learner", MODEL)
        supervised = loop.run("train", "supervised", learner, plan, None)
        taught = loop.last_checkpoint(supervised, MODEL)
    with loop.stage("training", "reinforcement learning from its own attempts in Claude Code"):
        actor = loop.learner("taught", taught)
        training = loop.run("train", "training", actor, loop.plan("train"), practice)
        trained = loop.last_checkpoint(training, taught)
    with loop.stage("evaluation", "evaluating the trained model on held-out tasks"):
        actor, plan = loop.learner("trained", trained), loop.plan("held-out")
        loop.run("run", "evaluation", actor, plan, held_out)
    with loop.stage("verify", "verifying every run"):
        loop.verify()
    return report(loop, {"taught": taught, "trained": trained})


def prepare(loop: NativeLoop) -> tuple[str, str]:
    """The stack, the program, the models and the datasets; references of both datasets."""
    loop.command("up")
    loop.command("agent", "install")
    loop.command("model", "pull", MODEL)
    scenario = str(NATIVE / "scenarios" / "demos.json")
    loop.command("model", "pull", TEACHER, "--scenario", scenario)
    practice, held_out = (loop.publish(folder) for folder in ("shell-practice", "shell-held-out"))
    return loop.small(practice), loop.small(held_out)


def report(loop: NativeLoop, checkpoints: dict[str, str]) -> dict[str, Any]:
    """What happened, as data."""
    updates = loop.command("run", "updates", loop.runs["training"], "--limit", "500")["items"]
    attempts = [
        spans for name in ("training", "evaluation") for spans in loop.spans(loop.runs[name])
    ]
    results = {name: loop.command("run", "result", run) for name, run in loop.runs.items()}
    return {
        "seed": loop.seed,
        "model": MODEL,
        "success": {
            name: result.get("success") for name, result in results.items() if name != "supervised"
        },
        "acknowledged": sum(update["state"] == "acknowledged" for update in updates),
        "attempts": len(attempts),
        "most_exact_calls": max((spans.count("exact") for spans in attempts), default=0),
        "spans": count([span for spans in attempts for span in spans]),
        "seconds": round(time.monotonic() - loop.began, 1),
        "stages": loop.seconds,
        "runs": loop.runs,
        "checkpoints": checkpoints,
    }


def check(report: dict[str, Any], *, smoke: bool) -> None:
    """What the loop is to prove; a few tasks may teach nothing, so a smoke run proves less.

    Raises:
        StepError: it did not.
    """
    if smoke:
        return
    if report["acknowledged"] < 1:
        raise StepError("no update was acknowledged: every batch was skipped")
    if report["most_exact_calls"] < 2:
        raise StepError("no attempt has two exact calls: the model does not call tools")


def count(spans: list[str]) -> dict[str, int]:
    return {span: spans.count(span) for span in sorted(set(spans))}


if __name__ == "__main__":
    sys.exit(main())
