"""What a trial learns about itself while Harbor runs it.

Harbor constructs our agent and verifier by import path, from a configuration that it also
writes to disk; a credential must not be in there. So both get only the trial's id, and find
what they need, and leave what they saw, on the trial's *board*.
"""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from specs.assessment import NoReward
from specs.errors import ErrorObject, Internal
from specs.launch import LaunchPlan, plan_launch
from specs.profile import Binding, Profile
from specs.records import TrialOutcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the verifier found: rewards, or why there are none."""

    reward: float | None = None
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    reason: NoReward | None = None
    detail: str = ""


@dataclass(slots=True)
class Board:
    """One trial.

    :ivar profile: None runs one of Harbor's own agents (oracle, nop).
    :ivar agent_sec: deadline of the harness, enforced where its processes are killed.
    :ivar instruction: of the task, or of its first step.
    :ivar seal: hands the evidence over when the harness has ended, so that the verifier can read
        it; None where the harness works again (a task with steps) or there is none.
    :ivar verifier_env: what the task's tests find in their environment.
    :ivar outcome: how the work ended; None while it has not.
    """

    trial: str
    agent_sec: float
    instruction: str = ""
    profile: Profile | None = None
    bindings: Mapping[Binding, str] = field(default_factory=dict[Binding, str])
    verifier_env: Mapping[str, str] = field(default_factory=dict[str, str])
    output_bytes: int = 8 << 20
    outcome: TrialOutcome | None = None
    detail: str = ""
    exit_code: int | None = None
    missing_outputs: tuple[str, ...] = ()
    verdict: Verdict | None = None
    seal: Callable[[], Awaitable[object]] | None = None
    environment_version: str | None = None

    def plan(self, instruction: str) -> LaunchPlan:
        """The launch plan for an instruction (each step of a task has its own)."""
        assert self.profile is not None
        return plan_launch(self.profile, {**self.bindings, Binding.INSTRUCTION: instruction})

    def end(self, outcome: TrialOutcome, detail: str = "") -> None:
        """Note how the work ended; the first failure stays."""
        if self.outcome in (None, TrialOutcome.COMPLETED):
            self.outcome, self.detail = outcome, detail


_boards: dict[str, Board] = {}


@contextmanager
def posted(board: Board) -> Generator[Board]:
    """Keep a board where Harbor's objects find it."""
    _boards[board.trial] = board
    try:
        yield board
    finally:
        del _boards[board.trial]


def find(trial: str) -> Board:
    """The board of a running trial."""
    try:
        return _boards[trial]
    except KeyError:
        raise Internal(
            f"Trial {trial} has no board: its agent or verifier was started outside the adapter.",
            object=ErrorObject(type="trial", id=trial),
        ) from None
