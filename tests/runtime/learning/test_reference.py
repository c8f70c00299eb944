"""Reference log-probs: asked once, stored, and read again as they were."""

import math
from typing import Any, cast

import numpy as np
import pytest

from runtime.compute.protocol import Compute, FloatArray, IntArray, SamplerSpec
from runtime.learning import reference
from runtime.learning.packing import pack
from runtime.learning.reference import Computed, Recorded, decode, encode
from specs.canonical import digest_bytes
from specs.errors import ErrorCode, Internal, InvalidInput
from specs.ids import Prefix, new_id
from specs.run import SamplerRef
from tests.runtime.compute.samples import floats
from tests.runtime.learning.support import Turn, record

pytestmark = pytest.mark.anyio

SEQUENCES = pack(record([Turn([1], [2, 3]), Turn([7], [8])]).calls)
REFERENCE = SamplerRef(
    id=new_id(Prefix.SAMPLER),
    backend="torch",
    base_model="tiny",
    base_digest=digest_bytes(b"base"),
    tokenizer_digest=digest_bytes(b"tokens"),
    renderer="chatml/1",
)


class Objects:
    """A store in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def object(self, digest: str) -> bytes:
        return self.kept[digest]

    async def upload(self, data: bytes) -> str:
        self.kept[digest_bytes(data)] = data
        return digest_bytes(data)


class Model:
    """Only what is asked of a reference: minus each id in hundredths."""

    def __init__(self, last: float = 0.0) -> None:
        self.asked: list[tuple[str, list[int]]] = []
        self.last = last

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        self.asked.append((sampler.base_model, tokens.tolist()))
        values = (-tokens / 100).astype(np.float32)
        values[0], values[-1] = math.nan, values[-1] + self.last
        return values


def computed(model: Model, objects: Objects) -> Computed:
    return Computed(cast(Compute, model), cast(Any, objects), objects.upload, REFERENCE)


async def test_each_trial_is_asked_about_once_and_what_it_said_can_be_read_without_the_model() -> (
    None
):
    model, objects = Model(), Objects()
    live = computed(model, objects)
    first = await live.of("trl_1", SEQUENCES)
    again = await live.of("trl_1", SEQUENCES)
    assert model.asked == [("tiny", [1, 2, 3]), ("tiny", [7, 8])]
    assert [values.tolist() for values in first.logprobs] == [
        pytest.approx([-0.02, -0.03]),
        pytest.approx([-0.08]),
    ]
    stored = await Recorded(objects, {"trl_1": first.digest}).of("trl_1", SEQUENCES)
    for other in (again, stored):
        assert other.digest == first.digest
        for mine, theirs in zip(first.logprobs, other.logprobs, strict=True):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("last", [math.nan, -math.inf])
async def test_a_reference_that_gives_no_number_moves_nothing(last: float) -> None:
    objects = Objects()
    with pytest.raises(Internal, match="no finite log-prob"):
        await computed(Model(last), objects).of("trl_1", SEQUENCES)
    assert objects.kept == {}


async def test_what_is_missing_or_of_another_length_is_named() -> None:
    objects = Objects()
    short = await objects.upload(encode([floats([-1])]))
    for digests, cause in (({}, "no reference"), ({"trl_1": short}, "1 reference log-probs")):
        with pytest.raises(InvalidInput, match=cause) as refused:
            await Recorded(objects, digests).of("trl_1", SEQUENCES)
        assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH


def test_the_stored_form_is_little_endian_float32_one_after_the_other() -> None:
    data = encode([floats([1, 2]), floats([-0.5])])
    assert data == np.array([1, 2, -0.5], "<f4").tobytes()
    assert [part.tolist() for part in decode(data, SEQUENCES, "trl_1")] == [[1, 2], [-0.5]]


@pytest.mark.parametrize(
    ("bound", "kept"),
    [
        (16, ["trl_2", "trl_3"]),  # of two trials, just full
        (15, ["trl_3"]),
        (1, ["trl_3"]),  # the newest is kept whatever its size
    ],
)
async def test_of_what_is_kept_the_oldest_goes_first_and_one_stays(
    bound: int, kept: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "KEPT_BYTES", bound)
    objects = Objects()
    live = computed(Model(), objects)
    one = SEQUENCES[:1]  # two targets, eight bytes
    for trial in ("trl_1", "trl_2", "trl_3"):
        await live.of(trial, one)
    stored, objects.kept = objects.kept, {}
    for trial in ("trl_1", "trl_2", "trl_3"):
        if trial in kept:
            await live.of(trial, one)
        else:
            with pytest.raises(KeyError):
                await live.of(trial, one)
    objects.kept = stored
    assert (await live.of("trl_1", one)).logprobs[0].tolist() == pytest.approx([-0.02, -0.03])


async def test_what_is_asked_for_again_is_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "KEPT_BYTES", 16)
    objects = Objects()
    live = computed(Model(), objects)
    for trial in ("trl_1", "trl_2", "trl_1", "trl_3"):
        await live.of(trial, SEQUENCES[:1])
    objects.kept = {}
    await live.of("trl_1", SEQUENCES[:1])
    with pytest.raises(KeyError):
        await live.of("trl_2", SEQUENCES[:1])


async def test_a_reference_that_says_too_little_moves_nothing() -> None:
    class Short(Model):
        async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
            return (await super().logprobs(sampler, tokens))[:-1]

    with pytest.raises(Internal, match="no finite log-prob"):
        await computed(Short(), Objects()).of("trl_1", SEQUENCES)
