"""Errors of the Messages API, with the status and headers that make a harness do right.

* What the same request can never change (4xx) says `x-should-retry: false`.
* A part that is away or full is 529 with `retry-after`: harnesses wait and come again.
* A credential that is refused is 403, because Claude Code repeats 401 in vain; 401 is left for
  a request without any.
* A prompt beyond the window is 400 in the very words at which Claude Code compacts.
"""

from pydantic import JsonValue

from proxy.dialects.base import ErrorReply
from specs.errors import ErrorCode, PracticumError

RETRY_AFTER_SEC = 2
"""Seconds after which a harness may ask an overloaded proxy again."""


def error_reply(error: PracticumError, request_id: str) -> ErrorReply:
    """An error as a whole response."""
    status, body = error_body(error, request_id)
    headers = {"request-id": request_id}
    if status < 500:
        headers["x-should-retry"] = "false"
    if status == 529:
        headers["retry-after"] = str(RETRY_AFTER_SEC)
    return ErrorReply(status, headers, body)


def error_body(error: PracticumError, request_id: str) -> tuple[int, dict[str, JsonValue]]:
    """HTTP status and body of an error."""
    status, kind = _kind(error)
    detail: dict[str, JsonValue] = {"type": kind, "message": error.problem.detail}
    return status, {"type": "error", "error": detail, "request_id": request_id}


def _kind(error: PracticumError) -> tuple[int, str]:
    match error.problem.code, error.problem.status:
        case ErrorCode.UNAUTHENTICATED, _:
            return 401, "authentication_error"
        case ErrorCode.BODY_TOO_LARGE, _:
            return 413, "request_too_large"
        case ErrorCode.METHOD_NOT_ALLOWED, _:
            return 405, "invalid_request_error"
        case _, 403:
            return 403, "permission_error"
        case _, 404:
            return 404, "not_found_error"
        case _, 503:
            return 529, "overloaded_error"
        case _, status if status < 500:
            return 400, "invalid_request_error"
        case _:
            return 500, "api_error"
