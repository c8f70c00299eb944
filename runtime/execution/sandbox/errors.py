"""Errors of the sandbox, each with the next step.

InvalidInput(sandbox_unsupported)       this kernel, or this task, asks for what we do not do
InvalidInput(dockerfile_unsupported)    a Dockerfile line outside the subset
CommandTimedOut                         a command passed its deadline and was killed
SandboxFailed                           a sandbox did not start, or died
"""

from specs.errors import ErrorCode, ErrorObject, InvalidInput, Unavailable


class CommandTimedOut(Unavailable, RuntimeError):
    """A command was killed at its deadline, with all its descendants.

    It is a `RuntimeError` because that is what Harbor's own environments raise.
    """

    default_code = ErrorCode.WAIT_TIMED_OUT


class SandboxFailed(Unavailable):
    """A sandbox did not start, or ended while it was needed."""

    default_code = ErrorCode.SANDBOX_FAILED


def unsupported(detail: str, *, next: str, pointer: str | None = None) -> InvalidInput:
    """`sandbox_unsupported`: the local sandbox cannot do what is asked."""
    return InvalidInput(
        detail,
        code=ErrorCode.SANDBOX_UNSUPPORTED,
        object=ErrorObject(type="environment", id="local-sandbox", pointer=pointer),
        next=next,
    )


def bad_dockerfile(line: int, detail: str, *, next: str) -> InvalidInput:
    """`dockerfile_unsupported`, naming the line."""
    return InvalidInput(
        f"Dockerfile line {line}: {detail}",
        code=ErrorCode.DOCKERFILE_UNSUPPORTED,
        object=ErrorObject(type="dockerfile", pointer=f"/environment/Dockerfile#L{line}"),
        next=next,
    )
