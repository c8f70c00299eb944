"""Models of somebody else, as far as compute knows them: what they are and how they are counted.

Compute deals in tokens and an upstream in text, so nothing is sampled here: the proxy asks it.
"""

from collections.abc import Sequence

from runtime.compute.models import FORMATS
from runtime.formats.carried import PACKAGE, VERSION, carried_tokenizer
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import ModelInfo
from specs.upstream import Upstream


class Upstreams:
    """The configured ones.

    Raises:
        InvalidInput: one counts as a family that has no tokenizer of its own.
    """

    def __init__(self, configured: Sequence[Upstream] = ()) -> None:
        self._known = {one.full_name: one for one in configured}
        self._infos = {name: _info(one) for name, one in self._known.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def models(self) -> list[ModelInfo]:
        """All of them."""
        return list(self._infos.values())

    def model(self, name: str) -> ModelInfo:
        """One of them."""
        return self._infos[name]

    def tokenizer(self, name: str) -> bytes:
        """The tokenizer that counts for it."""
        return carried_tokenizer(FORMATS[self._known[name].counts_as].tokenizer)

    def refuse(self, name: str) -> None:
        """Raise `model_not_trainable` if the model is one of them: it has no tokens."""
        if name in self._known:
            raise InvalidInput(
                f"Model {name} is served by an upstream, which answers in text.",
                code=ErrorCode.MODEL_NOT_TRAINABLE,
                object=ErrorObject(type="model", id=name),
                next="Name a model that `practicum model list` shows with another backend.",
            )


def _info(upstream: Upstream) -> ModelInfo:
    known = FORMATS.get(upstream.counts_as)
    if known is None:
        raise InvalidInput(
            f"The upstream {upstream.name} cannot count as {upstream.counts_as!r}.",
            object=ErrorObject(type="settings", pointer="/upstreams/counts_as"),
            next=f"Use one of: {', '.join(FORMATS)}.",
        )
    return ModelInfo(
        name=upstream.full_name,
        backend="upstream",
        digest=upstream.digest,
        tokenizer=f"{PACKAGE}:{known.tokenizer}@{VERSION}",
        tokenizer_digest=canonical.digest_bytes(carried_tokenizer(known.tokenizer)),
        family=known.family,
        context_tokens=upstream.context_tokens,
        stop_tokens=known.stop_tokens,
        trainable=False,
        parameters=0,
        present=True,
    )
