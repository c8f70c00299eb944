"""Does each verifier reward the work, and nothing but the work?

    prove_tasks.py FOLDER --dataset org/name@v1 [--wrong FOLDER] [--model NAME] [--attempts 2]

FOLDER is the dataset's folder, published under the given name. In sandboxes, with the harness
`command`: each task's `solution/solve.sh` must earn 1, doing nothing must earn 0, and each wrong
attempt `WRONG/<attempt>/<task folder>.sh` must earn 0, every time. No model is called; the model is
one that the stack knows. Writes one JSON object; exits 1 unless all of it holds. Needs Python, and
`practicum` on PATH or in PRACTICUM_COMMAND.
"""

import argparse
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

PLACE = "/opt/prove"
RUN_IT = f'f="{PLACE}/$TASK.sh"; if [ -f "$f" ]; then exec bash "$f"; fi'


def practicum(*words: str) -> Any:
    """The JSON that a command prints; a command that fails ends the proof with its words."""
    program = os.environ.get("PRACTICUM_COMMAND", "practicum")
    done = subprocess.run([program, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"practicum {' '.join(words)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def attempts(folder: Path, wrong: Path | None) -> dict[str, dict[str, Path]]:
    """Scripts by attempt and task name; an attempt without a script does nothing."""
    tasks = {path.parent: tomllib.loads(path.read_text()) for path in folder.glob("*/task.toml")}
    names = {place: str(task["task"]["name"]) for place, task in tasks.items()}
    found = {"nothing": dict[str, Path]()}
    found["solution"] = {name: place / "solution" / "solve.sh" for place, name in names.items()}
    for attempt in sorted(wrong.iterdir()) if wrong else []:
        scripts = {name: attempt / f"{place.name}.sh" for place, name in names.items()}
        found[attempt.name] = {name: path for name, path in scripts.items() if path.is_file()}
    return found


def profile(attempt: str, scripts: dict[str, Path], model: str) -> dict[str, Any]:
    """A profile that runs the script of whichever task it is given."""
    files = [
        {"path": f"{PLACE}/{name}.sh", "content": script.read_text()}
        for name, script in scripts.items()
    ]
    agent = {
        "model": model,
        "engine": {"name": "command", "version": "1"},
        "files": files,
        "args": ["bash", "-c", RUN_IT],
        "env": {"TASK": "${task.name}"},
        "instruction": {"deliver": "stdin"},
    }
    return {"schema": "practicum.profile/v1", "name": f"proof/{attempt}", "agent": agent}


def rewards(run: str) -> dict[str, list[float | None]]:
    """Rewards of every trial by task; None where there is no reward."""
    found: dict[str, list[float | None]] = {}
    cursor: tuple[str, ...] = ()
    while True:
        page = practicum("run", "trials", run, "--limit", "100", *cursor)
        for trial in page["items"]:
            assessed: dict[str, Any] = trial.get("assessment") or {}
            found.setdefault(trial["task"], []).append(assessed.get("reward"))
        if not page.get("next"):
            return found
        cursor = ("--cursor", page["next"])


def prove(given: argparse.Namespace) -> dict[str, Any]:
    """Run every attempt at every task, and say which did not earn what it should."""
    table: dict[str, dict[str, list[float | None]]] = {}
    problems: list[str] = []
    runs: dict[str, str] = {}
    plan = Path(given.scratch) / "plan.json"
    plan.parent.mkdir(parents=True, exist_ok=True)
    plan.write_text(json.dumps({"trials_per_task": given.attempts}))
    for attempt, scripts in attempts(given.folder, given.wrong).items():
        actor = plan.with_name(f"{attempt}.json")
        actor.write_text(json.dumps(profile(attempt, scripts, given.model)))
        words = ("--dataset", given.dataset, "--actor", f"@{actor}", "--plan", f"@{plan}")
        runs[attempt] = practicum("run", "start", *words)["run"]
        practicum("run", "wait", runs[attempt], "--timeout", given.timeout)
        due = 1.0 if attempt == "solution" else 0.0
        for task, got in sorted(rewards(runs[attempt]).items()):
            table.setdefault(task, {})[attempt] = got
            if (attempt in ("solution", "nothing") or task in scripts) and set(got) != {due}:
                problems.append(f"{task}: {attempt} earned {got}, not {due:g} each time")
    return {"runs": runs, "tasks": table, "problems": problems}


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description="Prove that verifiers reward the work alone.")
    made.add_argument("folder", type=Path)
    made.add_argument("--dataset", required=True, help="org/name@version of the published folder")
    made.add_argument("--wrong", type=Path, help="folder of wrong attempts")
    made.add_argument("--model", default="tiny", help="a model that the stack knows")
    made.add_argument("--attempts", type=int, default=2)
    made.add_argument("--timeout", default="30m", help="of each run")
    made.add_argument("--scratch", default=".proof", help="folder for profiles and plan")
    return made


def main() -> int:
    found = prove(parser().parse_args())
    print(json.dumps(found, indent=1))
    return 1 if found["problems"] or not found["tasks"] else 0


if __name__ == "__main__":
    sys.exit(main())
