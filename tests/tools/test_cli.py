"""The command line: cheap help, exit codes, and errors that say what to do. Needs no stack."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from specs.errors import ErrorCode, Problem
from tools.cli import main
from tools.failures import as_text, exit_code

ROOT = Path(__file__).parents[2]
HELP = "from tools.cli import run; run()"
MAX_HELP_RATIO = 1.5


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Done]:
    """Run a command in this process, with a home that has no stack and may not start one."""
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    monkeypatch.setenv("PRACTICUM_HOME", str(tmp_path / "no-stack"))

    def call(*words: str) -> Done:
        code = main(words)
        captured = capfd.readouterr()
        return Done(code, captured.out, captured.err)

    return call


type Cli = Callable[..., Done]


def problem_of(done: Done) -> Problem:
    return Problem.model_validate_json(done.stderr.splitlines()[-1])


def child_cpu(*arguments: str) -> float:
    """CPU seconds of one Python child."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_help_costs_little_more_than_importing_typer() -> None:
    pairs = [(child_cpu("-c", HELP, "--help"), child_cpu("-c", "import typer")) for _ in range(7)]
    ratio = median(ours for ours, _ in pairs) / median(theirs for _, theirs in pairs)
    assert ratio <= MAX_HELP_RATIO, f"{ratio:.2f}"


def test_help_lists_every_noun_and_each_noun_its_verbs(cli: Cli) -> None:
    top = cli("--help")
    assert top.returncode == 0
    for word in ("run", "train", "checkpoint", "dataset", "profile", "model", "up", "mcp"):
        assert f"  {word}" in top.stdout
    verbs = cli("run", "--help").stdout
    assert all(f"  {verb}" in verbs for verb in ("start", "events", "interactions", "compare"))
    start = cli("run", "start", "--help").stdout
    assert all(flag in start for flag in ("--dataset", "--actor", "--plan", "--judge", "--json"))
    select = cli("dataset", "select", "--help").stdout.splitlines()
    assert [line.split()[0] for line in select if line.endswith("(repeatable)")] == [
        "--family",
        "--capability",
        "--name",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "starts"),
        ("nonsense",),
        ("run", "show"),
        ("run", "show", "--nope"),
        ("run", "events", "run_1", "--after", "x"),
        ("run", "logs", "run_1", "--source", "other"),
        ("run", "wait", "run_1", "--timeout", "soon"),
        ("run", "trials", "run_1", "--limit", "0"),
    ],
)
def test_a_bad_command_line_is_bad_input(cli: Cli, words: tuple[str, ...]) -> None:
    done = cli(*words, "--json")
    assert done.returncode == 2, done.stderr
    assert problem_of(done).next
    assert done.stdout == ""


PLAN = json.dumps({"trials_per_task": 1})
TRAIN = json.dumps({"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 2}})


@pytest.mark.parametrize(
    ("noun", "plan", "actor", "code", "pointer"),
    [
        ("run", '{"trials_per_task": 1, "zeal": 2}', "a/b@v1", "invalid_document", "/zeal"),
        ("run", TRAIN, "a/b@v1", "invalid_document", "/kind"),
        ("train", PLAN, "a/b@v1", "invalid_document", "/kind"),
        ("run", "{", "a/b@v1", "invalid_json", None),
        ("run", PLAN, "@absent.json", "invalid_reference", None),
        ("run", PLAN, "Not A Name", "invalid_reference", "/actor"),
    ],
)
def test_a_bad_document_is_refused_before_anything_starts(
    cli: Cli, tmp_path: Path, noun: str, plan: str, actor: str, code: str, pointer: str | None
) -> None:
    (tmp_path / "plan.json").write_text(plan)
    words = ("start", "--dataset", "a/b@v1", "--actor", actor)
    done = cli(noun, *words, "--plan", f"@{tmp_path}/plan.json", "--json")
    assert done.returncode == 2
    problem = problem_of(done)
    assert problem.code == code
    assert (problem.object.pointer if problem.object else None) == pointer
    assert problem.next
    assert not (tmp_path / "no-stack").exists()


def test_a_command_that_may_not_start_the_stack_says_so(cli: Cli) -> None:
    done = cli("run", "list")
    assert done.returncode == 1
    assert "code: stack_unavailable" in done.stderr
    assert "practicum up" in done.stderr


def test_status_and_down_need_no_stack(cli: Cli, tmp_path: Path) -> None:
    status = cli("status", "--json", "--home", str(tmp_path / "home"))
    assert status.returncode == 1
    assert json.loads(status.stdout)["running"] is False
    assert cli("down", "--home", str(tmp_path / "home")).returncode == 0


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (422, ErrorCode.INVALID_DOCUMENT, 2),
        (413, ErrorCode.BODY_TOO_LARGE, 2),
        (404, ErrorCode.NOT_FOUND, 3),
        (403, ErrorCode.FORBIDDEN, 3),
        (401, ErrorCode.UNAUTHENTICATED, 3),
        (409, ErrorCode.IDEMPOTENCY_CONFLICT, 1),
        (503, ErrorCode.WAIT_TIMED_OUT, 4),
        (422, ErrorCode.DIGEST_MISMATCH, 1),
        (500, ErrorCode.INTERNAL, 1),
    ],
)
def test_exit_codes_follow_the_problem(status: int, code: ErrorCode, expected: int) -> None:
    problem = Problem(title="t", status=status, detail="d", code=code, next="n")
    assert exit_code(problem) == expected
    assert as_text(problem) == f"error: d\n  code: {code}\n  next: n"


def test_a_valid_profile_is_shown_with_its_digest(cli: Cli, tmp_path: Path) -> None:
    profile: dict[str, Any] = {
        "schema": "practicum.profile/v1",
        "name": "acme/one",
        "agent": {
            "model": "tiny",
            "engine": {"name": "command", "version": "1"},
            "files": [{"path": "a.sh", "source": "a.sh"}],
            "args": ["sh", "a.sh"],
        },
    }
    (tmp_path / "a.sh").write_text("true\n")
    (tmp_path / "p.json").write_text(json.dumps(profile))
    done = cli("profile", "validate", str(tmp_path / "p.json"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["digest"].startswith("sha256:")
    changed = {**profile, "agent": {**profile["agent"], "model": "other"}}
    (tmp_path / "q.json").write_text(json.dumps(changed))
    diff = cli("profile", "diff", f"@{tmp_path}/p.json", f"@{tmp_path}/q.json", "--json")
    assert json.loads(diff.stdout)["only_model"] is True


@pytest.mark.parametrize("command", [["model", "list"], ["mcp"]])
def test_a_home_of_nobody_is_refused(command: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--home", "~no-such-user/home"]) == 2
    told = capfd.readouterr().err
    assert "code: invalid_reference" in told
    assert "Traceback" not in told
