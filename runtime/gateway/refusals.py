"""Short forms of the errors that most modules raise."""

from typing import Final

from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput, NotFound

_LISTS: Final = {
    "trial": "run trials RUN",
    "update": "run updates RUN",
    "group": "run groups RUN",
    "sampler": "run groups RUN",
    "comparison": "run comparisons",
}
"""What lists a kind that has no `list` of its own."""


def not_found(kind: str, name: str, next: str | None = None) -> NotFound:
    """There is no such object, or none that the caller may see."""
    return NotFound(
        f"There is no {kind} {name!r}.",
        object=ErrorObject(type=kind, id=name),
        next=next or f"List what there is: practicum {_LISTS.get(kind, f'{kind} list')}",
    )


def conflict(detail: str, kind: str, name: str, next: str = "Read it again.") -> Conflict:
    """The object's state excludes the request."""
    return Conflict(detail, object=ErrorObject(type=kind, id=name), next=next)


def invalid(
    detail: str,
    kind: str,
    pointer: str | None = None,
    *,
    name: str | None = None,
    code: ErrorCode = ErrorCode.INVALID_DOCUMENT,
    next: str,
) -> InvalidInput:
    """The request is wrong at `pointer`."""
    return InvalidInput(
        detail, code=code, object=ErrorObject(type=kind, id=name, pointer=pointer), next=next
    )
