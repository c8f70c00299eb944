"""What we keep of weights that stay at a training service: names, durable and by content.

An adapter or trainer state of such a model is a small document that names the service's paths.
Its bytes take the place of the safetensors of a local model: they have a digest, are uploaded,
brought back and compared like any adapter or state. Two are equal only if they are one save.

A save that was submitted but never answered is settled later, and only once: before it leaves,
`Ledger` notes which training run may come to hold the state; whoever asks for the state after
the trainer is gone looks there, and what is not there then is void for good (invariant 8). A
trainer's training run is its own, so a save that lands after that is read by nobody.
"""

import os
import secrets
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pydantic import Field, ValidationError

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound
from specs.model import LoraSpec

SCHEMA = "practicum.tinker-weights/v1"

type Kind = Literal["adapter", "state"]


class Weights(Contract):
    """One save: an adapter to sample from, or a trainer state to continue."""

    schema_: Literal["practicum.tinker-weights/v1"] = Field(default=SCHEMA, alias="schema")
    kind: Kind
    base_model: str
    """Our name of the model."""
    lora: LoraSpec
    step: int
    """Optimizer steps behind the weights."""
    path: str
    """The save from which a trainer starts."""
    sampler_path: str | None = None
    """Of an adapter: the save from which is sampled."""
    expires_at: str | None = None

    def encode(self) -> bytes:
        """The bytes that stand for the weights."""
        return canonical.canonical_bytes(self)


def read_weights(data: bytes, kind: Kind, base_model: str) -> Weights:
    """The document of an adapter or state of a model.

    Raises:
        InvalidInput: `resume_incompatible`: it is none, or belongs to another model.
        NotFound: `weights_expired`.
    """
    try:
        weights = Weights.model_validate_json(data)
    except ValidationError:
        raise _unfit(f"it does not name {kind} weights of a training service") from None
    if weights.kind != kind:
        raise _unfit(f"it names {weights.kind} weights, not {kind} weights")
    if weights.base_model != base_model:
        raise _unfit(f"it belongs to {weights.base_model}, not to {base_model}")
    if weights.expires_at is not None:
        until = datetime.fromisoformat(weights.expires_at)
        if until <= datetime.now(UTC):
            raise expired(weights, f"they were kept until {weights.expires_at}")
    return weights


def expired(weights: Weights, why: str) -> NotFound:
    """The error for weights that the service no longer holds."""
    return NotFound(
        f"The training service no longer holds {weights.sampler_path or weights.path}: {why}.",
        code=ErrorCode.WEIGHTS_EXPIRED,
        object=ErrorObject(type=weights.kind, id=weights.path),
        next="Use another checkpoint; `keep_sec` in config.toml says how long weights are kept.",
    )


class Intent(Contract):
    """A save that may exist: where it would be found, and whether it was given up."""

    name: str
    trainer: str
    run: str
    """The training run at the service."""
    weights: Weights
    void: bool = False


class Ledger:
    """Intents on disk, one file each; synchronous: callers run it in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, intent: Intent) -> None:
        """Note an intent durably, replacing what was noted of that name."""
        temporary = self._folder / f".tmp-{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:
                file.write(canonical.canonical_bytes(intent))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path(intent.name))
            self._sync()
        finally:
            temporary.unlink(missing_ok=True)

    def find(self, name: str) -> Intent | None:
        """What is noted of a name."""
        try:
            data = self._path(name).read_bytes()
        except FileNotFoundError:
            return None
        return canonical.read(Intent, data, what="intent of a save")

    def drop(self, name: str) -> None:
        """Forget a name; harmless when nothing is noted."""
        self._path(name).unlink(missing_ok=True)
        self._sync()

    def _path(self, name: str) -> Path:
        return self._folder / f"{quote(name, safe='')}.json"

    def _sync(self) -> None:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unfit(why: str) -> InvalidInput:
    return InvalidInput(
        f"The saved weights do not fit: {why}.",
        code=ErrorCode.RESUME_INCOMPATIBLE,
        object=ErrorObject(type="weights"),
        next="Name a checkpoint of the same model, or start from the base model.",
    )
