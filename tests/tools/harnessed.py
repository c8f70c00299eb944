"""`python -m tests.tools.harnessed FOLDER`: a command that runs a harness there, without a stack.

`python -m tests.tools.harnessed`: one that a thread holds up until the end of stdin. It is run as
a process of its own, since it is there to be told to end.
"""

import sys
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from runtime.native.launch import execute
from specs.base import Contract
from specs.launch import LaunchPlan
from specs.profile import Engine
from tools import ending, registry
from tools.cli import main
from tools.context import Context
from tools.fields import Cli, Input

HARNESS = """\
trap 'echo ending; read word < told; exit 0' TERM
echo harness
(read word < told) & wait
"""


class Where(Input):
    folder: Annotated[str, Cli(positional=True)]


class Ended(Contract):
    code: int | None


async def run_harness(_: Context, request: Where) -> Ended:
    plan = LaunchPlan(
        engine=Engine(name="command", version="1"),
        workdir=request.folder,
        files=(),
        setup=(),
        argv=("bash", "-c", HARNESS, request.folder),
        env={},
        stdin=None,
        instruction_file=None,
        outputs=(),
    )
    state = Path(request.folder)
    try:
        ended = await execute(plan, state, sys.stdout.buffer, replace=False, timeout=None)
    finally:
        say("cleaned up")
    return Ended(code=ended.code)


async def be_held_up(_: Context, __: Where) -> Ended:
    say("held up")
    await anyio.to_thread.run_sync(sys.stdin.buffer.read)
    return Ended(code=0)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run() -> int:
    """Be `practicum agent run FOLDER`, with an operation of ours in its place."""
    registry.load("agent")
    folder, handler = (sys.argv[1], run_harness) if len(sys.argv) > 1 else (".", be_held_up)
    if handler is be_held_up:
        ending.CLEAN_UP_SEC = 0.01
    registry.operation("agent", "run", registry.Traits(), text=lambda _: "")(handler)
    return main(["agent", "run", folder])


if __name__ == "__main__":
    sys.exit(run())
