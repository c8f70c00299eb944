"""The training check: does GRPO improve on its own starting point, whatever the seed?

    demonstrations → supervised → warm start on held-out → for each seed: GRPO on practice →
    trained on held-out → verification → comparison with the warm start

The plans, profiles and tasks are those of the quickstart, and so is the measure: the task is the
unit, its attempts are averaged, the difference is paired by task with a 95 % t interval, and only
the final checkpoint of each seed is evaluated. Exit code 0 means that every run completed and
verified, and that the interval lies above zero for every seed.
"""

import json
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from scripts.quickstart import PRACTISED, Quickstart, bounds, interval, prepare, share, warm_start
from scripts.stages import MODEL, StepError, arguments

SEEDS = 3


@dataclass
class TrainCheck(Quickstart):
    """One pass through the check in one home."""

    name: ClassVar[str] = "train-check"


def main() -> int:
    given = arguments(__doc__ or "", TrainCheck.name)
    check = TrainCheck(given.home, given.seed, given.smoke)
    seeds = range(given.seed, given.seed + (1 if given.smoke else SEEDS))
    try:
        report = pipeline(check, seeds)
    except StepError as error:
        check.say(f"failed: {error}")
        return 1
    finally:
        if not given.keep:
            check.down()
    path = check.home / "train-check.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    print(table(report))
    print(f"\n{path}")
    return 0 if given.smoke or all(improved(one) for one in report["seeds"]) else 1


def pipeline(check: TrainCheck, seeds: range) -> dict[str, Any]:
    """Every stage in order; the report."""
    if check.folder.exists():
        shutil.rmtree(check.folder)
    with check.stage("prepare", "starting the stack, fetching the model, publishing the tasks"):
        practice, held_out = prepare(check)
    evaluation = check.plan("eval")
    warm = warm_start(check, practice)
    with check.stage("warm", "evaluating the warm start on held-out tasks"):
        actor = check.profile("warm", warm)
        check.run("run", "warm", actor, evaluation, held_out)
    trained: dict[int, str] = {}
    for check.seed in seeds:
        name = f"training-{check.seed}"
        with check.stage(name, f"reinforcement learning on practice tasks, seed {check.seed}"):
            training = check.run("train", name, actor, check.plan("train"), practice)
            trained[check.seed] = check.last_checkpoint(training, warm)
        name = f"trained-{check.seed}"
        with check.stage(name, f"evaluating seed {check.seed} on held-out tasks"):
            profile = check.profile(name, trained[check.seed])
            check.run("run", name, profile, evaluation, held_out)
    with check.stage("verify", "verifying every run"):
        check.verify()
    return report(
        check, {"warm": warm, **{f"trained-{seed}": ckp for seed, ckp in trained.items()}}
    )


def report(check: TrainCheck, checkpoints: dict[str, str]) -> dict[str, Any]:
    """The table as data."""
    compared = {
        name: check.compare("warm", name, PRACTISED) for name in checkpoints if name != "warm"
    }
    return {
        "model": MODEL,
        "seeds": [
            {
                "name": name,
                "warm": found["baseline"]["success"],
                "trained": found["candidate"]["success"],
                "difference": bounds(found),
            }
            for name, found in compared.items()
        ],
        "seconds": round(time.monotonic() - check.began, 1),
        "stages": check.seconds,
        "runs": check.runs,
        "checkpoints": checkpoints,
    }


def improved(one: dict[str, Any]) -> bool:
    """Whether the whole interval is an improvement."""
    low = one["difference"]["low"]
    return low is not None and low > 0


def table(report: dict[str, Any]) -> str:
    """The table that a person reads."""
    lines = ["", f"{'seed':<14}{'warm':>8}{'trained':>9}   trained − warm"]
    lines += [
        f"{one['name']:<14}{share(one['warm']):>8}{share(one['trained']):>9}"
        f"   {interval(one['difference'])}"
        for one in report["seeds"]
    ]
    return "\n".join([*lines, "", f"{report['seconds']:.0f} s"])


if __name__ == "__main__":
    sys.exit(main())
