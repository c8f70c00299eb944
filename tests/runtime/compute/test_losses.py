"""Each loss against hand-computed values, finite differences, and its sequences one by one."""

import math
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from runtime.compute import models
from runtime.compute.llama import Llama
from runtime.compute.lora import Layout
from runtime.compute.losses import NO_CONFIG, Loss, LossConfig, clip_range
from runtime.compute.objective import token_loss
from runtime.compute.protocol import Datum
from runtime.compute.trainer import Trainer
from specs.errors import InvalidInput
from specs.model import LoraSpec
from tests.runtime.compute.samples import TINY, floats, ids, prompt

POLICY = (Loss.IMPORTANCE_SAMPLING, Loss.PPO, Loss.CISPO)
LN2 = math.log(2.0)


def value_and_slope(
    loss: Loss,
    logprobs: list[float],
    old: list[float],
    advantages: list[float],
    config: LossConfig = NO_CONFIG,
) -> tuple[float, list[float]]:
    """The loss of one datum, and its derivative by each log-prob."""
    count = len(logprobs)
    datum = Datum(
        ids(*range(count)),
        ids(*range(count)),
        {"logprobs": floats(old), "advantages": floats(advantages)},
    )
    new = torch.tensor(logprobs, requires_grad=True)
    value = token_loss(loss, clip_range(loss, config), new, [datum])
    (slope,) = torch.autograd.grad(value, new)
    return float(value.detach()), cast(list[float], slope.tolist())


# Ratios 2, 1/2, 1 with advantages 1, 1, -3 and then -1, -1, 3.
NEW = [-1.0 + LN2, -1.0 - LN2, -2.0]
OLD = [-1.0, -1.0, -2.0]


def test_importance_sampling_by_hand() -> None:
    value, slope = value_and_slope(Loss.IMPORTANCE_SAMPLING, NEW, OLD, [1.0, 1.0, -3.0])
    assert value == pytest.approx(-(2 + 0.5 - 3))
    assert slope == pytest.approx([-2, -0.5, 3])


def test_ppo_by_hand_cuts_the_gain_on_the_side_of_the_advantages_sign() -> None:
    value, slope = value_and_slope(Loss.PPO, NEW, OLD, [1.0, 1.0, -3.0])
    assert value == pytest.approx(-(1.2 + 0.5 - 3))
    assert slope == pytest.approx([0, -0.5, 3])
    value, slope = value_and_slope(Loss.PPO, NEW, OLD, [-1.0, -1.0, 3.0])
    assert value == pytest.approx(-(-2 - 0.8 + 3))
    assert slope == pytest.approx([2, 0, -3])


def test_ppo_takes_its_bounds_apart_from_each_other() -> None:
    wide = LossConfig(clip_low_threshold=0.4, clip_high_threshold=3.0)
    value, slope = value_and_slope(Loss.PPO, NEW, OLD, [1.0, -1.0, 0.0], wide)
    assert value == pytest.approx(-(2 - 0.5))
    assert slope == pytest.approx([-2, 0.5, 0])
    value, slope = value_and_slope(
        Loss.PPO, NEW, OLD, [1.0, -1.0, 0.0], LossConfig(clip_high_threshold=1.5)
    )
    assert value == pytest.approx(-(1.5 - 0.8))
    assert slope == pytest.approx([0, 0, 0])


def test_cispo_by_hand_clips_the_weight_and_keeps_every_gradient() -> None:
    config = LossConfig(clip_high_threshold=1.5)
    value, slope = value_and_slope(Loss.CISPO, NEW, OLD, [1.0, 1.0, -3.0], config)
    assert value == pytest.approx(-(1.5 * (LN2 - 1) + 0.5 * (-LN2 - 1) + 6))
    assert slope == pytest.approx([-1.5, -0.5, 3])
    value, slope = value_and_slope(Loss.CISPO, [1.0], [-1.0], [1.0])
    assert (value, slope) == (pytest.approx(-4.0), pytest.approx([-4.0]))
    assert math.exp(2.0) > 4.0  # the default high bound was the one that held


