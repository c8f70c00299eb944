"""What is measured before a step, by hand, and what stops it."""

import math

import numpy as np
import pytest

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import FloatArray
from runtime.learning.datums import importance_datum
from runtime.learning.monitor import Monitor, require_sound
from runtime.learning.packing import pack
from runtime.learning.work import Piece, Row
from specs.errors import Conflict, ErrorCode, Internal
from specs.objective import NO_CHECKS, Checks
from tests.runtime.compute.samples import floats
from tests.runtime.learning.support import Turn, record, trial_of

LN2 = math.log(2)


def piece(logprobs: list[float], weight: float, gap: list[float] | None = None) -> Piece:
    """A prompt of two tokens, so that the first target is an observation."""
    recorded = record([Turn([1, 2], list(range(3, 3 + len(logprobs))), logprobs=logprobs)])
    (packed,) = pack(recorded.calls)
    row = Row(trial_of(recorded), None, weight)
    return Piece(
        row, packed, importance_datum(packed, weight), None if gap is None else floats([9, *gap])
    )


def trained(*logprobs: float) -> FloatArray:
    return floats([-99, *logprobs])


def test_importance_ratios_are_those_of_generated_tokens() -> None:
    monitor = Monitor(Loss.IMPORTANCE_SAMPLING, NO_CONFIG)
    monitor.add(piece([-1, -1], 1), trained(-1, -1 + LN2))
    monitor.add(piece([-1], 1), trained(-1 - LN2))
    found = monitor.measures()
    assert found["importance_ratio_mean"] == pytest.approx((1 + 2 + 0.5) / 3)
    assert found["importance_ratio_min"] == pytest.approx(0.5)
    assert found["importance_ratio_max"] == pytest.approx(2)
    assert found["importance_ratio_up_to_0.8"] == pytest.approx(1 / 3)
    assert found["importance_ratio_up_to_1.2"] == pytest.approx(2 / 3)
    assert found["entropy"] == pytest.approx(1)
    assert "clip_fraction" not in found
    assert "kl_reference" not in found


@pytest.mark.parametrize(
    ("loss", "weight", "config", "expected"),
    [
        (Loss.PPO, 1.0, NO_CONFIG, 1 / 3),  # the ratio 2 gains nothing more
        (Loss.PPO, -1.0, NO_CONFIG, 1 / 3),  # the ratio 0.5
        (Loss.PPO, 0.0, NO_CONFIG, 0),
        (Loss.PPO, 1.0, LossConfig(clip_high_threshold=3.0), 0),
        (Loss.CISPO, 1.0, NO_CONFIG, 0),
        (Loss.CISPO, 1.0, LossConfig(0.9, 1.5), 2 / 3),
    ],
)
def test_the_clip_fraction_counts_tokens_that_the_loss_cuts_off(
    loss: Loss, weight: float, config: LossConfig, expected: float
) -> None:
    monitor = Monitor(loss, config)
    monitor.add(piece([-1, -1, -1], weight), trained(-1, -1 + LN2, -1 - LN2))
    assert monitor.measures()["clip_fraction"] == pytest.approx(expected)


def test_kl_to_the_reference_is_a_mean_over_generated_tokens() -> None:
    monitor = Monitor(Loss.IMPORTANCE_SAMPLING, NO_CONFIG)
    monitor.add(piece([-1, -1], 1, gap=[0.5, 0.1]), trained(-1, -1))
    monitor.add(piece([-1], 1, gap=[-0.3]), trained(-1))
    assert monitor.measures()["kl_reference"] == pytest.approx(0.1)


def test_without_log_probs_there_are_no_ratios() -> None:
    assert Monitor(Loss.CROSS_ENTROPY, NO_CONFIG).measures() == {}


def test_a_difference_beyond_the_plan_names_the_measure_the_limit_and_the_key() -> None:
    measures = {"max_logprob_difference": 0.3, "kl_sample_train_v2": 0.02}
    require_sound(measures, NO_CHECKS, run="run_1", batch=3)
    require_sound(measures, Checks(max_logprob_difference=0.3), run="run_1", batch=3)
    with pytest.raises(Conflict, match=r"batch 3 .* is 0\.3.*allows 0\.1") as e:
        require_sound(measures, Checks(max_logprob_difference=0.1), run="run_1", batch=3)
    assert e.value.problem.code == ErrorCode.LOGPROB_MISMATCH
    assert e.value.problem.object is not None
    assert e.value.problem.object.pointer == "/plan/checks/max_logprob_difference"
    with pytest.raises(Conflict, match="kl_sample_train_v2"):
        require_sound(measures, Checks(max_kl_sample_train=0.01), run="run_1", batch=3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e16])
def test_an_update_that_no_record_can_hold_is_never_applied(value: float) -> None:
    with pytest.raises(Internal, match="no finite loss"):
        require_sound({"loss": value}, NO_CHECKS, run="run_1", batch=0)


def test_a_ratio_too_large_for_a_number_is_still_counted() -> None:
    monitor = Monitor(Loss.PPO, NO_CONFIG)
    monitor.add(piece([-1000.0], 1), trained(0))
    found = monitor.measures()
    assert all(map(np.isfinite, found.values()))
    assert found["clip_fraction"] == 1
    assert found["importance_ratio_up_to_2"] == 0


@pytest.mark.parametrize(
    ("loss", "weight", "clipped"),
    [
        (Loss.PPO, 1.0, 0),
        (Loss.PPO, -1.0, 0),
        (Loss.CISPO, 1.0, 0),
    ],
)
def test_a_ratio_at_its_bound_is_not_cut_off(loss: Loss, weight: float, clipped: int) -> None:
    monitor = Monitor(loss, LossConfig(0.5, 2.0))
    logprobs = [-1.0, -1.0]
    half, twice = (float(np.float32(np.log(bound))) for bound in (0.5001, 1.9999))
    monitor.add(piece(logprobs, weight), trained(-1 + half, -1 + twice))
    assert monitor.measures()["clip_fraction"] == clipped
    beyond = Monitor(loss, LossConfig(0.5, 2.0))
    beyond.add(piece(logprobs, weight), trained(-1 + math.log(0.499), -1 + math.log(2.001)))
    assert beyond.measures()["clip_fraction"] == (1.0 if loss is Loss.CISPO else 0.5)


def test_every_share_of_the_ratio_is_named_by_its_bound() -> None:
    monitor = Monitor(Loss.IMPORTANCE_SAMPLING, NO_CONFIG)
    ratios = [0.4, 0.7, 0.85, 0.95, 1.0, 1.05, 1.15, 1.5, 3.0]
    monitor.add(piece([-1.0] * 9, 1), trained(*(-1 + math.log(ratio) for ratio in ratios)))
    found = monitor.measures()
    bounds = ("0.5", "0.8", "0.9", "0.99", "1.01", "1.1", "1.2", "2")
    shares = [found[f"importance_ratio_up_to_{bound}"] for bound in bounds]
    assert shares == pytest.approx([count / 9 for count in range(1, 9)])
    assert found["importance_ratio_min"] == pytest.approx(0.4)


@pytest.mark.parametrize("name", ["max_logprob_difference", "kl_sample_train_v2"])
def test_a_measure_at_its_limit_or_without_one_is_sound(name: str) -> None:
    checks = Checks(max_logprob_difference=0.25, max_kl_sample_train=0.25)
    require_sound({name: 0.25}, checks, run="run_1", batch=0)
    require_sound({}, checks, run="run_1", batch=0)
    with pytest.raises(Conflict, match="batch 2 "):
        require_sound({name: 0.26}, checks, run="run_1", batch=2)
