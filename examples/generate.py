"""Writes the two example datasets and the scenario of their demonstrations.

    python examples/generate.py            rewrite the folders beside this file
    python examples/generate.py --out DIR  write them elsewhere (a test compares the two)

The datasets share the kinds of `kinds.py` and no word: names and contents come from the
disjoint lists in `words/`. Held-out ends with kinds that practice never shows. A task's name
is its only seed, so the committed tree equals the output.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from kinds import PRACTISED_KINDS, UNPRACTISED_KINDS, Draft, Kind, Tree, Words

HERE = Path(__file__).parent
ORG = "practicum-examples"
PRACTICE_PER_KIND = 5
HELD_OUT_PER_KIND = 6
UNPRACTISED_PER_KIND = 4
DEMONSTRATED = 24
"""The first so many practice tasks are in the scenario; `plans/demos.json` selects them."""

type Dataset = dict[str, tuple[Kind, Draft]]
"""Tasks by the name of their folder."""


def make_tasks(
    prefix: str, words: Sequence[str], kinds: Sequence[Kind], rounds: int, first: int = 1
) -> Dataset:
    """The kinds take turns, so that any stretch of the dataset mixes them."""
    tasks: Dataset = {}
    for index in range(rounds * len(kinds)):
        kind = kinds[index % len(kinds)]
        name = f"{prefix}-{first + index:02d}-{kind.family}"
        tasks[name] = (kind, kind.draft(Words(words, seed=name)))
    return tasks


def read_words(name: str) -> list[str]:
    return (HERE / "words" / f"{name}.txt").read_text(encoding="utf-8").split()


def practice() -> Dataset:
    return make_tasks("practice", read_words("practice"), PRACTISED_KINDS, PRACTICE_PER_KIND)


def held_out() -> Dataset:
    words = read_words("held-out")
    tasks = make_tasks("held-out", words, PRACTISED_KINDS, HELD_OUT_PER_KIND)
    return tasks | make_tasks(
        "held-out", words, UNPRACTISED_KINDS, UNPRACTISED_PER_KIND, first=len(tasks) + 1
    )


def scenario(tasks: Dataset) -> str:
    """The scripted replies that solve the demonstrated tasks."""
    demonstrated = list(tasks.items())[:DEMONSTRATED]
    document = {
        "schema": "practicum.scenario/v1",
        "tokenizer": "smollm2-135m-instruct",
        "replies": {f"{ORG}/{name}": list(draft.replies) for name, (_, draft) in demonstrated},
    }
    return json.dumps(document, indent=2) + "\n"


def expected_listing(tree: Tree) -> str:
    """What `test.sh` prints of `/app` when it holds `tree`."""
    lines: list[str] = []
    for path in sorted(tree, key=lambda path: path.rstrip("/")):
        if path.endswith("/"):
            lines.append(f"folder {path.rstrip('/')}\n")
        else:
            body = tree[path].rstrip().replace("\n", "\n  ")
            lines.append(f"file {path}\n  {body}\n")
    return "".join(lines)


def write_task(folder: Path, kind: Kind, draft: Draft) -> None:
    """Write one complete Harbor task directory."""
    template = {path.name: path.read_text(encoding="utf-8") for path in HERE.glob("templates/*")}
    files = {
        "task.toml": template["task.toml"].format(
            name=f"{ORG}/{folder.name}", description=draft.instruction, kind=kind
        ),
        "instruction.md": f"{draft.instruction}\n",
        "environment/Dockerfile": template["Dockerfile"],
        "tests/test.sh": template["test.sh"],
        "tests/expected.txt": expected_listing(draft.after),
        "solution/solve.sh": "\n".join(["#!/bin/bash", "set -e", "cd /app", *draft.replies, ""]),
        **{f"environment/files/{path}": body for path, body in draft.before.items()},
    }
    for path, body in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(body, encoding="utf-8")
        target.chmod(0o755 if target.suffix == ".sh" else 0o644)


def write(out: Path) -> None:
    """Replace the two dataset folders and the scenario under `out`."""
    datasets = {"shell-practice": practice(), "shell-held-out": held_out()}
    for name, tasks in datasets.items():
        shutil.rmtree(out / name, ignore_errors=True)
        for task, (kind, draft) in tasks.items():
            write_task(out / name / task, kind, draft)
    target = out / "scenarios" / "shell-demos.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(scenario(datasets["shell-practice"]), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the example datasets and scenario.")
    parser.add_argument("--out", type=Path, default=HERE)
    write(parser.parse_args().out)
