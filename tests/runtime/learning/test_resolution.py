"""What became of an update follows from its trainer and from a state of its id (invariant 8)."""

from typing import Any

import anyio
import pytest

from runtime.execution.context import Blocked
from runtime.learning.resolution import (
    Fate,
    Pending,
    blocked,
    compute_lost,
    persistently,
    resolve,
)
from specs.errors import ErrorCode, Unavailable
from specs.records import UpdateState
from tests.runtime.learning.pretended import Pretended
from tests.runtime.learning.told import FIRST, RUN, name, update_of

TRAINER = name("trn", 0)


def pending(**changes: Any) -> Pending:
    known: dict[str, Any] = {"id": FIRST, "batch": 0, "trainer": TRAINER, "incarnation": "one"}
    return Pending(**{**known, **changes})


def nothing() -> None:
    """Nobody asks to stop."""


async def fate(made: Pretended, update: Pending) -> Fate:
    return await resolve(made.compute, update, run=RUN, check=nothing, patience=0)


def test_only_an_update_that_is_not_over_is_pending() -> None:
    found = {state: Pending.of(update_of(FIRST, 3, state)) for state in UpdateState}
    open_ = {state for state, one in found.items() if one is not None}
    assert open_ == {UpdateState.PREPARED, UpdateState.UNRESOLVED}
    update = update_of(
        FIRST, 3, UpdateState.UNRESOLVED, metrics={"loss": 1.5}, resolution="applied"
    )
    expected = Pending(FIRST, 3, name("trn", 3), "one", True, "applied", (("loss", 1.5),))
    assert Pending.of(update) == expected
    prepared = found[UpdateState.PREPARED]
    assert prepared is not None
    assert not prepared.unresolved
    enqueued = prepared.enqueued({"loss": 2.0})
    assert (enqueued.unresolved, enqueued.measures) == (True, (("loss", 2.0),))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("unresolved", "saved", "incarnation", "expected"),
    [
        (False, False, "one", Fate.NOT_APPLIED),
        (False, False, "two", Fate.NOT_APPLIED),
        (True, False, "one", Fate.NOT_APPLIED),
        (True, True, "one", Fate.APPLIED),
        (True, True, "two", Fate.APPLIED),
        (True, False, "two", Fate.NOT_APPLIED),
    ],
)
async def test_a_state_is_looked_for_once_the_trainer_has_ended(
    unresolved: bool, saved: bool, incarnation: str, expected: Fate
) -> None:
    made = Pretended(incarnation=incarnation, states={FIRST} if saved else set())
    assert await fate(made, pending(unresolved=unresolved)) is expected
    names = [call[0] for call in made.calls]
    closing = ["close_trainer"] if incarnation == "one" else []
    assert names == ["health", *closing, *(["find_state"] if unresolved else [])]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("word", "saved", "expected"),
    [
        ("applied", True, Fate.APPLIED),
        ("applied", False, "resolved as applied, and no state"),
        ("not-applied", False, Fate.NOT_APPLIED),
        ("not-applied", True, "resolved as not applied, and a state"),
    ],
)
async def test_an_operators_word_is_checked_against_the_state(
    word: str, saved: bool, expected: Fate | str
) -> None:
    made = Pretended(states={FIRST} if saved else set())
    update = pending(unresolved=True, resolution=word)
    if isinstance(expected, Fate):
        assert await fate(made, update) is expected
        return
    with pytest.raises(Blocked, match=expected) as stopped:
        await fate(made, update)
    assert stopped.value.problem.code == ErrorCode.UPDATE_UNRESOLVED


@pytest.mark.anyio
@pytest.mark.parametrize("call", ["health", "close_trainer"])
@pytest.mark.parametrize(
    ("unresolved", "word", "error"),
    [
        (False, None, Unavailable),
        (True, "not-applied", Unavailable),
        (True, None, Blocked),
        (True, "applied", Blocked),
    ],
)
async def test_a_compute_that_cannot_be_asked_blocks_only_where_the_step_may_count(
    call: str, unresolved: bool, word: str | None, error: type[Exception]
) -> None:
    made = Pretended(errors={call: Unavailable("compute is away")})
    with pytest.raises(error, match="compute is away"):
        await fate(made, pending(unresolved=unresolved, resolution=word))


@pytest.mark.anyio
async def test_a_call_is_repeated_while_its_part_is_away_and_no_longer_than_patience_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a clock of its own: a pause takes as long as it says."""
    now = 0.0
    pauses: list[float] = []
    checks: list[float] = []

    async def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    monkeypatch.setattr(anyio, "current_time", lambda: now)
    monkeypatch.setattr(anyio, "sleep", sleep)
    answers: list[Any] = [Unavailable("away")] * 7 + ["back"]

    async def call() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    found = await persistently(call, check=lambda: checks.append(now), patience=10)
    assert found == "back"
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0])
    assert len(checks) == 7
    now, answers = 0.0, [Unavailable("away")] * 9
    pauses.clear()
    with pytest.raises(Unavailable, match="away"):
        await persistently(call, check=nothing, patience=0.25)
    assert pauses == pytest.approx([0.05, 0.1])  # the third pause would end behind the deadline


def test_a_trainer_is_lost_with_its_compute_or_when_it_is_missing() -> None:
    lost = {code for code in ErrorCode if compute_lost(Unavailable("gone", code=code))}
    assert lost == {ErrorCode.COMPUTE_UNAVAILABLE, ErrorCode.TRAINER_MISSING}


def test_a_blocked_run_names_the_command_that_lets_it_go_on() -> None:
    problem = blocked(RUN, FIRST, "nobody knows").problem
    assert f"update {FIRST} was applied: nobody knows" in problem.detail
    assert (
        problem.next == f"practicum update resolve {RUN} {FIRST} --as applied|not-applied|abandon"
    )
