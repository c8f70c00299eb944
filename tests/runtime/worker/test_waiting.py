"""A run's events tell what a training service keeps waiting: changes, and each end."""

from runtime.compute.protocol import Wait, WaitState
from runtime.worker.waiting import Told, changes


def wait(state: WaitState, seconds: float = 1.0, reason: str | None = None) -> Wait:
    return Wait("forward", "tinker/m", "t", state, reason, seconds)


def test_only_changes_are_told_and_each_end_once() -> None:
    told: Told = {}
    (first,) = changes(told, [wait("slow", 61.234)])
    assert (first.operation, first.trainer, first.state, first.seconds) == (
        "forward",
        "t",
        "slow",
        61.2,
    )
    assert changes(told, [wait("slow", 70)]) == []
    (second,) = changes(told, [wait("rate_limited", 75, "too many")])
    assert (second.state, second.reason) == ("rate_limited", "too many")
    (end,) = changes(told, [])
    assert (end.state, end.reason) == ("active", None)
    assert changes(told, []) == []
