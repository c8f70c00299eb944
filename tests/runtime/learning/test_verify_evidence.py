"""Each way in which a segment is not what was sealed is a finding of its check."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from runtime.learning.snapshot import Snapshot
from runtime.learning.verify_evidence import (
    TOLERANCE,
    EvidenceChecks,
    LogprobCheck,
    count_interactions,
    in_order,
)
from specs import evidence
from specs.ids import Prefix
from specs.interaction import CallState, Intent, Interaction, Refusal
from specs.records import Trial
from tests.runtime.learning.pretended import Pretended, Store
from tests.runtime.learning.support import AT, SAMPLER, Turn, record, seal_of, trial_of
from tests.runtime.learning.told import name, sampler, sound

CHAIN = [Turn([1], [2, 3]), Turn([4], [5], extends=0), Turn([9], [8])]

type Frames = list[tuple[Any, dict[str, "array[Any]"]]]


def frames_of(turns: Sequence[Turn], trial: str) -> Frames:
    data = record(turns, trial=trial).data
    return [(frame.record, dict(frame.arrays)) for frame, _ in evidence.frames(data)]


def sealed(store: Store, trial: str, frames: Frames, /, **changes: Any) -> Trial:
    """A trial whose seal agrees with these frames, but for `changes`."""
    data = b"".join(evidence.encode(one, arrays) for one, arrays in frames)
    calls = tuple(evidence.interactions(data))
    seal = seal_of(trial, name(Prefix.RUN, 0), 1, data, calls)
    refused = len(evidence.refusals(data))
    if refused:
        states = {**seal.states, CallState.REFUSED: refused}
        seal = seal.model_copy(update={"states": states})
    store.put(data)
    found = trial_of(record([Turn([1], [2])], trial=trial, run=name(Prefix.RUN, 0)))
    assert found.settled is not None
    settled = found.settled.model_copy(update={"seal": seal.model_copy(update=changes)})
    return found.model_copy(update={"settled": settled})


async def found_in(
    change: Callable[[Frames], object], turns: Sequence[Turn] = CHAIN, **seal: Any
) -> dict[str, list[str]]:
    """The findings by check, of a trial whose frames were changed and sealed as they are."""
    store, trial, checks = Store(), name(Prefix.TRIAL, 1), EvidenceChecks()
    frames = frames_of(turns, trial)
    change(frames)
    await checks.look(store, sealed(store, trial, frames, **seal))
    return {one.id: one.violations for one in checks.results() if one.violations}


def nothing(_: Frames) -> None:
    """As it was recorded."""


def intent(frames: Frames, at: int, **changes: Any) -> None:
    """Change the intent of a call."""
    place = [i for i, (one, _) in enumerate(frames) if isinstance(one, Intent)][at]
    one, arrays = frames[place]
    frames[place] = (one.model_copy(update=changes), arrays)


@pytest.mark.anyio
async def test_a_sound_segment_has_no_finding_and_is_counted() -> None:
    store, trial, checks = Store(), name(Prefix.TRIAL, 1), EvidenceChecks()
    for _ in range(2):
        calls = await checks.look(store, sealed(store, trial, frames_of(CHAIN, trial)))
        assert len(calls) == 3
    assert all(one.checked and not one.violations for one in checks.results())
    assert checks.interactions == 6
    assert dict(checks.spans) == {"root": 4, "exact": 2}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("seal", "says"),
    [
        ({"trial": name(Prefix.TRIAL, 2)}, "seal of trl_"),
        ({"run": name(Prefix.RUN, 2)}, "seal of trl_"),
        ({"fence": 2}, "seal of trl_"),
        ({"interactions": 4}, "interactions: sealed 4, found 3"),
        ({"size": 1}, "size: sealed 1"),
        ({"prompt_tokens": 1}, "prompt_tokens: sealed 1"),
        ({"output_tokens": 1}, "output_tokens: sealed 1"),
        ({"states": {CallState.LOST: 3}}, "states: sealed"),
        ({"object": "sha256:" + "0" * 64}, "segment of trl_"),
    ],
)
async def test_what_a_seal_says_is_what_is_stored_invariant_11(
    seal: dict[str, Any], says: str
) -> None:
    found = await found_in(nothing, **seal)
    assert list(found) == ["evidence.objects"]
    (violation,) = found["evidence.objects"]
    assert says in violation


@pytest.mark.anyio
async def test_a_trial_without_calls_has_none_and_one_that_has_some_needs_a_segment() -> None:
    assert await found_in(nothing, object=None, interactions=0) == {}
    found = await found_in(nothing, object=None)
    assert "without a segment: recorded 3, derived 0" in found["evidence.objects"][0]
    checks = EvidenceChecks()
    assert await checks.look(Store(), trial_of(None)) == ()
    assert not checks.objects.checked


WRONG: list[tuple[Callable[[Frames], object], str, str]] = [
    (
        lambda f: intent(f, 0, trial=name(Prefix.TRIAL, 2)),
        "evidence.intents",
        "trial of ",
    ),
    (lambda f: intent(f, 1, sequence=2), "evidence.intents", "numbers of the calls"),
    (lambda f: intent(f, 2, sequence=3), "evidence.intents", "numbers of the calls"),
    (lambda f: intent(f, 2, sampler=name(Prefix.SAMPLER, 1)), "evidence.samplers", "sampler"),
    (lambda f: intent(f, 0, prompt_tokens=7), "evidence.chains", "recorded 7, derived 1"),
    (lambda f: intent(f, 2, branch=None), "evidence.chains", "does not extend None"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("change", "check", "says"), WRONG)
async def test_an_intent_that_is_not_so_is_a_finding(
    change: Callable[[Frames], object], check: str, says: str
) -> None:
    found = await found_in(change)
    assert says in found[check][0]


@pytest.mark.parametrize(
    ("kinds", "sound_"),
    [
        ("intent", True),
        ("intent failure", True),
        ("refusal", True),
        ("intent answer", True),
        ("intent answer superseded", True),
        ("intent answer delivered", True),
        ("intent answer superseded delivered", True),
        ("intent answer delivered superseded", True),
        ("intent delivered answer", False),
        ("intent delivered", False),
        ("intent answer delivered delivered", False),
        ("intent failure delivered", False),
        ("refusal delivered", False),
        ("answer intent", False),
        ("answer", False),
        ("intent answer answer", False),
        ("intent intent answer", False),
        ("intent answer failure", False),
        ("intent superseded", False),
        ("", False),
    ],
)
def test_a_call_has_an_intent_then_one_outcome_and_is_delivered_once_invariant_2(
    kinds: str, sound_: bool
) -> None:
    assert in_order(kinds.split()) is sound_


@pytest.mark.anyio
async def test_refusals_have_numbers_too_and_belong_to_the_trial() -> None:
    trial = name(Prefix.TRIAL, 1)

    def refused(sequence: int, of: str = trial) -> Callable[[Frames], None]:
        one = Refusal(
            interaction=name(Prefix.INTERACTION, 7),
            trial=of,
            sequence=sequence,
            at=AT,
            code="x",
            detail="",
        )
        return lambda frames: frames.append((one, {}))

    assert await found_in(refused(3)) == {}
    assert list(await found_in(refused(4))) == ["evidence.intents"]
    (other,) = (await found_in(refused(3, name(Prefix.TRIAL, 2))))["evidence.intents"]
    assert other.startswith(f"trial of {name(Prefix.INTERACTION, 7)}")


def exact(prompt: Sequence[int], output: Sequence[int], extends: int | None = None) -> Turn:
    """A turn whose log-probs are those that `Pretended` gives."""
    return Turn(prompt, output, extends=extends, logprobs=[-token / 100 for token in output])


def logprobs(samples: int | None, made: Pretended | None) -> LogprobCheck:
    known = {SAMPLER: sampler(0).model_copy(update={"id": SAMPLER})}
    base = sound()
    snapshot = Snapshot(base.run, (), (), (), (), (), known)
    return LogprobCheck(made.compute if made else None, Store(), snapshot, samples)


async def looked(
    turns: Sequence[Turn], samples: int | None = None, shift: float = 0.0
) -> tuple[LogprobCheck, Pretended]:
    made = Pretended(shift=shift)
    check = logprobs(samples, made)
    calls = record(turns).calls
    await check.look(len(calls), calls)
    return check, made


CALLS = [exact([1], [20, 30]), exact([4], [50], extends=0), exact([9], [80])]


@pytest.mark.anyio
async def test_every_call_is_compared_and_a_chain_costs_one_pass() -> None:
    check, made = await looked(CALLS)
    assert check.recomputed == 3
    assert check.largest == pytest.approx(0.0, abs=1e-6)
    assert (check.finding.checked, check.finding.violations) == (6, [])
    assert [tokens for _, tokens in made.named("logprobs")] == [[1, 20, 30, 4, 50], [9, 80]]


@pytest.mark.anyio
async def test_a_log_prob_beyond_the_tolerance_is_a_finding_invariant_1() -> None:
    within, _ = await looked(CALLS, shift=0.9 * TOLERANCE)
    beyond, _ = await looked(CALLS, shift=-1.1 * TOLERANCE)
    assert within.finding.violations == []
    assert len(beyond.finding.violations) == 3
    assert within.largest == pytest.approx(0.9 * TOLERANCE, rel=0.01)
    assert beyond.largest == pytest.approx(1.1 * TOLERANCE, rel=0.01)
    one = [exact([1], [20]), Turn([2], [30], logprobs=[-0.8]), exact([3], [40])]
    check, _ = await looked(one)
    assert check.largest == pytest.approx(0.5)  # the largest, wherever it stands
    (violation,) = check.finding.violations
    assert "differ by up to 0.5" in violation


@pytest.mark.anyio
@pytest.mark.parametrize(
    "turn",
    [
        Turn([1], [2], logprobs=None),
        Turn([1], [2], lost=True),
        Turn([1], [2], provenance="upstream"),
        Turn([1], [2], sampler=name(Prefix.SAMPLER, 9)),
    ],
)
async def test_what_was_not_sampled_by_a_known_sampler_is_not_compared(turn: Turn) -> None:
    check, made = await looked([*CALLS, turn])
    assert check.recomputed == 3
    assert len(made.named("logprobs")) == 2


@pytest.mark.anyio
async def test_log_probs_of_another_number_than_tokens_are_a_finding() -> None:
    check, _ = await looked([Turn([1], [2], logprobs=[-0.02, -0.02]), exact([3], [4])])
    (violation,) = check.finding.violations
    assert violation.endswith("recorded 2, derived 1")
    assert check.recomputed == 2


@pytest.mark.anyio
@pytest.mark.parametrize(("samples", "drawn"), [(0, 0), (1, 1), (2, 2), (3, 3), (9, 3), (None, 3)])
async def test_so_many_calls_are_drawn_evenly_spread_over_all_trials(
    samples: int | None, drawn: int
) -> None:
    apart = [exact([n], [n + 10]) for n in range(1, 4)]
    check, _ = await looked(apart, samples)
    assert check.recomputed == drawn
    many = logprobs(4, made := Pretended())
    for first in range(0, 12, 3):
        await many.look(12, record([exact([n], [99]) for n in range(first, first + 3)]).calls)
    assert [tokens[0] for _, tokens in made.named("logprobs")] == [2, 5, 8, 11]


@pytest.mark.anyio
async def test_without_compute_the_check_says_that_it_was_not_made() -> None:
    check = logprobs(None, None)
    calls: tuple[Interaction, ...] = record(CALLS).calls
    await check.look(3, calls)
    assert check.finding.skipped == "compute was not asked"
    assert (check.recomputed, check.largest) == (0, None)


@pytest.mark.anyio
async def test_a_pass_is_read_only_where_the_same_sampler_goes_on_with_an_answer() -> None:
    other = sampler(1).model_copy(update={"id": name(Prefix.SAMPLER, 1), "adapter": None})
    check = logprobs(None, made := Pretended())
    check.snapshot.samplers[other.id] = other
    turns = [
        exact([1], [20]),
        Turn([3], [30], extends=0, logprobs=[-0.3], sampler=other.id),
        Turn([5], [40], extends=0, lost=True),
    ]
    await check.look(3, record(turns).calls)
    assert [tokens for _, tokens in made.named("logprobs")] == [[1, 20], [1, 20, 3, 30]]
    assert check.finding.violations == []


def test_calls_are_counted_as_sealed() -> None:
    trials = [trial_of(record(CALLS)), trial_of(None), trial_of(record(CALLS[:1]))]
    unsettled = trials[0].model_copy(update={"settled": None})
    assert count_interactions([*trials, unsettled]) == 4
