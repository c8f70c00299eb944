"""Model families: how a conversation becomes tokens, and an answer becomes content blocks."""

from runtime.formats.codec import Codec
from runtime.formats.families.base import Family, Parsed
from runtime.formats.families.chatml import ChatML
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import ModelInfo

__all__ = ["Family", "Parsed", "family_of"]


def family_of(info: ModelInfo, codec: Codec) -> Family:
    """The adapter for a model.

    Raises:
        InvalidInput: `model_unknown`, if its tokenizer lacks what the family needs.
    """
    if codec.mark(ChatML.END) is None or codec.mark(ChatML.START) is None:
        raise InvalidInput(
            f"The tokenizer of {info.name} has no {ChatML.START} and {ChatML.END}.",
            code=ErrorCode.MODEL_UNKNOWN,
            object=ErrorObject(type="model", id=info.name),
            next="Name a model of the family chatml.",
        )
    return ChatML()
