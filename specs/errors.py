"""The error model: every failure that a person or an agent can see is one `Problem`.

A `Problem` is an RFC 9457 document. The same fields travel over HTTP, MCP and the CLI, so
a caller branches on `code` and never on prose.

    PracticumError                  base: carries a Problem, picklable
    ├── InvalidInput                the request is wrong; the same request fails again
    ├── NotFound                    no such object, or not visible to the caller
    ├── Forbidden                   the credential does not open this
    ├── Conflict                    the object is in a state that excludes the request
    ├── Unavailable                 a part is down, busy or missing; the same request may work later
    └── Internal                    a defect of ours; the detail says where to look

To add an error: add its code to `ErrorCode`, a line to `docs/errors.md`, and raise the
class whose HTTP status fits. `next` is the command or the change that helps.
"""

from enum import StrEnum
from typing import ClassVar, Self

from pydantic import Field

from specs.base import Contract


class ErrorCode(StrEnum):
    """Stable names of failures; documented one line each in `docs/errors.md`."""

    INVALID_JSON = "invalid_json"
    INVALID_DOCUMENT = "invalid_document"
    INVALID_REFERENCE = "invalid_reference"
    INVALID_PACKAGE = "invalid_package"
    BODY_TOO_LARGE = "body_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    UNKNOWN_BINDING = "unknown_binding"
    LAUNCH_CONFLICT = "launch_conflict"
    JUDGE_UNSUPPORTED = "judge_unsupported"
    ENGINE_UNSUPPORTED = "engine_unsupported"
    MODEL_UNKNOWN = "model_unknown"
    MODEL_NOT_TRAINABLE = "model_not_trainable"
    RESUME_INCOMPATIBLE = "resume_incompatible"
    SOURCE_UNUSABLE = "source_unusable"
    DIGEST_MISMATCH = "digest_mismatch"
    NOT_FOUND = "not_found"
    AMBIGUOUS_ID = "ambiguous_id"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    GRANT_ENDED = "grant_ended"
    GRANT_LIMIT = "grant_limit"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    VERSION_EXISTS = "version_exists"
    STALE_FENCE = "stale_fence"
    STATE_CONFLICT = "state_conflict"
    CHECKPOINT_IN_USE = "checkpoint_in_use"
    UPDATE_UNRESOLVED = "update_unresolved"
    LOGPROB_MISMATCH = "logprob_mismatch"
    WEIGHTS_CHANGED = "weights_changed"
    BUDGET_EXHAUSTED = "budget_exhausted"
    CONSTRUCTION_NOT_APPROVED = "construction_not_approved"
    CONSTRUCTION_OVER_BUDGET = "construction_over_budget"
    APPROVAL_REFUSED = "approval_refused"
    ADAPTER_MISSING = "adapter_missing"
    TRAINER_MISSING = "trainer_missing"
    TRIAL_NOT_RENEWED = "trial_not_renewed"
    PROMPT_TOO_LONG = "prompt_too_long"
    UNSUPPORTED_CONTENT = "unsupported_content"
    SANDBOX_UNSUPPORTED = "sandbox_unsupported"
    SANDBOX_FAILED = "sandbox_failed"
    DOCKERFILE_UNSUPPORTED = "dockerfile_unsupported"
    SCENARIO_EXHAUSTED = "scenario_exhausted"
    SCENARIO_UNMATCHED = "scenario_unmatched"
    NOT_LOCAL = "not_local"
    STACK_UNAVAILABLE = "stack_unavailable"
    STORE_UNAVAILABLE = "store_unavailable"
    COMPUTE_UNAVAILABLE = "compute_unavailable"
    OVERLOADED = "overloaded"
    UPSTREAM_REFUSED = "upstream_refused"
    SERVICE_KEY_MISSING = "service_key_missing"
    SERVICE_REFUSED = "service_refused"
    SERVICE_VERSION = "service_version"
    WEIGHTS_EXPIRED = "weights_expired"
    CONNECTION_DROPPED = "connection_dropped"
    DATABASE_NEWER = "database_newer"
    JOURNAL_DAMAGED = "journal_damaged"
    WAIT_TIMED_OUT = "wait_timed_out"
    VERIFICATION_FAILED = "verification_failed"
    INTERNAL = "internal"


class ErrorObject(Contract):
    """What the error is about: its kind, its id or name, and a JSON pointer into it."""

    type: str
    id: str | None = None
    pointer: str | None = None


class Problem(Contract):
    """An RFC 9457 problem document; media type `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int = Field(ge=400, le=599)
    detail: str
    code: ErrorCode
    object: ErrorObject | None = None
    next: str | None = None


class PracticumError(Exception):
    """Base of every error with a `Problem`.

    Args:
        detail: one sentence that names the cause.
        code: stable code; each class has a fitting default.
        object: what the error is about.
        next: the command to run or the change to make.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    default_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(
        self,
        detail: str,
        *,
        code: ErrorCode | None = None,
        object: ErrorObject | None = None,
        next: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(
            title=self.title,
            status=self.status,
            detail=detail,
            code=code or self.default_code,
            object=object,
            next=next,
        )

    @classmethod
    def from_problem(cls, problem: Problem) -> "PracticumError":
        """The error class that fits a problem received from another process."""
        kind = _by_status(problem.status)
        error = kind.__new__(kind)
        Exception.__init__(error, problem.detail)
        error.problem = problem
        return error

    def __reduce__(self) -> tuple[object, tuple[Problem]]:
        return (PracticumError.from_problem, (self.problem,))

    def with_object(self, object: ErrorObject) -> Self:
        """The same error, naming `object` unless it already names one."""
        if self.problem.object is None:
            self.problem = self.problem.model_copy(update={"object": object})
        return self


class InvalidInput(PracticumError):
    """The request is wrong and stays wrong: bad JSON, unknown key, bad reference, too large."""

    status = 422
    title = "Invalid input"
    default_code = ErrorCode.INVALID_DOCUMENT


class NotFound(PracticumError):
    """No such object, or none that this caller may see."""

    status = 404
    title = "Not found"
    default_code = ErrorCode.NOT_FOUND


class Forbidden(PracticumError):
    """The credential is missing, expired, or opens something else."""

    status = 403
    title = "Forbidden"
    default_code = ErrorCode.FORBIDDEN


class Conflict(PracticumError):
    """The object's state excludes the request: stale fence, existing version, reused key."""

    status = 409
    title = "Conflict"
    default_code = ErrorCode.STATE_CONFLICT


class Unavailable(PracticumError):
    """A part is down, busy or not installed; the same request may work later."""

    status = 503
    title = "Unavailable"
    default_code = ErrorCode.STACK_UNAVAILABLE


class Internal(PracticumError):
    """A defect of ours."""


def _by_status(status: int) -> type[PracticumError]:
    kinds: dict[int, type[PracticumError]] = {
        kind.status: kind for kind in (NotFound, Forbidden, Conflict)
    }
    kinds[401] = Forbidden
    if status in kinds:
        return kinds[status]
    if status in (502, 503, 504, 429):
        return Unavailable
    return InvalidInput if status < 500 else Internal
