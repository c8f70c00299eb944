"""Models that a profile can name."""

from typing import Literal

from specs.base import Contract
from specs.ids import Digest


class ModelInfo(Contract):
    """What is known of a model that can be named in a profile."""

    name: str
    backend: Literal["torch", "scripted", "tinker"]
    digest: Digest
    """Digest of the weights, or of the scenario of a scripted model."""
    tokenizer_digest: Digest
    family: Literal["chatml"]
    """Which adapter of the proxy renders and parses for it."""
    context_tokens: int
    stop_tokens: tuple[int, ...]
    """Ids that end an assistant turn."""
    trainable: bool
    parameters: int
    present: bool
    """Whether its files are in the cache; an absent model is fetched by `model pull`."""


class LoraSpec(Contract):
    """Shape and seed of a LoRA adapter over all attention and MLP projections."""

    rank: int = 8
    alpha: float = 32.0
    seed: int = 0
