"""Short forms of the errors that most modules raise."""

from specs.errors import Conflict, ErrorCode, ErrorObject, InvalidInput, NotFound


def not_found(kind: str, name: str, next: str | None = None) -> NotFound:
    """There is no such object, or none that the caller may see."""
    return NotFound(
        f"There is no {kind} {name!r}.",
        object=ErrorObject(type=kind, id=name),
        next=next or f"List what there is: practicum {kind} list",
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
