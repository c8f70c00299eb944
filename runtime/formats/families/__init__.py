"""Model families: how a conversation becomes tokens, and an answer becomes content blocks."""

from runtime.formats.codec import Codec
from runtime.formats.families.base import Family, Template
from runtime.formats.families.chatml import ChatML
from runtime.formats.families.reading import Delta, Parsed, Reader, TextDelta, ThinkingDelta
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import ModelInfo

__all__ = [
    "Delta",
    "Family",
    "Parsed",
    "Reader",
    "TextDelta",
    "ThinkingDelta",
    "family_named",
    "family_of",
]

_FAMILIES: dict[str, type[Template]] = {"chatml": ChatML}


def family_of(info: ModelInfo, codec: Codec) -> Family:
    """The adapter for a model.

    Raises:
        InvalidInput: `model_unknown`, if its tokenizer lacks what the family needs.
    """
    return family_named(info.family, codec, model=info.name)


def family_named(name: str, codec: Codec, *, model: str) -> Family:
    """The adapter of a family over a tokenizer; `model` is named in the error."""
    template = _FAMILIES[name]
    missing = [token for token in template.required if codec.mark(token) is None]
    if missing:
        raise InvalidInput(
            f"The tokenizer of {model} has no {' and no '.join(missing)}.",
            code=ErrorCode.MODEL_UNKNOWN,
            object=ErrorObject(type="model", id=model),
            next=f"Name a model of the family {name}.",
        )
    return template(codec)