def test_cross_entropy_by_hand() -> None:
    datum = Datum(ids(1, 2), ids(2, 3), {"weights": floats([0.5, 2.0])})
    value = token_loss(Loss.CROSS_ENTROPY, None, torch.tensor([-1.0, -3.0]), [datum])
    assert float(value) == pytest.approx(0.5 + 6)


@given(
    st.lists(
        st.tuples(st.floats(-6, 0), st.floats(-6, 0), st.floats(-2, 2)), min_size=1, max_size=6
    ),
    st.floats(0, 1),
    st.floats(1, 5),
)
def test_clipped_losses_equal_their_formula(
    tokens: list[tuple[float, float, float]], low: float, high: float
) -> None:
    new, old, advantages = (np.array(column, np.float32) for column in zip(*tokens, strict=True))
    ratio = np.exp((new - old).astype(np.float64))
    clipped = np.clip(ratio, low, high)
    config = LossConfig(low, high)
    ppo, _ = value_and_slope(Loss.PPO, new.tolist(), old.tolist(), advantages.tolist(), config)
    scale = 1e-5 * float((ratio * np.abs(advantages) * (1 + np.abs(new))).sum() + 1)
    assert ppo == pytest.approx(
        -float(np.minimum(ratio * advantages, clipped * advantages).sum()), abs=scale
    )
    cispo, slope = value_and_slope(
        Loss.CISPO, new.tolist(), old.tolist(), advantages.tolist(), config
    )
    assert cispo == pytest.approx(-float((clipped * new * advantages).sum()), abs=scale)
    assert slope == pytest.approx((-clipped * advantages).tolist(), abs=scale)


@pytest.mark.parametrize("loss", POLICY)
def test_positions_without_advantage_may_hold_anything_invariant_6(loss: Loss) -> None:
    value, slope = value_and_slope(loss, NEW[:2], [OLD[0], math.nan], [0.5, 0.0])
    alone, _ = value_and_slope(loss, NEW[:1], OLD[:1], [0.5])
    assert value == pytest.approx(alone)
    assert slope[1] == 0
    assert all(map(math.isfinite, slope))


def test_a_stale_log_prob_overflows_no_clipped_gradient() -> None:
    value, slope = value_and_slope(Loss.PPO, [-1.0], [-500.0], [1.0])
    assert (value, slope) == (pytest.approx(-1.2), [0.0])
    value, slope = value_and_slope(Loss.CISPO, [-1.0], [-500.0], [1.0])
    assert (value, slope) == (pytest.approx(4.0), [pytest.approx(-4.0)])
    value, _ = value_and_slope(Loss.PPO, [-1.0], [-500.0], [-1.0])
    assert value > 1e30  # unbounded on this side: a trainer refuses it


def test_thresholds_default_to_tinkers_and_are_checked() -> None:
    ppo, cispo = clip_range(Loss.PPO, NO_CONFIG), clip_range(Loss.CISPO, NO_CONFIG)
    assert ppo is not None
    assert cispo is not None
    assert (ppo.low, ppo.high, cispo.low, cispo.high) == (0.8, 1.2, 0.0, 4.0)
    assert clip_range(Loss.IMPORTANCE_SAMPLING, NO_CONFIG) is None
    assert LossConfig(clip_high_threshold=2.0).given() == {"clip_high_threshold": 2.0}
    for loss, config in (
        (Loss.IMPORTANCE_SAMPLING, LossConfig(clip_high_threshold=1.2)),
        (Loss.CROSS_ENTROPY, LossConfig(0.8, 1.2)),
        (Loss.PPO, LossConfig(1.2, 0.8)),
        (Loss.PPO, LossConfig(-0.1, 1.2)),
        (Loss.CISPO, LossConfig(clip_high_threshold=math.inf)),
        (Loss.CISPO, LossConfig(clip_low_threshold=math.nan)),
    ):
        with pytest.raises(InvalidInput):
            clip_range(loss, config)


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(models.model_path(TINY))


