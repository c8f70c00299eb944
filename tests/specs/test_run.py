"""Runs: which states end one."""

from specs.run import RunState


def test_a_run_is_over_when_it_is_completed_failed_or_cancelled_and_in_no_other_state() -> None:
    over = {state for state in RunState if state.terminal}
    assert over == {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}
