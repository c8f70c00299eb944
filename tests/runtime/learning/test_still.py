"""A step with learning rate 0 is compared with what was before it."""

import numpy as np
import pytest

from runtime.compute.losses import Loss, LossConfig
from runtime.learning.still import logprob_change, require_still, weights
from specs.errors import Conflict, ErrorCode
from tests.runtime.learning.pretended import Pretended, datum

CONFIG = LossConfig(clip_high_threshold=1.5)


@pytest.mark.anyio
async def test_the_largest_change_of_any_target_counts_whichever_its_sign() -> None:
    made = Pretended()
    data = [datum(2), datum(3), datum(0)]
    known = [(-one.targets / 100).astype(np.float32) for one in data]
    assert await logprob_change(made.compute, "t", Loss.PPO, CONFIG, (data, known)) == 0.0
    assert made.named("forward") == [("t", 3, Loss.PPO, False, CONFIG)]
    known[1][2] += 0.5
    known[0][0] -= 0.25
    found = await logprob_change(made.compute, "t", Loss.PPO, CONFIG, (data, known))
    assert found == pytest.approx(0.5)
    assert await logprob_change(made.compute, "t", Loss.PPO, CONFIG, ([], [])) == 0.0


@pytest.mark.anyio
async def test_weights_are_known_by_the_digest_of_the_adapter() -> None:
    made = Pretended()
    assert await weights(made.compute, "t") == made.saved[0]


@pytest.mark.parametrize(
    ("after", "change", "limit", "says"),
    [
        ("w", 9.0, None, None),
        ("w", 0.1, 0.1, None),
        ("w", 0.11, 0.1, "log-probs by up to 0.11"),
        ("v", 0.0, None, "weights w to v"),
        ("v", 0.2, 0.1, "weights w to v"),
    ],
)
def test_moved_weights_or_log_probs_beyond_the_limit_stop_the_run(
    after: str, change: float, limit: float | None, says: str | None
) -> None:
    if says is None:
        require_still("run_1", "w", after, change, limit)
        return
    with pytest.raises(Conflict, match=says) as refused:
        require_still("run_1", "w", after, change, limit)
    assert refused.value.problem.code == ErrorCode.WEIGHTS_CHANGED
