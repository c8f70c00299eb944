"""An upstream: a model that somebody else serves, for inference alone.

It gives text and no tokens, so what it answers is kept with provenance `upstream`: its token
ids come from a tokenizer that only counts, it has no log-probabilities, and it is never
eligible for importance sampling. Judges and teachers are such models. Its key is named by an
environment variable, which only the proxy is given.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from specs import canonical
from specs.base import Contract

PREFIX = "upstream/"
"""Begins the name under which a profile names the model."""


def _not_ours(name: str) -> str:
    if name.startswith(("PRACTICUM_", "PYTHON")):
        raise ValueError("variables of this name reach every process; use another for a key")
    return name


type KeyName = Annotated[
    str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$"), AfterValidator(_not_ours)
]
"""Name of an environment variable that may hold a key."""


class Upstream(Contract):
    """How a model of somebody else is reached."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    kind: Literal["openai", "anthropic"]
    """The API that it speaks: Chat Completions or Messages."""
    base_url: Annotated[str, StringConstraints(pattern=r"^https?://[^@\s]+$")]
    """As its clients take it: with `/v1` for `openai`, without for `anthropic`."""
    model: str = Field(min_length=1, max_length=256)
    """The name that it is asked for under."""
    key_env: KeyName | None = None
    context_tokens: int = Field(ge=1)
    counts_as: str = "qwen3"
    """The family whose tokenizer counts."""

    @property
    def full_name(self) -> str:
        """The model's name here."""
        return PREFIX + self.name

    @property
    def digest(self) -> str:
        """Of what decides who answers."""
        return canonical.digest(self)
