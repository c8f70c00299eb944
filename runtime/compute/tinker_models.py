"""Models of a training service, as far as they are known without it.

Everything here is configuration and carried tokenizers: listing models, counting tokens and
refusing a missing key need neither the service nor its SDK.
"""

from collections.abc import Mapping

from runtime.compute.models import FORMATS, model_info, tokenizer_bytes
from runtime.formats.carried import PACKAGE, VERSION, carried_tokenizer
from specs import canonical
from specs.errors import ErrorCode, ErrorObject, InvalidInput, Unavailable
from specs.model import ModelInfo
from specs.tinker import TinkerModel, TinkerSettings

KEY_PREFIXES = ("tml-", "eyJ")
"""What the service's keys and tokens begin with."""


class TinkerModels:
    """The configured ones; a model is `present` where there is a key for its service.

    Raises:
        InvalidInput: one names a tokenizer that there is not.
    """

    def __init__(self, settings: TinkerSettings, environment: Mapping[str, str]) -> None:
        self.settings = settings
        self._key = environment.get(settings.key_env)
        self._known = {one.full_name: one for one in settings.models}
        usable = self._key is not None and self._key.startswith(KEY_PREFIXES)
        self._infos = {name: _info(one, present=usable) for name, one in self._known.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def models(self) -> list[ModelInfo]:
        """All of them."""
        return list(self._infos.values())

    def model(self, name: str) -> ModelInfo:
        """One of them."""
        return self._infos[name]

    def configured(self, name: str) -> TinkerModel:
        """How one of them is configured."""
        return self._known[name]

    def tokenizer(self, name: str) -> bytes:
        """The tokenizer of one of them."""
        tokenizer = self._known[name].tokenizer
        known = FORMATS.get(tokenizer)
        return tokenizer_bytes(tokenizer) if known is None else carried_tokenizer(known.tokenizer)

    def key(self) -> str:
        """The service's key.

        Raises:
            Unavailable: `service_key_missing`: there is none, or it cannot be one.
        """
        variable = self.settings.key_env
        if not self._key:
            raise _keyless(f"{variable} is not set for the compute process", variable)
        if not self._key.startswith(KEY_PREFIXES):
            raise _keyless(f"what {variable} holds does not look like a key of it", variable)
        return self._key

    def require_trainable(self, name: str) -> None:
        """Refuse to train a model that the configuration only serves."""
        if (reason := self._infos[name].why_not_trained) is not None:
            raise InvalidInput(
                f"Model {name} cannot be trained: {reason}.",
                code=ErrorCode.MODEL_NOT_TRAINABLE,
                object=ErrorObject(type="model", id=name),
                next="Name a model that `practicum model list` shows as trainable.",
            )


def _info(model: TinkerModel, *, present: bool) -> ModelInfo:
    known = FORMATS.get(model.tokenizer)
    if known is None:
        like = model_info(model.tokenizer)
        family, stops = like.family, like.stop_tokens
        tokenizer, digest = like.tokenizer, like.tokenizer_digest
    else:
        family, stops = known.family, known.stop_tokens
        tokenizer = f"{PACKAGE}:{known.tokenizer}@{VERSION}"
        digest = canonical.digest_bytes(carried_tokenizer(known.tokenizer))
    return ModelInfo(
        name=model.full_name,
        backend="tinker",
        digest=model.digest,
        tokenizer=tokenizer,
        tokenizer_digest=digest,
        family=model.family or family,
        context_tokens=model.context_tokens,
        stop_tokens=stops,
        trainable=model.trains,
        parameters=0,
        present=present,
    )


def _keyless(why: str, variable: str) -> Unavailable:
    return Unavailable(
        f"The training service cannot be used: {why}.",
        code=ErrorCode.SERVICE_KEY_MISSING,
        object=ErrorObject(type="settings", id=variable),
        next=f"Set {variable} in the shell that runs `practicum up`, then `practicum down` and up.",
    )
