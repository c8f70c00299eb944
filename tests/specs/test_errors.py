"""Errors: one class for each status, and the same fields wherever they arrive."""

import pickle

import pytest
from pydantic import ValidationError

from specs.errors import (
    Conflict,
    ErrorCode,
    ErrorObject,
    Forbidden,
    Internal,
    InvalidInput,
    NotFound,
    PracticumError,
    Problem,
    Unavailable,
)

CLASSES = [
    (InvalidInput, 422, "Invalid input", ErrorCode.INVALID_DOCUMENT),
    (NotFound, 404, "Not found", ErrorCode.NOT_FOUND),
    (Forbidden, 403, "Forbidden", ErrorCode.FORBIDDEN),
    (Conflict, 409, "Conflict", ErrorCode.STATE_CONFLICT),
    (Unavailable, 503, "Unavailable", ErrorCode.STACK_UNAVAILABLE),
    (Internal, 500, "Internal error", ErrorCode.INTERNAL),
]


@pytest.mark.parametrize(("kind", "status", "title", "code"), CLASSES)
def test_an_error_without_more_says_its_own_status_and_code(
    kind: type[PracticumError], status: int, title: str, code: ErrorCode
) -> None:
    error = kind("because")
    assert str(error) == "because"
    assert error.problem == Problem(title=title, status=status, detail="because", code=code)
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.problem) == (kind, error.problem)


def test_a_code_an_object_and_a_next_step_are_kept() -> None:
    about = ErrorObject(type="run", id="x", pointer="/a")
    error = NotFound("gone", code=ErrorCode.AMBIGUOUS_ID, object=about, next="look")
    problem = error.problem
    assert (problem.code, problem.object, problem.next) == (ErrorCode.AMBIGUOUS_ID, about, "look")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidInput),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, InvalidInput),
        (422, InvalidInput),
        (429, Unavailable),
        (499, InvalidInput),
        (500, Internal),
        (501, Internal),
        (502, Unavailable),
        (503, Unavailable),
        (504, Unavailable),
        (599, Internal),
    ],
)
def test_a_problem_from_elsewhere_becomes_the_error_of_its_status(
    status: int, kind: type[PracticumError]
) -> None:
    problem = Problem(title="t", status=status, detail="why", code=ErrorCode.INTERNAL)
    error = PracticumError.from_problem(problem)
    assert (type(error), str(error), error.problem) == (kind, "why", problem)


@pytest.mark.parametrize("status", [399, 600])
def test_what_is_no_failure_is_no_problem(status: int) -> None:
    with pytest.raises(ValidationError):
        Problem(title="t", status=status, detail="d", code=ErrorCode.INTERNAL)


def test_an_object_is_named_unless_there_is_one() -> None:
    first, second = ErrorObject(type="run"), ErrorObject(type="trial")
    error = Conflict("no")
    assert error.with_object(first) is error
    assert error.problem.object == first
    assert error.with_object(second).problem.object == first
