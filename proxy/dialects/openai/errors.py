"""Errors in OpenAI's shape, with the status and headers that make a harness do right.

* What the same request can never change (4xx) says `x-should-retry: false`.
* A part that is away or full is 503 with `retry-after`: clients wait and come again.
* A prompt beyond the window is 400 `context_length_exceeded`, in the words that harnesses and
  their libraries look for.
"""

import re

from pydantic import JsonValue

from proxy.dialects.base import ErrorReply
from specs.errors import ErrorCode, PracticumError

RETRY_AFTER_SEC = 2
"""Seconds after which a client may ask an overloaded proxy again."""
TOO_LONG = "context_length_exceeded"

_COUNTS = re.compile(r"(\d+) tokens > (\d+) maximum")
"""How `proxy.sampling` words a prompt that leaves no room for an answer."""


def error_reply(error: PracticumError, request_id: str) -> ErrorReply:
    """An error as a whole response."""
    status, _, _ = _kind(error)
    headers = {"x-request-id": request_id}
    if status < 500:
        headers["x-should-retry"] = "false"
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_SEC)
    return ErrorReply(status, headers, {"error": error_body(error)})


def error_body(error: PracticumError) -> dict[str, JsonValue]:
    """The `error` object."""
    _, kind, code = _kind(error)
    found = error.problem.object
    pointer = found.pointer if found is not None and found.type == "request" else None
    param = pointer.strip("/").replace("/", ".") if pointer else None
    return {"message": _message(error), "type": kind, "param": param or None, "code": code}


def _message(error: PracticumError) -> str:
    detail = error.problem.detail
    if error.problem.code is not ErrorCode.PROMPT_TOO_LONG:
        return detail
    counts = _COUNTS.search(detail)
    if counts is None:
        return f"This model's maximum context length is exceeded: {detail}"
    tokens, most = int(counts[1]), int(counts[2])
    return (
        f"This model's maximum context length is {most + 1} tokens. However, your messages"
        f" resulted in {tokens} tokens. Please reduce the length of the messages."
    )


def _kind(error: PracticumError) -> tuple[int, str, str]:
    """Status, type and code."""
    code = str(error.problem.code)
    match error.problem.code, error.problem.status:
        case ErrorCode.PROMPT_TOO_LONG, _:
            return 400, "invalid_request_error", TOO_LONG
        case ErrorCode.UNAUTHENTICATED, _:
            return 401, "authentication_error", "invalid_api_key"
        case ErrorCode.BODY_TOO_LARGE, _:
            return 413, "invalid_request_error", code
        case ErrorCode.METHOD_NOT_ALLOWED, _:
            return 405, "invalid_request_error", code
        case _, 403:
            return 403, "permission_error", code
        case _, 404:
            return 404, "invalid_request_error", code
        case _, 503:
            return 503, "server_error", code
        case _, status if status < 500:
            return 400, "invalid_request_error", code
        case _:
            return 500, "server_error", code