def trainer(model: Llama, shift: torch.Tensor | float = 0.0) -> Trainer:
    """A trainer whose B matrices are not zero, so that every gradient is not either."""
    layout = Layout(model.fused(), 4)
    noise = torch.randn(layout.size, generator=torch.Generator().manual_seed(0)) * 0.02
    return Trainer(model, TINY, LoraSpec(rank=4), layout.initial(0) + noise + shift)


def off_policy(model: Llama) -> list[Datum]:
    """Five sequences with a shared prompt, their ratios spread well around 1."""
    random = np.random.default_rng(3)
    data: list[Datum] = []
    for number in range(1, 6):
        whole = np.concatenate((prompt(40), prompt(10, seed=number)))
        advantages = np.zeros(len(whole) - 1, np.float32)
        advantages[-10:] = random.normal(size=10)
        inputs = {"logprobs": np.zeros_like(advantages), "advantages": advantages}
        data.append(Datum(whole[:-1], whole[1:], inputs))
    result = trainer(model).forward(data, Loss.IMPORTANCE_SAMPLING, backward=False)
    for datum, logprobs in zip(data, result.logprobs, strict=True):
        datum.inputs["logprobs"][:] = logprobs + random.normal(0.05, 0.3, len(logprobs))
    return data


@pytest.mark.parametrize("loss", POLICY)
def test_a_pack_with_a_shared_prompt_has_the_gradient_of_its_sequences(
    model: Llama, loss: Loss
) -> None:
    data = off_policy(model)
    together, apart = trainer(model), trainer(model)
    whole = together.forward(data, loss, backward=True).loss_sum
    parts = [apart.forward([datum], loss, backward=True).loss_sum for datum in data]
    assert whole == pytest.approx(sum(parts), rel=1e-4, abs=1e-4)
    left, right = together.gradient(), apart.gradient()
    assert torch.allclose(left, right, rtol=1e-3, atol=1e-4 * float(right.abs().max()))


@pytest.mark.parametrize("loss", [Loss.IMPORTANCE_SAMPLING, Loss.PPO])
def test_the_gradient_is_that_of_the_loss_by_finite_differences(model: Llama, loss: Loss) -> None:
    """Not for cispo, whose gradient is not its value's: its weight is held fixed."""
    data = off_policy(model)
    trained = trainer(model)
    trained.forward(data, loss, backward=True)
    gradient = trained.gradient()
    direction = gradient / gradient.square().sum().sqrt()
    step = 1e-3
    values = [
        trainer(model, sign * step * direction).forward(data, loss, backward=False).loss_sum
        for sign in (1, -1)
    ]
    slope = (values[0] - values[1]) / (2 * step)
    assert slope == pytest.approx(float(gradient @ direction), rel=5e-2)


def test_the_gradient_of_cispo_is_that_of_weighted_log_likelihood(model: Llama) -> None:
    data = off_policy(model)
    clipped, weighted = trainer(model), trainer(model)
    result = clipped.forward(data, Loss.CISPO, backward=True, config=LossConfig(0.9, 1.1))
    fixed = [
        Datum(
            datum.tokens,
            datum.targets,
            {
                "weights": np.clip(np.exp(new - datum.inputs["logprobs"]), 0.9, 1.1).astype(
                    np.float32
                )
                * datum.inputs["advantages"]
            },
        )
        for datum, new in zip(data, result.logprobs, strict=True)
    ]
    weighted.forward(fixed, Loss.CROSS_ENTROPY, backward=True)
    left, right = clipped.gradient(), weighted.gradient()
    assert torch.allclose(left, right, rtol=1e-3, atol=1e-4 * float(right.abs().max()))
