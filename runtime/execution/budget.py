"""The budgets of a run, kept by what its worker writes.

The gateway says at the claim what was spent before; from then on the meter reads every write:
a settled trial brings its sealed tokens, `batch.started` opens an update's account and the end
of the update closes it. Time runs while the claim does. `watch` ends the run's work at the
moment a budget is spent: sandboxes are stopped, nothing that is recorded is lost, and the run
is blocked until an operator extends the budget or cancels.

Calls of trials under way are counted when they are sealed, so a run may spend beyond a token
budget what `limits.max_output_tokens` and the concurrency allow.
"""

from collections.abc import Sequence

import anyio

from specs.errors import ErrorCode, ErrorObject, Problem, Unavailable
from specs.plans import Budget
from specs.worker_api import (
    BatchStarted,
    TrialSettledWrite,
    UpdateAcknowledged,
    UpdateSkipped,
    Usage,
    Write,
)


class Meter:
    """What a run may still spend, in one claim."""

    def __init__(self, run: str, usage: Usage) -> None:
        self._run = run
        self._limits = usage.limits
        self._claimed = anyio.current_time()
        self._before = usage.seconds
        self._tokens = usage.tokens
        self._batch = usage.batch is not None
        self._batch_tokens = usage.batch_tokens
        self._batch_begun = self._claimed - usage.batch_seconds
        self._changed = anyio.Event()

    def count(self, writes: Sequence[Write]) -> None:
        """Take note of what has been recorded."""
        for write in writes:
            match write:
                case TrialSettledWrite():
                    seal = write.settled.seal
                    spent = 0 if seal is None else seal.prompt_tokens + seal.output_tokens
                    self._tokens += spent
                    self._batch_tokens += spent
                case BatchStarted():
                    self._batch, self._batch_tokens = True, 0
                    self._batch_begun = anyio.current_time()
                case UpdateAcknowledged() | UpdateSkipped():
                    self._batch = False
                case _:
                    continue
            changed, self._changed = self._changed, anyio.Event()
            changed.set()

    async def watch(self) -> Problem:
        """Wait until a budget is spent, and say which. For ever where none is set."""
        while True:
            changed = self._changed
            problem = self.problem()
            if problem is not None:
                return problem
            with anyio.move_on_after(self._time_left()):
                await changed.wait()

    def problem(self) -> Problem | None:
        """Why the run must stop now, if it must."""
        now = anyio.current_time()
        spent = [
            ("run", self._limits.run, self._tokens, self._before + now - self._claimed),
        ]
        if self._batch:
            seconds = now - self._batch_begun
            spent.append(("update", self._limits.update, self._batch_tokens, seconds))
        for level, budget, tokens, seconds in spent:
            if budget.max_tokens is not None and tokens >= budget.max_tokens:
                return self._exhausted(level, "tokens", budget.max_tokens, tokens)
            if budget.max_sec is not None and seconds >= budget.max_sec:
                return self._exhausted(level, "sec", budget.max_sec, seconds)
        return None

    def _time_left(self) -> float:
        """Seconds until a budget of time is spent."""
        now = anyio.current_time()
        left = [_left(self._limits.run, self._before + now - self._claimed)]
        if self._batch:
            left.append(_left(self._limits.update, now - self._batch_begun))
        return max(0.0, min(left))

    def _exhausted(self, level: str, unit: str, limit: float, spent: float) -> Problem:
        words = {"tokens": "tokens", "sec": "seconds"}[unit]
        whose = "The run" if level == "run" else "The update under way"
        extend = f"practicum run extend {self._run} --{level}-{words} N"
        return Unavailable(
            f"{whose} has spent {spent:.0f} {words}; limits.{level}.max_{unit} is {limit:g}.",
            code=ErrorCode.BUDGET_EXHAUSTED,
            object=ErrorObject(
                type="run", id=self._run, pointer=f"/plan/limits/{level}/max_{unit}"
            ),
            next=f"{extend}, or practicum run cancel {self._run}",
        ).problem


def _left(budget: Budget, seconds: float) -> float:
    return float("inf") if budget.max_sec is None else budget.max_sec - seconds
