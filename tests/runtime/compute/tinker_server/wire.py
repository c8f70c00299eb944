"""The service's side of the binary messages: forward requests, and results of both kinds."""

import numpy as np
from tinker.proto import tinker_public_pb2 as pb

from runtime.compute.protocol import Datum, FloatArray, ForwardResult, Sampled

MEDIA_TYPE = "application/x-protobuf"


def read_forward(body: bytes) -> pb.ForwardBackwardRequest:
    """A forward or forward-backward request."""
    message = pb.ForwardBackwardRequest()
    message.ParseFromString(body)
    return message


def read_data(message: pb.ForwardBackwardRequest) -> list[Datum]:
    """Its datums."""
    return [_datum(one) for one in message.data]


def _datum(message: pb.Datum) -> Datum:
    chunks = [np.frombuffer(c.encoded_text.tokens, np.int32) for c in message.model_input]
    tokens = np.concatenate([np.empty(0, np.int32), *chunks])
    inputs = {name: _tensor(tensor) for name, tensor in message.loss_fn_inputs.items()}
    targets = inputs.pop("target_tokens").astype(np.int32)
    return Datum(tokens, targets, {name: v.astype(np.float32) for name, v in inputs.items()})


def _tensor(message: pb.Tensor) -> "np.ndarray[tuple[int], np.dtype[np.float32 | np.int64]]":
    if message.dtype == pb.DTYPE_FLOAT32:
        return np.frombuffer(message.dense, np.float32)
    return np.frombuffer(message.dense, np.int64)


def write_forward(result: ForwardResult) -> bytes:
    """The answer to a forward request."""
    arrays = [np.ascontiguousarray(values, np.float32) for values in result.logprobs]
    message = pb.ForwardBackwardOutput(loss_fn_output_type="TorchLossReturn")
    record = message.loss_fn_outputs.add()
    record.num_datums = len(arrays)
    batch = record.fields["logprobs"]
    batch.data = b"".join(values.tobytes() for values in arrays)
    ends = np.cumsum([0, *(values.nbytes for values in arrays)])
    batch.offsets = ends.astype(np.int64).tobytes()
    batch.dtype = pb.DTYPE_FLOAT32
    message.metrics["loss:sum"] = result.loss_sum
    return message.SerializeToString()


def write_samples(samples: list[Sampled], prompt_logprobs: FloatArray | None) -> bytes:
    """The answer to a sampling request."""
    message = pb.SampleResponse()
    for sample in samples:
        sequence = message.sequences.add()
        stopped = sample.stop_reason == "stop"
        sequence.stop_reason = pb.STOP_REASON_STOP if stopped else pb.STOP_REASON_LENGTH
        sequence.tokens = sample.tokens.astype(np.int32).tobytes()
        assert sample.logprobs is not None
        sequence.logprobs = sample.logprobs.astype(np.float32).tobytes()
    if prompt_logprobs is not None:
        message.prompt_logprobs = prompt_logprobs.astype(np.float32).tobytes()
    return message.SerializeToString()
