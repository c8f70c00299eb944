"""Against the Tinker cookbook 0.5.8: the same numbers where both mean the same, and the cases
where ours must differ (invariants 4 to 6)."""

import asyncio
import importlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.learning.advantages import centre
from runtime.learning.datums import cross_entropy_datum, importance_datum
from runtime.learning.metrics import Drift
from runtime.learning.packing import pack
from runtime.learning.penalty import Compared, differences, penalties
from runtime.learning.settlement import judge, settle
from specs.assessment import NoReward
from specs.ids import Prefix, new_id
from specs.objective import KlPenalty
from specs.plans import BatchShape, TrainingPlan
from tests.runtime.learning.support import SAMPLER, Recorded, Turn, record, trial_of

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]
SETTINGS = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=60,
)

IDS = st.lists(st.integers(0, 999), min_size=1, max_size=6)


class Cookbook:
    """The oracle's modules; imported late because that takes seconds."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.tinker: Any = importlib.import_module("tinker")
            self.processing: Any = importlib.import_module("tinker_cookbook.rl.data_processing")
            self.types: Any = importlib.import_module("tinker_cookbook.rl.types")
            self.completers: Any = importlib.import_module("tinker_cookbook.completers")
            self.metrics: Any = importlib.import_module("tinker_cookbook.rl.metrics")
            self.supervised: Any = importlib.import_module("tinker_cookbook.supervised.common")

    def trajectory(self, recorded: Recorded, reward: float) -> Any:
        """The same trajectory in the cookbook's types; the reward on its last turn."""
        last = len(recorded.calls) - 1
        transitions = [
            self.types.Transition(
                ob=self.tinker.ModelInput.from_ints(list(call.prompt)),
                ac=self.completers.TokensWithLogprobs(
                    tokens=list(call.output), maybe_logprobs=list(call.logprobs or ())
                ),
                reward=reward if index == last else 0.0,
                episode_done=index == last,
            )
            for index, call in enumerate(recorded.calls)
        ]
        return self.types.Trajectory(
            transitions=transitions, final_ob=self.tinker.ModelInput.from_ints([])
        )

    def group(self, members: Sequence[tuple[Recorded, float]]) -> Any:
        """A group of trajectories."""
        trajectories = [self.trajectory(recorded, reward) for recorded, reward in members]
        zero = [0.0] * len(members)
        return self.types.TrajectoryGroup(trajectories, zero, [{} for _ in members])

    def data(self, groups: list[Any]) -> tuple[list[Any], list[Any]]:
        """The cookbook's advantages and datums."""
        advantages = self.processing.compute_advantages(groups)
        return advantages, self.processing.assemble_training_data(groups, advantages)[0]


@pytest.fixture(scope="module")
def cookbook() -> Cookbook:
    return Cookbook()


@st.composite
def recordings(draw: st.DrawFn) -> Recorded:
    """A conversation of one agent: each turn extends the turn before it, or is a branch."""
    turns: list[Turn] = []
    for index in range(draw(st.integers(1, 6))):
        output = draw(IDS)
        # A branch starts with an id that no extension starts with, so that it is one.
        extends = index - 1 if index and draw(st.booleans()) else None
        suffix = draw(IDS) if extends is not None else [1000 + index, *draw(IDS)]
        logprobs = [-draw(st.floats(0, 9, width=32)) for _ in output]
        turns.append(Turn(suffix, output, extends=extends, logprobs=logprobs))
    return record(turns)


GROUPS = st.lists(
    st.lists(st.tuples(recordings(), st.sampled_from([0.0, 0.25, 0.5, 1.0])), min_size=1),
    min_size=1,
    max_size=3,
)


def plan(slots: int = 1) -> TrainingPlan:
    return TrainingPlan(num_batches=1, batch=BatchShape(tasks=1, trials_per_task=slots))


