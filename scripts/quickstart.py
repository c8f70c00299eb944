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

import json
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from scripts.stages import EXAMPLES, MODEL, Pipeline, StepError, arguments

DEMONSTRATOR = "scripted/shell-demos"
PRACTISED = ("act", "look-then-act")
UNPRACTISED = ("unpractised",)
SMOKE: dict[str, dict[str, Any]] = {
    "eval": {"tasks": {"limit": 2}, "trials_per_task": 1},
    "demos": {"tasks": {"limit": 3}},
    "supervised": {},
    "train": {"num_batches": 1, "batch": {"tasks": 2, "trials_per_task": 2}},
}
"""Changes to each plan that leave next to no work: whether everything runs, not how well."""


@dataclass
class Quickstart(Pipeline):
    """One pass through the pipeline in one home."""

    name: ClassVar[str] = "quickstart"

    def plan(self, name: str, **changes: Any) -> str:
        return self.planned(EXAMPLES / "plans" / f"{name}.json", SMOKE[name], changes)

    def profile(self, name: str, model: str | None = None) -> str:
        """The baseline profile with another model, and nothing else changed."""
        folder = EXAMPLES / "profiles"
        if not self.folder.joinpath("profiles").is_dir():
            shutil.copytree(folder, self.folder / "profiles")
        if model is None:
            return str(self.folder / "profiles" / f"{name}.json")
        profile = json.loads((folder / "baseline.json").read_text())
        profile["agent"]["model"] = model
        return self.write(f"profiles/{name}.json", profile)

    def compare(self, baseline: str, candidate: str, capabilities: tuple[str, ...]) -> Any:
        words = ["run", "compare", self.runs[baseline], self.runs[candidate]]
        for capability in capabilities:
            words += ["--capability", capability]
        return self.command(*words)


def main() -> int:
    given = arguments(__doc__ or "", Quickstart.name)
    quick = Quickstart(given.home, given.seed, given.smoke)
    try:
        report = pipeline(quick)
    except StepError as error:
        quick.say(f"failed: {error}")
        return 1
    finally:
        if not given.keep:
            quick.down()
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
    warm = warm_start(quick, practice)
    with quick.stage("warm", "evaluating the warm start on held-out tasks"):
        actor = quick.profile("warm", warm)
        quick.run("run", "warm", actor, evaluation, held_out)
    with quick.stage("training", "reinforcement learning on practice tasks"):
        training = quick.run("train", "training", actor, quick.plan("train"), practice)
        trained = quick.last_checkpoint(training, warm)
    with quick.stage("trained", "evaluating the trained model on held-out tasks"):
        quick.run("run", "trained", quick.profile("trained", trained), evaluation, held_out)
    with quick.stage("verify", "verifying every run"):
        quick.verify()
    return report(quick, {"warm": warm, "trained": trained})


def warm_start(quick: Quickstart, practice: str) -> str:
    """The checkpoint that a few scripted demonstrations make of the model."""
    with quick.stage("demonstrations", "recording scripted demonstrations on practice tasks"):
        demonstrator = quick.profile("demonstrator")
        demos = quick.run("run", "demonstrations", demonstrator, quick.plan("demos"), practice)
    with quick.stage("supervised", "learning from the demonstrations"):
        source = {"run": demos, "select": "reward >= 1"}
        plan = quick.plan("supervised", source=source)
        supervised = quick.run("train", "supervised", quick.profile("baseline"), plan, None)
    return quick.last_checkpoint(supervised, MODEL)


def prepare(quick: Quickstart) -> tuple[str, str]:
    """The stack, the models and the datasets; returns the references of both datasets."""
    quick.command("up")
    quick.command("model", "pull", MODEL)
    scenario = str(EXAMPLES / "scenarios" / "shell-demos.json")
    quick.command("model", "pull", DEMONSTRATOR, "--scenario", scenario)
    references = [quick.publish(folder) for folder in ("shell-practice", "shell-held-out")]
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
            row["value"]: {"baseline": row["baseline"], "trained": row["candidate"]}
            for row in total["by_attribute"] + unpractised["by_attribute"]
            if row["attribute"] == "family"
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


if __name__ == "__main__":
    sys.exit(main())
