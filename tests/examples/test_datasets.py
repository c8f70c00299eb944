"""The example datasets keep what their README says of them."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from harbor.models.task.config import NetworkMode
from harbor.models.task.task import Task

from runtime.compute.scenario import read_scenario
from specs import canonical
from specs.canonical import loads
from specs.chat import File
from specs.plans import EvaluationPlan, SupervisedPlan, TrainingPlan, parse_plan
from specs.profile import Profile

MAX_TOKENS = 24
"""What the profiles let the model say at once."""
FILES = {
    "task.toml",
    "instruction.md",
    "environment/Dockerfile",
    "tests/test.sh",
    "tests/expected.txt",
    "solution/solve.sh",
}


def tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below `folder` with its permissions and bytes."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mode & 0o111, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def family(task: Task) -> str:
    return task.config.metadata["family"]


def capability(task: Task) -> str:
    return task.config.metadata["capability"]


def commands(task: Task) -> list[str]:
    """The commands of the solution."""
    script = (task.task_dir / "solution" / "solve.sh").read_text(encoding="utf-8")
    return script.splitlines()[3:]


def words(task: Task) -> set[str]:
    """Every word of a task's files and file names."""
    files = task.task_dir / "environment" / "files"
    texts = [f"{path.name} {path.read_text(encoding='utf-8')}" for path in files.iterdir()]
    return set(re.findall(r"[a-z]+", " ".join([task.instruction, *texts])))


def test_the_committed_tree_is_what_the_generator_writes(examples: Path, tmp_path: Path) -> None:
    generator = [sys.executable, "-B", str(examples / "generate.py"), "--out", str(tmp_path)]
    subprocess.run(generator, check=True)
    for name in ("shell-practice", "shell-held-out", "scenarios"):
        assert tree(tmp_path / name) == tree(examples / name), name


def test_there_are_enough_tasks_of_every_kind(practice: list[Task], held_out: list[Task]) -> None:
    assert len(practice) >= 24
    practised = {family(task) for task in practice}
    same = Counter(family(task) for task in held_out if family(task) in practised)
    assert set(same) == practised
    assert sum(same.values()) >= 48
    assert len(held_out) - sum(same.values()) == 8


def test_kinds_never_practised_are_marked(practice: list[Task], held_out: list[Task]) -> None:
    practised = {family(task) for task in practice}
    for task in held_out:
        assert (capability(task) == "unpractised") == (family(task) not in practised)
    assert {capability(task) for task in practice} == {"act", "look-then-act"}


@pytest.mark.parametrize("dataset", ["practice", "held_out"])
def test_at_least_half_need_a_look_before_the_act(
    dataset: str, request: pytest.FixtureRequest
) -> None:
    tasks: list[Task] = request.getfixturevalue(dataset)
    looked = [task for task in tasks if len(commands(task)) == 2]
    assert 2 * len(looked) >= len(tasks)
    for task in looked:
        look, act = commands(task)
        memo = look.removeprefix("cat ")
        sentence = (task.task_dir / "environment" / "files" / memo).read_text(encoding="utf-8")
        told = set(re.findall(r"[\w.]+", task.instruction))
        secret = set(re.findall(r"[a-z]+(?:\.[a-z]+)?", act)) - told
        assert any(re.search(rf"\b{re.escape(word)}\b", sentence) for word in secret), task.name
        assert len(sentence.split()) > 1, "a bare word could be spliced in unseen"


def test_practice_and_held_out_share_no_name_and_no_content(
    practice: list[Task], held_out: list[Task], examples: Path
) -> None:
    lists = [
        set((examples / "words" / f"{name}.txt").read_text(encoding="utf-8").split())
        for name in ("practice", "held-out")
    ]
    assert not lists[0] & lists[1]
    seen = [set[str]().union(*(words(task) for task in tasks)) for tasks in (practice, held_out)]
    assert not seen[0] & lists[1]
    assert not seen[1] & lists[0]
    assert len({task.instruction for task in practice + held_out}) == len(practice + held_out)


def test_every_task_is_a_complete_small_offline_harbor_task(
    practice: list[Task], held_out: list[Task]
) -> None:
    for task in practice + held_out:
        folder, config = task.task_dir, task.config
        assert set(tree(folder)) >= FILES
        assert task.name == f"practicum-examples/{folder.name}"
        assert config.schema_version == "1.4"
        assert config.environment.network_mode is NetworkMode.NO_NETWORK
        assert config.environment.workdir == "/app"
        assert config.environment.memory_mb == 256
        assert config.metadata.keys() == {"family", "capability", "severity"}
        assert sum(len(data) for _, data in tree(folder).values()) < 8_000


def test_instructions_and_commands_are_short(practice: list[Task], held_out: list[Task]) -> None:
    """Names are single tokens, so words and marks are about as many as tokens."""
    for task in practice + held_out:
        for text in [task.instruction, *commands(task)]:
            assert len(re.findall(r"\w+|[^\w\s]", text)) < MAX_TOKENS, text


def test_the_scenario_solves_exactly_the_demonstrated_tasks(
    practice: list[Task], examples: Path
) -> None:
    scenario = read_scenario((examples / "scenarios" / "shell-demos.json").read_bytes())
    plan = parse_plan(loads((examples / "plans" / "demos.json").read_bytes()))
    assert isinstance(plan, EvaluationPlan)
    shown = practice[: plan.tasks.limit]
    assert scenario.replies == {task.name: commands(task) for task in shown}
    assert {family(task) for task in shown} == {family(task) for task in practice}


@pytest.mark.parametrize("name", ["baseline", "demonstrator"])
def test_profiles_are_valid_and_differ_in_name_and_model_alone(name: str, examples: Path) -> None:
    text = (examples / "profiles" / f"{name}.json").read_bytes()
    profile = canonical.read(Profile, text, what="profile")
    base = canonical.read(
        Profile, (examples / "profiles" / "baseline.json").read_bytes(), what="profile"
    )
    recipe = {"model": base.agent.model}
    assert profile.agent.model_copy(update=recipe) == base.agent
    assert profile.agent.sampling.max_tokens == MAX_TOKENS
    for file in profile.agent.files:
        assert file.source is not None
        assert (examples / "profiles" / file.source).is_file()


def test_plans_are_valid(examples: Path) -> None:
    kinds = {
        "eval": EvaluationPlan,
        "demos": EvaluationPlan,
        "supervised": SupervisedPlan,
        "supervised-file": SupervisedPlan,
        "train": TrainingPlan,
    }
    found = {path.stem for path in (examples / "plans").iterdir()}
    assert found == set(kinds)
    for name, kind in kinds.items():
        plan = parse_plan(loads((examples / "plans" / f"{name}.json").read_bytes()))
        assert isinstance(plan, kind)


def test_rows_are_conversations_of_practice_alone(examples: Path) -> None:
    """Held-out tasks never teach, in no form."""
    practised = {folder.name for folder in (examples / "shell-practice").iterdir()}
    files = sorted((examples / "rows").iterdir())
    assert {path.stem for path in files} == {"commands", "commands-check"}
    names = [
        str(loads(row.origin.id or ""))
        for path in files
        for row in File.of(path.name, path.read_bytes()).rows()
    ]
    assert set(names) <= practised
    assert len(set(names)) == len(names)