@SETTINGS
@given(groups=GROUPS)
def test_packing_advantages_and_masks_equal_the_cookbooks(
    cookbook: Cookbook, groups: list[list[tuple[Recorded, float]]]
) -> None:
    advantages, theirs = cookbook.data([cookbook.group(group) for group in groups])
    ours: list[tuple[Any, Any]] = []
    for group, expected in zip(groups, advantages, strict=True):
        centred = centre([reward for _, reward in group]).advantages
        np.testing.assert_allclose(centred, expected.numpy(), atol=1e-6)
        for (recorded, _), advantage in zip(group, centred, strict=True):
            packed = pack(recorded.calls)
            ours += [(item, importance_datum(item, advantage)) for item in packed]
    assert len(ours) == len(theirs)
    for (packed, datum), their in zip(ours, theirs, strict=True):
        inputs = {name: value.to_numpy() for name, value in their.loss_fn_inputs.items()}
        assert datum.tokens.tolist() == their.model_input.to_ints()
        assert datum.targets.tolist() == inputs["target_tokens"].tolist()
        assert packed.generated.tolist() == (inputs["mask"] > 0).tolist()
        np.testing.assert_array_equal(datum.inputs["logprobs"], inputs["logprobs"])
        np.testing.assert_allclose(datum.inputs["advantages"], inputs["advantages"], atol=1e-6)


@SETTINGS
@given(group=GROUPS.map(lambda groups: groups[0]), seed=st.integers(0, 99))
def test_kl_and_entropy_equal_the_cookbooks(
    cookbook: Cookbook, group: list[tuple[Recorded, float]], seed: int
) -> None:
    import torch

    _, theirs = cookbook.data([cookbook.group(group)])
    packed = [item for recorded, _ in group for item in pack(recorded.calls)]
    random = np.random.default_rng(seed)
    trained = [-random.random(len(item.tokens), np.float32) for item in packed]
    expected = cookbook.metrics.compute_kl_sample_train(theirs, [torch.tensor(t) for t in trained])
    drift = Drift()
    for item, values in zip(packed, trained, strict=True):
        assert item.logprobs is not None
        drift = drift.add(item.logprobs, values, item.generated)
    measures = drift.measures()
    for name in ("kl_sample_train_v1", "kl_sample_train_v2", "entropy"):
        assert measures[name] == pytest.approx(expected[f"optim/{name}"], rel=1e-4, abs=1e-5)


@SETTINGS
@given(
    group=GROUPS.map(lambda groups: groups[0]),
    seed=st.integers(0, 99),
    coefficient=st.floats(0.01, 2),
    discount=st.sampled_from([0.0, 0.9, 1.0]),
)
def test_the_kl_penalty_of_a_batch_of_one_group_equals_the_cookbooks(
    cookbook: Cookbook,
    group: list[tuple[Recorded, float]],
    seed: int,
    coefficient: float,
    discount: float,
) -> None:
    """Theirs also weighs observations where a discount passes over them; ours never (6)."""
    random = np.random.default_rng(seed)
    (advantages,), theirs = cookbook.data([cookbook.group(group)])
    packed = [item for recorded, _ in group for item in pack(recorded.calls)]
    reference = [-5 * random.random(len(item.tokens), np.float32) for item in packed]
    asked = {
        (*item.tokens.tolist(), int(item.targets[-1])): values
        for item, values in zip(packed, reference, strict=True)
    }
    known = [asked[(*item.tokens.tolist(), int(item.targets[-1]))] for item in packed]

    class Client:
        async def compute_logprobs_async(self, sequence: Any) -> list[float | None]:
            return [None, *asked[tuple(sequence.to_ints())].tolist()]

    measured = asyncio.run(
        cookbook.metrics.incorporate_kl_penalty(theirs, Client(), coefficient, discount)
    )
    compared = [Compared(item, values) for item, values in zip(packed, known, strict=True)]
    terms = penalties(compared, KlPenalty(coefficient=coefficient, discount=discount))
    weights = [
        advantage
        for (recorded, _), advantage in zip(group, advantages.tolist(), strict=True)
        for _ in pack(recorded.calls)
    ]
    gaps, tokens = 0.0, 0
    for item, term, weight, their in zip(compared, terms, weights, theirs, strict=True):
        ours = importance_datum(item.packed, weight, term.astype(np.float32))
        mask = item.packed.generated
        expected = their.loss_fn_inputs["advantages"].to_numpy()
        np.testing.assert_allclose(
            ours.inputs["advantages"][mask], expected[mask], rtol=1e-4, atol=1e-4
        )
        assert not ours.inputs["advantages"][~mask].any()
        gaps += float(differences(item).sum())
        tokens += item.packed.trained_tokens
    assert gaps / tokens == pytest.approx(measured["kl_policy_base"], rel=1e-4, abs=1e-4)


