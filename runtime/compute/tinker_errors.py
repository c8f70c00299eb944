"""What the failures of the training service's SDK mean here.

The SDK wraps some status errors in plain exceptions, so the status is looked for along the
chain of causes. What a caller can do decides the class: correct the call, see to the account,
or wait; an answer `not there` is left to the caller, who knows what is missing.
"""

import re

from tinker import APIConnectionError, APIStatusError, APITimeoutError, TinkerError
from tinker import RequestFailedError as Failed
from tinker.types import RequestErrorCategory

from specs.errors import (
    ErrorCode,
    ErrorObject,
    Forbidden,
    Internal,
    InvalidInput,
    NotFound,
    PracticumError,
    Unavailable,
)

_SERVICE = ErrorObject(type="service", id="tinker")
_REQUEST = re.compile(r"^Request failed: (.*) for self\.request_id=.*$", re.DOTALL)
_VERSION = re.compile(
    r"(sdk|client)[^.]{0,60}\b(version|upgrade|update)|upgrade[^.]{0,60}sdk", re.I
)
_LIMIT = 600


def explain(error: Exception, what: str, *, secret: str = "") -> PracticumError:
    """The error for a failure of `what`; `secret` never appears in it."""
    text = _text(error).replace(secret, "…") if secret else _text(error)
    detail = f"The training service failed at {what}: {text}"
    if isinstance(error, PracticumError):
        return error
    if isinstance(error, Failed):
        return _failed(error, what, text)
    status = _status(error)
    if status is not None:
        return _refused(status, what, text)
    if isinstance(error, (APIConnectionError, APITimeoutError, TimeoutError, RuntimeError)):
        return _away(detail)
    if isinstance(error, TinkerError):
        return InvalidInput(detail, code=ErrorCode.SERVICE_REFUSED, object=_SERVICE)
    return Internal(f"{detail} ({type(error).__name__})", object=_SERVICE)


def fails_alone(error: Exception) -> bool:
    """Whether the service itself says that the caller's data was at fault."""
    return isinstance(error, Failed) and error.category is RequestErrorCategory.User


def rate_limited(error: Exception) -> bool:
    """Whether the same request may be taken later."""
    return _status(error) == 429


def not_there(error: Exception) -> bool:
    """Whether the service does not know, or no longer knows, what was named."""
    return _status(error) in (404, 410)


def _failed(error: Failed, what: str, text: str) -> PracticumError:
    if error.category is RequestErrorCategory.User:
        return InvalidInput(
            f"The training service refuses {what}: {text}",
            object=_SERVICE,
            next="Correct the call; it changed nothing.",
        )
    return _away(f"The training service failed at {what}: {text}")


def _refused(status: int, what: str, text: str) -> PracticumError:
    said = f"The training service answers {status} to {what}: {text}"
    if status == 426 or (400 <= status < 500 and _VERSION.search(text)):
        return InvalidInput(
            said,
            code=ErrorCode.SERVICE_VERSION,
            object=_SERVICE,
            next="Upgrade practicum to a release that pins a newer tinker.",
        )
    if status in (401, 402, 403):
        return Forbidden(
            said,
            code=ErrorCode.SERVICE_REFUSED,
            object=_SERVICE,
            next="Look at the account: " + ("its billing." if status == 402 else "its key."),
        )
    if status in (404, 410):
        return NotFound(said, object=_SERVICE)
    if status == 429:
        return Unavailable(
            said, code=ErrorCode.OVERLOADED, object=_SERVICE, next="Send it again in a while."
        )
    if status == 408 or status >= 500:
        return _away(said)
    return InvalidInput(said, code=ErrorCode.SERVICE_REFUSED, object=_SERVICE)


def _away(detail: str) -> Unavailable:
    return Unavailable(
        detail,
        code=ErrorCode.COMPUTE_UNAVAILABLE,
        object=_SERVICE,
        next="Try again; look into the log of compute if it stays so.",
    )


def _status(error: BaseException) -> int | None:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, APIStatusError):
            return seen.status_code
        seen = seen.__cause__
    return None


def _text(error: Exception) -> str:
    text = str(error) or type(error).__name__
    found = _REQUEST.match(text)
    text = found.group(1) if found else text
    return text if len(text) <= _LIMIT else text[:_LIMIT] + "…"
