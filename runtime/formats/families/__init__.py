"""Model families: how a conversation becomes tokens, and an answer becomes content blocks."""

from runtime.formats.codec import Codec
from runtime.formats.families.base import Family, Template
from runtime.formats.families.chatml import ChatML
from runtime.formats.families.deepseek import DeepSeekV4, DeepSeekV31
from runtime.formats.families.glm import Glm
from runtime.formats.families.harmony import Harmony
from runtime.formats.families.kimi import KimiK2
from runtime.formats.families.qwen import Qwen3, Qwen35, QwenCoder
from runtime.formats.families.reading import Delta, Parsed, Reader, TextDelta, ThinkingDelta
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import FamilyName, ModelInfo

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

_FAMILIES: dict[FamilyName, type[Template]] = {
    "chatml": ChatML,
    "qwen3": Qwen3,
    "qwen3-coder": QwenCoder,
    "qwen3.5": Qwen35,
    "deepseek-v3.1": DeepSeekV31,
    "deepseek-v4": DeepSeekV4,
    "kimi-k2": KimiK2,
    "glm": Glm,
    "gpt-oss": Harmony,
}


def family_of(info: ModelInfo, codec: Codec) -> Family:
    """The adapter for a model.

    Raises:
        InvalidInput: `model_unknown`, if its tokenizer lacks what the family needs.
    """
    return family_named(info.family, codec, model=info.name)


def family_named(name: FamilyName, codec: Codec, *, model: str) -> Family:
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
