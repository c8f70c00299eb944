"""What became of a trial: its outcome, and a verdict that is a reward or a reason (invariant 4).

The board is the first witness, because our agent and verifier wrote it where things happened.
Harbor's result fills in what happened outside of both.
"""

from typing import TYPE_CHECKING

from runtime.execution.board import Board, Verdict
from runtime.execution.rewards import finite, malformed
from specs.assessment import NoReward
from specs.records import TrialOutcome

if TYPE_CHECKING:
    from harbor.models.trial.result import ExceptionInfo, TrialResult

_NO_REWARD = {
    TrialOutcome.LAUNCH_FAILED: NoReward.LAUNCH_FAILED,
    TrialOutcome.INFRASTRUCTURE: NoReward.INFRASTRUCTURE,
    TrialOutcome.CANCELLED: NoReward.CANCELLED,
}


def conclude(board: Board, result: "TrialResult | None", *, scored: bool) -> Verdict:
    """Settle `board.outcome` and return the verdict."""
    info = result.exception_info if result else None
    if result is not None and board.outcome is None:
        _settle_outcome(board, result, info)
    assert board.outcome is not None
    if board.outcome in _NO_REWARD:
        return Verdict(reason=_NO_REWARD[board.outcome], detail=board.detail)
    if not scored:
        return Verdict(reason=NoReward.NOT_SCORED)
    if result is not None and result.step_results:
        return _of_steps(board, result)
    if board.verdict is not None:
        return board.verdict
    detail = _describe(info) if info else board.detail
    return Verdict(
        reason=NoReward.VERIFIER_FAILED, detail=f"the verifier did not run: {detail}"[:1000]
    )


def failure_detail(error: BaseException) -> str:
    """One line about an exception of someone else's code."""
    return f"{type(error).__name__}: {error}"[:1000]


def _settle_outcome(board: Board, result: "TrialResult", info: "ExceptionInfo | None") -> None:
    """For an outcome that our agent did not see: before it, around it, or without it."""
    started = result.agent_execution is not None or bool(result.step_results)
    if info is None:
        board.end(TrialOutcome.COMPLETED)
    elif not started:
        board.end(TrialOutcome.LAUNCH_FAILED, _describe(info))
    elif info.exception_type == "AgentTimeoutError":
        board.end(TrialOutcome.AGENT_TIMEOUT, _describe(info))
    elif board.verdict is not None:  # the agent (oracle, nop) ended well, its verifier did not
        board.end(TrialOutcome.COMPLETED)
    else:
        board.end(TrialOutcome.INFRASTRUCTURE, _describe(info))


def _of_steps(board: Board, result: "TrialResult") -> Verdict:
    """The task's own combination of its steps' rewards."""
    rewards = result.verifier_result.rewards if result.verifier_result else None
    if not rewards:
        return board.verdict or Verdict(
            reason=NoReward.REWARD_MISSING, detail="no step left a reward"
        )
    try:
        values = {name: finite(float(value), name) for name, value in rewards.items()}
    except (ValueError, OverflowError) as error:
        return malformed(f"the steps' rewards together: {error}")
    if "reward" in values:
        return Verdict(reward=values["reward"], rewards=values)
    if len(values) == 1:
        return Verdict(reward=next(iter(values.values())), rewards=values)
    return malformed("rewards of several names and none of them 'reward'")


def _describe(info: "ExceptionInfo") -> str:
    return f"{info.exception_type}: {info.exception_message}"[:1000]
