"""Runs: which states end one."""

import pytest

from specs.events import EventType
from specs.run import RunState


def test_a_run_is_over_when_it_is_completed_failed_or_cancelled_and_in_no_other_state() -> None:
    over = {state for state in RunState if state.terminal}
    assert over == {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}


@pytest.mark.parametrize("state", RunState)
def test_the_event_of_a_terminal_state_is_the_last_one(state: RunState) -> None:
    told = [kind for kind in EventType if kind == f"run.{state}"]
    assert [kind.ends_stream for kind in told] == [state.terminal] * len(told)


def test_no_other_event_ends_the_stream() -> None:
    assert sum(kind.ends_stream is True for kind in EventType) == 3
