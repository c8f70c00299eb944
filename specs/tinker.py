"""Models that Tinker, or a service that speaks its protocol, samples and trains.

Tokens and log-probabilities are real, so such a model is trained like a local one; weights stay
at the service, and what we keep are names of them. The key is an environment variable, which
only the compute process is given.
"""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from specs import canonical
from specs.base import Contract
from specs.model import FamilyName
from specs.upstream import KeyName

PREFIX = "tinker/"
"""Begins the name under which a profile names the model."""

HOUR = 3600


def _a_bound_of_the_service(seconds: int) -> int:
    if not HOUR <= seconds <= 10 * 365 * 24 * HOUR:
        raise ValueError("the service keeps weights between one hour and ten years")
    return seconds


class TinkerModel(Contract):
    """One model of the service."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    model: str = Field(min_length=1, max_length=256)
    """As the service names it: `Qwen/Qwen3-8B`."""
    tokenizer: str = "qwen3"
    """A family, whose carried tokenizer it has, or a local model, whose `tokenizer.json`."""
    family: FamilyName | None = None
    """How it is spoken to; left out, as the tokenizer's family or model is."""
    context_tokens: int = Field(ge=2)
    trains: bool = True
    """Whether the service trains it, too."""

    @property
    def full_name(self) -> str:
        """The model's name here."""
        return PREFIX + self.name

    @property
    def digest(self) -> str:
        """Of the name at the service, which alone decides about the weights."""
        return canonical.digest({"backend": "tinker", "model": self.model})


class TinkerSettings(Contract):
    """How the service is reached, and the models that are used of it."""

    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^@\s]+$")] | None = None
    """Left out: the service's own."""
    key_env: KeyName = "TINKER_API_KEY"
    """The variable that holds the key."""
    stuck_sec: float = Field(default=1800.0, gt=0)
    """An operation that the service neither answers nor pauses for so long is given up."""
    keep_sec: Annotated[int, AfterValidator(_a_bound_of_the_service)] | None = None
    """How long the service keeps saved weights; left out: until they are deleted there."""
    models: tuple[TinkerModel, ...] = ()

    @model_validator(mode="after")
    def _one_of_each_name(self) -> Self:
        names = [one.name for one in self.models]
        if len(set(names)) != len(names):
            raise ValueError("two models have one name")
        return self