@SETTINGS
@given(recorded=recordings())
def test_cross_entropy_datums_equal_the_cookbooks(cookbook: Cookbook, recorded: Recorded) -> None:
    import torch

    for item in pack(recorded.calls):
        whole = [*item.tokens.tolist(), int(item.targets[-1])]
        weights = torch.tensor([0.0, *item.generated.astype(np.float32).tolist()])
        their = cookbook.supervised.datum_from_model_input_weights(
            cookbook.tinker.ModelInput.from_ints(whole), weights
        )
        ours = cross_entropy_datum(item, 1.0)
        assert ours.tokens.tolist() == their.model_input.to_ints()
        assert ours.targets.tolist() == their.loss_fn_inputs["target_tokens"].tolist()
        assert ours.inputs["weights"].tolist() == their.loss_fn_inputs["weights"].tolist()


def test_differs_a_missing_reward_is_not_a_zero_that_shifts_its_siblings_invariants_4_and_5(
    cookbook: Cookbook,
) -> None:
    records = [record([Turn([1], [2])]) for _ in range(3)]
    group = new_id(Prefix.GROUP)
    rewards = [1.0, 0.0, None]
    trials = [
        trial_of(r, reward=reward, reason=None if reward is not None else NoReward.REWARD_MALFORMED,
                 group=group)
        for r, reward in zip(records, rewards, strict=True)
    ]  # fmt: skip
    ours = _settled(records, trials)
    assert [v.advantage for v in ours.verdicts] == [0.5, -0.5, None]
    # The cookbook has no missing reward; written as 0 it would move both siblings.
    (theirs,), _ = cookbook.data(
        [cookbook.group([(r, reward or 0.0) for r, reward in zip(records, rewards, strict=True)])]
    )
    assert theirs.tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3])


def test_differs_an_excluded_trial_shifts_no_sibling_invariant_5(cookbook: Cookbook) -> None:
    records = [
        record([Turn([1], [2])]),
        record([Turn([1], [2])]),
        record([Turn([1], [2], lost=True)]),
    ]
    group = new_id(Prefix.GROUP)
    trials = [
        trial_of(r, reward=reward, group=group)
        for r, reward in zip(records, [1.0, 0.0, 1.0], strict=True)
    ]
    ours = _settled(records, trials)
    assert [v.advantage for v in ours.verdicts] == [0.5, -0.5, None]
    assert ours.verdicts[2].reason == "evidence_incomplete"
    assert {row.trial.id for row in ours.rows} == {trials[0].id, trials[1].id}


def test_differs_the_mask_survives_a_zero_advantage_invariant_6() -> None:
    recorded = record([Turn([1, 2], [3, 4])])
    (packed,) = pack(recorded.calls)
    datum = importance_datum(packed, 0.0)
    assert not datum.inputs["advantages"].any()
    assert packed.generated.tolist() == [False, True, True]


def test_differs_interleaved_chains_keep_one_datum_each(cookbook: Cookbook) -> None:
    recorded = record(
        [
            Turn([1], [2]),
            Turn([7], [8]),
            Turn([3], [4], extends=0),
            Turn([9], [10], extends=1),
        ]
    )
    _, theirs = cookbook.data([cookbook.group([(recorded, 1.0)])])
    assert len(theirs) == 4  # four prefixes paid for again, turn by turn
    assert len(pack(recorded.calls)) == 2


def _settled(records: Sequence[Recorded], trials: Sequence[Any]) -> Any:
    from runtime.learning.evidence import Evidence

    judged = [
        judge(trial, Evidence(item.calls), sampler=SAMPLER, plan=plan(len(trials)))
        for item, trial in zip(records, trials, strict=True)
    ]
    return settle(judged, plan(len(trials)))
