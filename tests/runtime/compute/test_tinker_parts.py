"""The parts of the training service's backend that need no service."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pytest
from tinker import AuthenticationError, BadRequestError, NotFoundError, RateLimitError
from tinker import RequestFailedError as Failed
from tinker.types import RequestErrorCategory, SampledSequence

from runtime.compute.protocol import (
    AdamParams,
    Datum,
    FloatArray,
    Loss,
    Sampled,
    SamplingParams,
    StopReason,
)
from runtime.compute.tinker_data import (
    check_adam,
    check_data,
    from_sequence,
    to_datum,
    to_loss,
    to_sampling,
)
from runtime.compute.tinker_errors import explain, fails_alone, not_there
from runtime.compute.tinker_models import TinkerModels
from runtime.compute.tinker_refs import Intent, Kind, Ledger, Weights, read_weights
from runtime.compute.waits import SLOW_SEC, Waits
from specs.errors import ErrorCode, Internal, InvalidInput, NotFound, PracticumError
from specs.model import LoraSpec
from specs.tinker import TinkerModel, TinkerSettings
from tests.runtime.compute.samples import floats, ids, target_datum

REQUEST = httpx.Request("POST", "http://service/api/v1/optim_step")
QWEN = TinkerModel(name="qwen3-8b", model="Qwen/Qwen3-8B", context_tokens=32768)


def weights(**more: object) -> Weights:
    fields = {
        "kind": "state",
        "base_model": "tinker/tiny",
        "lora": LoraSpec(),
        "step": 3,
        "path": "tinker://run/weights/upd_1",
        **more,
    }
    return Weights.model_validate(fields)


def test_a_model_has_its_familys_tokenizer_or_a_local_models() -> None:
    local = TinkerModel(name="t", model="x/y", tokenizer="tiny", context_tokens=64)
    models = TinkerModels(TinkerSettings(models=(QWEN, local)), {"TINKER_API_KEY": "tml-1"})
    qwen, tiny = models.models()
    assert (qwen.family, qwen.backend, qwen.present, qwen.trainable) == (
        "qwen3",
        "tinker",
        True,
        True,
    )
    assert (tiny.family, tiny.tokenizer, tiny.stop_tokens) == ("chatml", "file", (2,))
    assert qwen.digest != tiny.digest
    served = QWEN.model_copy(update={"trains": False})
    only = TinkerModels(TinkerSettings(models=(served,)), {})
    assert only.model("tinker/qwen3-8b").why_not_trained is not None
    with pytest.raises(InvalidInput):
        only.require_trainable("tinker/qwen3-8b")


def test_settings_that_make_no_sense_are_refused() -> None:
    for bad in ({"models": [QWEN, QWEN]}, {"keep_sec": 60}, {"key_env": "PATH-"}, {"stuck_sec": 0}):
        with pytest.raises(ValueError):
            TinkerSettings.model_validate(bad)


def test_the_document_of_weights_is_for_one_kind_and_model_and_expires() -> None:
    data = weights().encode()
    assert read_weights(data, "state", "tinker/tiny") == weights()
    cases: list[tuple[bytes, Kind, str]] = [
        (data, "adapter", "tinker/tiny"),
        (data, "state", "tinker/other"),
        (b"safetensors", "state", "tinker/tiny"),
    ]
    for bad, kind, model in cases:
        with pytest.raises(InvalidInput) as caught:
            read_weights(bad, kind, model)
        assert caught.value.problem.code == ErrorCode.RESUME_INCOMPATIBLE
    past = (datetime.now(UTC) - timedelta(seconds=1)).isoformat()
    with pytest.raises(NotFound) as old:
        read_weights(weights(expires_at=past).encode(), "state", "tinker/tiny")
    assert old.value.problem.code == ErrorCode.WEIGHTS_EXPIRED
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    read_weights(weights(expires_at=later).encode(), "state", "tinker/tiny")


def test_an_intent_outlives_the_process_and_can_be_void(tmp_path: Path) -> None:
    intent = Intent(name="upd_1", trainer="t", run="run", weights=weights())
    Ledger(tmp_path).write(intent)
    assert Ledger(tmp_path).find("upd_1") == intent
    Ledger(tmp_path).write(intent.model_copy(update={"void": True}))
    found = Ledger(tmp_path).find("upd_1")
    assert found is not None and found.void
    assert Ledger(tmp_path).find("../upd_1") is None
    Ledger(tmp_path).drop("upd_1")
    assert Ledger(tmp_path).find("upd_1") is None
    assert not list(tmp_path.iterdir())


def test_log_probs_that_nothing_reads_are_never_sent_as_nan() -> None:
    """Invariant 6: observations have no log-probability and must not matter."""
    inputs = {"logprobs": floats([float("nan"), -1.5]), "advantages": floats([0, 2])}
    datum = Datum(ids(1, 2), ids(2, 3), inputs)
    check_data([datum], Loss.PPO, 10)
    sent = to_datum(datum, Loss.PPO)
    assert sent.loss_fn_inputs["logprobs"].tolist() == [0.0, -1.5]
    assert sent.loss_fn_inputs["target_tokens"].tolist() == [2, 3]
    assert sent.model_input.to_ints() == [1, 2]
    read = Datum(ids(1), ids(2), {"logprobs": floats([float("nan")]), "advantages": floats([1.0])})
    with pytest.raises(InvalidInput, match="finite"):
        check_data([read], Loss.PPO, 10)


def test_calls_that_make_no_sense_are_refused_here() -> None:
    good = target_datum(ids(1, 2, 3))
    for bad in (
        [],
        [good, Datum(ids(), ids(), {})],
        [Datum(ids(1), ids(1, 2), {})],
        [Datum(ids(-1), ids(1), {})],
        [target_datum(np.arange(40, dtype=np.int32))],
        [target_datum(ids(1, 2), [float("inf")])],
    ):
        with pytest.raises(InvalidInput):
            check_data(bad, Loss.CROSS_ENTROPY, 20)
    for adam in (AdamParams(-1), AdamParams(float("nan")), AdamParams(1, beta2=1)):
        with pytest.raises(InvalidInput):
            check_adam(adam)


def test_every_loss_has_a_name_there() -> None:
    for loss in Loss:
        assert to_loss(loss) == loss.value


def test_a_sequence_must_have_log_probs_and_end_as_it_says() -> None:
    params = SamplingParams(8, (2,))
    assert to_sampling(params, None, 5).max_tokens == 5
    tokens, logprobs = np.array([7, 2], np.int32), np.array([-1, -2], np.float32)

    def sequence(
        reason: StopReason, *, cut: int = 2, scored: FloatArray | None = logprobs
    ) -> SampledSequence:
        return SampledSequence(
            stop_reason=reason, sequence_id="s", tokens_np=tokens[:cut], logprobs_np=scored
        )

    sampled = from_sequence(sequence("stop"), params)
    assert isinstance(sampled, Sampled) and sampled.tokens.tolist() == [7, 2]
    for broken in (
        sequence("stop", cut=1, scored=logprobs[:1]),
        sequence("stop", scored=None),
        sequence("length", scored=logprobs[:1]),
    ):
        with pytest.raises(Internal):
            from_sequence(broken, params)


def _status(kind: type, status: int, text: str = "no") -> Exception:
    return kind(text, response=httpx.Response(status, request=REQUEST), body=None)


def _explained(error: Exception) -> PracticumError:
    return explain(error, "step", secret="tml-secret")


def test_every_failure_says_what_can_be_done() -> None:
    cases = [
        (_status(AuthenticationError, 401), ErrorCode.SERVICE_REFUSED),
        (_status(RateLimitError, 429), ErrorCode.OVERLOADED),
        (_status(NotFoundError, 404), ErrorCode.NOT_FOUND),
        (_status(BadRequestError, 400, "SDK version 0.38.0 is too old"), ErrorCode.SERVICE_VERSION),
        (_status(BadRequestError, 400, "bad rank"), ErrorCode.SERVICE_REFUSED),
        (RuntimeError("holder is closed"), ErrorCode.COMPUTE_UNAVAILABLE),
        (KeyError("loss:sum"), ErrorCode.INTERNAL),
    ]
    for error, code in cases:
        assert _explained(error).problem.code == code
    wrapped = ValueError("Error retrieving result")
    wrapped.__cause__ = _status(NotFoundError, 410)
    assert not_there(wrapped)
    assert "tml-secret" not in str(_explained(_status(BadRequestError, 400, "key tml-secret")))


def test_only_the_callers_fault_fails_alone() -> None:
    text = "Request failed: bad ids for self.request_id='x' and expected type X"
    user = Failed(text, request_id="x", category=RequestErrorCategory.User)
    server = Failed(text, request_id="x", category=RequestErrorCategory.Server)
    assert fails_alone(user) and not fails_alone(server)
    assert isinstance(_explained(user), InvalidInput)
    assert str(_explained(user)).endswith("step: bad ids")
    assert _explained(server).problem.code == ErrorCode.COMPUTE_UNAVAILABLE


def test_what_waits_is_told_by_model_operation_and_state() -> None:
    waits = Waits()
    with waits.doing("forward", "m", "t") as one, waits.doing("sample", "m") as two:
        assert waits.current() == ()
        one.report("rate_limited", "too many")
        two.began -= SLOW_SEC
        told = [(w.operation, w.trainer, w.state, w.reason) for w in waits.current()]
        assert told == [
            ("forward", "t", "rate_limited", "too many"),
            ("sample", None, "slow", None),
        ]
        two.touched -= 100
        assert two.unexplained >= 100 > one.unexplained
        two.report("no_capacity")
        assert two.unexplained < 100
    assert waits.current() == ()
