"""Requests and responses of the HTTP carrier: how protocol values become wire messages.

Every method is `POST /v1/<method>` with one message each way. A JSON value stands for itself;
arrays and byte strings stand in the message's arrays and are named by index.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from runtime.compute.protocol import (
    AdamParams,
    Chunk,
    Datum,
    ForwardResult,
    Health,
    Provenance,
    SampleContext,
    Sampled,
    SamplerSpec,
    SamplingParams,
    SavedBytes,
    StopReason,
    TrainerInfo,
    TrainerInit,
)
from runtime.compute.wire import Message, Writer
from specs.base import Contract
from specs.errors import InvalidInput, PracticumError, Problem
from specs.model import ModelInfo


class NameRequest(Contract):
    """A call about one named thing: model, trainer, state or adapter digest."""

    name: str


class DataRequest(NameRequest):
    """The same, with bytes."""

    data: int


class SampleRequest(Contract):
    """`sample`."""

    sampler: SamplerSpec
    prompt: int
    params: SamplingParams
    num_samples: int
    context: SampleContext


class StreamRequest(Contract):
    """`stream`: `sample` of one sequence, answered in parts."""

    sampler: SamplerSpec
    prompt: int
    params: SamplingParams
    context: SampleContext


class StreamPart(Contract):
    """One part of the answer to `stream`: a chunk, or the error that ends it."""

    tokens: int | None = None
    logprobs: int | None = None
    provenance: Provenance = "sampled"
    stop_reason: StopReason | None = None
    problem: Problem | None = None


class LogprobsRequest(Contract):
    """`logprobs`."""

    sampler: SamplerSpec
    tokens: int


class CreateTrainerRequest(NameRequest):
    """`create_trainer`."""

    init: TrainerInit


class WireDatum(Contract):
    """A datum whose arrays are indices."""

    tokens: int
    targets: int
    inputs: dict[str, int]


class ForwardRequest(NameRequest):
    """`forward`."""

    data: list[WireDatum]
    loss: Loss
    backward: bool
    config: LossConfig = NO_CONFIG


class OptimRequest(NameRequest):
    """`optim_step`."""

    params: AdamParams


class SaveStateRequest(NameRequest):
    """`save_state`: trainer `name`, saved as `state`."""

    state: str


class _WireSampled(Contract):
    tokens: int
    logprobs: int | None
    stop_reason: StopReason
    provenance: Provenance


class SampleResponse(Contract):
    """Result of `sample`."""

    samples: list[_WireSampled]


class ArraysResponse(Contract):
    """Result of `logprobs` (one array) and, with a loss, of `forward`."""

    arrays: list[int]
    loss_sum: float | None = None


class DataResponse(Contract):
    """Result of methods that return bytes."""

    data: int


class Empty(Contract):
    """No fields."""


class BoolResponse(Contract):
    """Result of `has_adapter`."""

    value: bool


class SavedResponse(Contract):
    """Result of methods that save, and of `find_state` (which may find nothing)."""

    saved: SavedBytes | None


class TrainerResponse(Contract):
    """Result of `create_trainer`, and of `trainer` (which may find nothing)."""

    trainer: TrainerInfo | None


class HealthResponse(Contract):
    """Result of `health`."""

    health: Health


class ModelsResponse(Contract):
    """Result of `models`, and with one member of `model`."""

    models: list[ModelInfo]


class MetricsResponse(Contract):
    """Result of `optim_step`."""

    metrics: dict[str, float]


def fields(value: Any) -> JsonValue:
    """A dataclass or contract as JSON."""
    adapter: TypeAdapter[Any] = TypeAdapter(cast(Any, type(value)))
    return cast(JsonValue, adapter.dump_python(value, mode="json"))


def write_data(writer: Writer, data: Sequence[Datum]) -> list[JsonValue]:
    """Datums as fields, their arrays in `writer`."""
    return [
        {
            "tokens": writer.add(datum.tokens),
            "targets": writer.add(datum.targets),
            "inputs": {name: writer.add(values) for name, values in datum.inputs.items()},
        }
        for datum in data
    ]


def read_data(message: Message, data: Sequence[WireDatum]) -> list[Datum]:
    """Datums of a message."""
    return [
        Datum(
            message.int32(datum.tokens),
            message.int32(datum.targets),
            {name: message.float32(index) for name, index in datum.inputs.items()},
        )
        for datum in data
    ]


def write_sampled(samples: Sequence[Sampled]) -> Message:
    """The result of `sample`."""
    writer = Writer()
    written: list[JsonValue] = [
        {
            "tokens": writer.add(sample.tokens),
            "logprobs": None if sample.logprobs is None else writer.add(sample.logprobs),
            "stop_reason": sample.stop_reason,
            "provenance": sample.provenance,
        }
        for sample in samples
    ]
    return writer.message(samples=written)


def read_sampled(message: Message) -> list[Sampled]:
    """The result of `sample`."""
    return [
        Sampled(
            message.int32(sample.tokens),
            None if sample.logprobs is None else message.float32(sample.logprobs),
            sample.stop_reason,
            sample.provenance,
        )
        for sample in message.read(SampleResponse, what="sample result").samples
    ]


def write_chunk(chunk: Chunk) -> Message:
    """A part of the answer to `stream`."""
    writer = Writer()
    return writer.message(
        tokens=writer.add(chunk.tokens),
        logprobs=None if chunk.logprobs is None else writer.add(chunk.logprobs),
        provenance=chunk.provenance,
        stop_reason=chunk.stop_reason,
    )


def read_chunk(message: Message) -> Chunk:
    """A part of the answer to `stream`.

    Raises:
        PracticumError: the part is the error that ended the stream.
    """
    part = message.read(StreamPart, what="stream part")
    if part.problem is not None:
        raise PracticumError.from_problem(part.problem)
    if part.tokens is None:
        raise InvalidInput("A part of a sampled stream has neither tokens nor an error.")
    return Chunk(
        message.int32(part.tokens),
        None if part.logprobs is None else message.float32(part.logprobs),
        part.provenance,
        part.stop_reason,
    )


def write_forward(result: ForwardResult) -> Message:
    """The result of `forward`."""
    writer = Writer()
    arrays: list[JsonValue] = [writer.add(array) for array in result.logprobs]
    return writer.message(arrays=arrays, loss_sum=result.loss_sum)


def read_forward(message: Message) -> ForwardResult:
    """The result of `forward`."""
    response = message.read(ArraysResponse, what="forward result")
    loss = response.loss_sum
    assert loss is not None, "a forward result has a loss"
    return ForwardResult([message.float32(index) for index in response.arrays], loss)


def write_saved(saved: SavedBytes | None) -> Message:
    """The result of a method that saves."""
    return Message({"saved": None if saved is None else fields(saved)})


def write_trainer(trainer: TrainerInfo | None) -> Message:
    """The result of `create_trainer` and `trainer`."""
    return Message({"trainer": None if trainer is None else fields(trainer)})


def write_models(models: Sequence[ModelInfo]) -> Message:
    """The result of `models` and `model`."""
    return Message({"models": [fields(model) for model in models]})


def write_metrics(metrics: Mapping[str, float]) -> Message:
    """The result of `optim_step`."""
    return Message({"metrics": dict[str, JsonValue](metrics)})


def write_bytes(data: bytes) -> Message:
    """A result that is bytes."""
    writer = Writer()
    return writer.message(data=writer.add(data))
