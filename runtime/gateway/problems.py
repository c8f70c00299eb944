"""Every failure leaves as a problem document, and none repeats what was sent."""

import http

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from specs.errors import ErrorCode, ErrorObject, PracticumError, Problem

PROBLEM_TYPE = "application/problem+json"

_STATUS_OF_CODE = {
    ErrorCode.UNAUTHENTICATED: 401,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.BODY_TOO_LARGE: 413,
    ErrorCode.UNSUPPORTED_MEDIA_TYPE: 415,
}
"""Codes whose HTTP status is narrower than that of their class."""

_CODE_OF_STATUS = {
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    413: ErrorCode.BODY_TOO_LARGE,
    415: ErrorCode.UNSUPPORTED_MEDIA_TYPE,
}


def problem_response(problem: Problem, headers: dict[str, str] | None = None) -> Response:
    """The HTTP form of a problem."""
    status = _STATUS_OF_CODE.get(problem.code, problem.status)
    problem = problem.model_copy(update={"status": status})
    if status == 401:
        headers = {**(headers or {}), "www-authenticate": "Bearer"}
    return Response(problem.model_dump_json(), status, headers=headers, media_type=PROBLEM_TYPE)


def install(app: FastAPI) -> None:
    """Answer every exception with a problem."""
    app.add_exception_handler(PracticumError, _on_practicum)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(Exception, _on_defect)


async def _on_practicum(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PracticumError)
    return problem_response(error.problem)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = http.HTTPStatus(error.status_code).phrase
    problem = Problem(
        title=phrase,
        status=error.status_code,
        detail=f"{request.method} of this path: {phrase.lower()}.",
        code=_CODE_OF_STATUS.get(error.status_code, ErrorCode.INVALID_DOCUMENT),
        object=ErrorObject(type="route"),
        next="See docs/protocols.md for the routes.",
    )
    return problem_response(problem, dict(error.headers or {}))


async def _on_validation(_request: Request, error: Exception) -> Response:
    """A path or query parameter is wrong; bodies are read by `wire.body`."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    problem = Problem(
        title="Invalid input",
        status=422,
        detail=f"The parameter {name!r} is wrong: {first['msg']}.",
        code=ErrorCode.INVALID_DOCUMENT,
        object=ErrorObject(type="parameter", id=name),
        next="See docs/protocols.md for the parameters of this route.",
    )
    return problem_response(problem)


async def _on_defect(request: Request, _error: Exception) -> Response:
    """A defect of ours: the traceback goes to the log, never to the caller."""
    problem = Problem(
        title="Internal error",
        status=500,
        detail=f"{request.method} {request.url.path} failed inside the gateway.",
        code=ErrorCode.INTERNAL,
        object=ErrorObject(type="route"),
        next="Look at the end of logs/gateway.log in the home folder.",
    )
    return problem_response(problem)
