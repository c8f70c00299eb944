"""Models that a profile can name, the families they speak, and what each backend does with them.

A family is a format: how a conversation is rendered and an answer read. `RENDERERS` counts its
versions, since a sampler records which one made its prompts. `SERVES` and `TRAINS` are the
capability tables: a model whose family its backend serves can be evaluated, judge and teach;
only one that the backend also trains is admitted to `train start`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from pydantic import Field

from specs.base import Contract
from specs.ids import Digest

type Backend = Literal["torch", "scripted", "tinker", "upstream"]
type FamilyName = Literal[
    "chatml",
    "qwen3",
    "qwen3-coder",
    "qwen3.5",
    "deepseek-v3.1",
    "deepseek-v4",
    "kimi-k2",
    "glm",
    "gpt-oss",
]

RENDERERS: Mapping[FamilyName, int] = MappingProxyType(
    {
        "chatml": 1,
        "qwen3": 1,
        "qwen3-coder": 2,
        "qwen3.5": 2,
        "deepseek-v3.1": 1,
        "deepseek-v4": 1,
        "kimi-k2": 1,
        "glm": 1,
        "gpt-oss": 1,
    }
)
"""Version of each family's renderer; any change of its tokens is a new one."""

SERVES: Mapping[Backend, frozenset[FamilyName]] = MappingProxyType(
    {
        "torch": frozenset[FamilyName]({"chatml"}),
        "scripted": frozenset[FamilyName](RENDERERS),
        "tinker": frozenset[FamilyName](RENDERERS),
        "upstream": frozenset[FamilyName](RENDERERS),
    }
)
"""Families that each backend samples from."""

TRAINS: Mapping[Backend, frozenset[FamilyName]] = MappingProxyType(
    {
        "torch": frozenset[FamilyName]({"chatml"}),
        "scripted": frozenset[FamilyName](),
        "tinker": SERVES["tinker"],
        "upstream": frozenset[FamilyName](),
    }
)
"""Families that each backend trains; a model may still be too large, which `trainable` says."""


class ModelInfo(Contract):
    """What is known of a model that can be named in a profile."""

    name: str
    backend: Backend
    digest: Digest
    """Digest of the weights, or of the scenario of a scripted model."""
    tokenizer: str = "file"
    """`file`, a `tokenizer.json`; or `<package>:<name>@<version>`, one that a package carries."""
    tokenizer_digest: Digest
    family: FamilyName
    """Which adapter renders and parses for it."""
    context_tokens: int
    stop_tokens: tuple[int, ...]
    """Ids that end an assistant turn."""
    trainable: bool
    parameters: int
    present: bool
    """Whether its files are in the cache; an absent model is fetched by `model pull`."""

    @property
    def renderer(self) -> str:
        """Name and version of the family's renderer, as samplers record it."""
        return f"{self.family}/{RENDERERS[self.family]}"

    @property
    def serves(self) -> bool:
        """Whether its backend can sample from it."""
        return self.family in SERVES[self.backend]

    @property
    def why_not_trained(self) -> str | None:
        """Why it cannot be trained, or None if it can."""
        if self.backend == "scripted":
            return "it plays a scenario and has no weights"
        if self.backend == "upstream":
            return "an upstream serves it, in text: it has no tokens and no weights here"
        if self.family not in TRAINS[self.backend]:
            return f"the backend {self.backend} does not train the family {self.family}"
        return None if self.trainable else f"the backend {self.backend} only serves it"


class LoraSpec(Contract):
    """Shape and seed of a LoRA adapter over all attention and MLP projections."""

    rank: int = 8
    alpha: float = 32.0
    seed: int = 0


class Optimizer(Contract):
    """What an optimizer's state depends on, beside its parameters: AdamW (arXiv:1711.05101).

    A step's learning rate and gradient clipping are the plan's own and may change on `resume`.
    """

    name: Literal["adamw"] = "adamw"
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.95, ge=0, lt=1)
    eps: float = Field(default=1e-8, gt=0, le=1)
    weight_decay: float = Field(default=0.0, ge=0, le=1)
