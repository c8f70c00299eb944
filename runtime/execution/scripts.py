"""A launch plan as three short shell scripts: prepare, run, gather.

Scripts and files go into the environment as one folder, so that a launch costs three commands
however many files and setup steps it has. Every word of the plan is quoted: the shell never
reads an argument of a profile. The harness *replaces* the shell, so its exit status and its
signals are its own; only when that fails does the shell get to say so, with 126 or 127 and a
last line in the harness's log.
"""

import shlex
from pathlib import Path, PurePosixPath

from specs.launch import LaunchOutput, LaunchPlan

FOLDER = "launch"
INSIDE = PurePosixPath("/tmp/practicum/launch")
OUTPUTS = "outputs"
SETUP_LOG = "setup.log"
HARNESS_LOG = "harness.log"
UNSTARTED = "practicum: the harness could not be started"
MISSING = "practicum: missing "

NOT_STARTED = (126, 127)
FAILED_FILES = 90
FAILED_WORKDIR = 91
FAILED_SETUP = 92


def stage_prepare(plan: LaunchPlan, folder: Path, logs: PurePosixPath) -> None:
    """Write the plan's files and `prepare.sh` into `folder`, which is sent to `INSIDE`."""
    (folder / "files").mkdir(parents=True, exist_ok=True)
    lines = ["set -u", f"exec >{logs}/{SETUP_LOG} 2>&1"]
    for index, file in enumerate(plan.files):
        if file.path == plan.instruction_file:
            continue  # each step of a task has its own; see `stage_run`
        (folder / "files" / str(index)).write_text(file.content, encoding="utf-8")
        target = shlex.quote(file.path)
        lines.append(
            f"install -D -T -m {file.mode:o} {INSIDE}/files/{index} {target} || exit {FAILED_FILES}"
        )
    workdir = shlex.quote(plan.workdir)
    lines.append(f"mkdir -p {workdir} && cd {workdir} || exit {FAILED_WORKDIR}")
    for command in plan.setup:
        quoted = shlex.quote(command)
        lines.append(f"printf '+ %s\\n' {quoted}")
        lines.append(f"bash -c {quoted} </dev/null || exit {FAILED_SETUP}")
    _write(folder / "prepare.sh", lines)


def stage_run(plan: LaunchPlan, folder: Path, logs: PurePosixPath) -> None:
    """Write `run.sh`, and what it reads, for one instruction."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    source = "/dev/null"
    if plan.stdin is not None:
        (folder / "stdin").write_text(plan.stdin, encoding="utf-8")
        source = f"{INSIDE}/stdin"
    lines.append(f"exec >>{logs}/{HARNESS_LOG} 2>&1")
    lines.append(f"unstarted() {{ echo {shlex.quote(UNSTARTED)}; exit {NOT_STARTED[0]}; }}")
    for file in plan.files:
        if file.path == plan.instruction_file:
            (folder / "instruction").write_text(file.content, encoding="utf-8")
            target = shlex.quote(file.path)
            lines.append(
                f"install -D -T -m {file.mode:o} {INSIDE}/instruction {target} || unstarted"
            )
    lines += [
        f"cd {shlex.quote(plan.workdir)} || unstarted",
        "shopt -s execfail",
        f"exec {shlex.join(plan.argv)} <{source}",
        "unstarted",
    ]
    _write(folder / "run.sh", lines)


def gather(outputs: tuple[LaunchOutput, ...], target: PurePosixPath, limit: int) -> str:
    """A command that copies the outputs there are, cut at `limit`, and names the missing ones.

    A link is not an output.
    """
    lines = [f"mkdir -p {target}"]
    for index, output in enumerate(outputs):
        path = shlex.quote(output.path)
        lines.append(
            f"if [ -f {path} ] && [ ! -L {path} ]; then"
            f" head -c {limit + 1} <{path} >{target}/{index}; else echo {MISSING!r}{index}; fi"
        )
    return "\n".join(lines)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
