"""How a failure leaves the command line: what was wrong on stderr, and the exit code."""

import sys
from typing import Final

from specs.errors import ErrorCode, Problem

OK, FAILED, BAD_INPUT, NOT_FOUND, TIMED_OUT = range(5)

_STEERING: Final = (
    *range(0x20),
    *range(0x7F, 0xA0),
    *range(0x202A, 0x202F),
    *range(0x2066, 0x206A),
)
_SPELLED: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in _STEERING
    if chr(code) not in "\t\n"
}

_BY_CODE = {
    ErrorCode.WAIT_TIMED_OUT: TIMED_OUT,
    ErrorCode.VERIFICATION_FAILED: FAILED,
    ErrorCode.DIGEST_MISMATCH: FAILED,
    ErrorCode.MODEL_UNKNOWN: BAD_INPUT,
}
_BY_STATUS = {401: NOT_FOUND, 403: NOT_FOUND, 404: NOT_FOUND, 409: FAILED}


def exit_code(problem: Problem) -> int:
    """0 ok, 1 failed, 2 bad input, 3 not found or forbidden, 4 timed out waiting."""
    if problem.code in _BY_CODE:
        return _BY_CODE[problem.code]
    if problem.status in _BY_STATUS:
        return _BY_STATUS[problem.status]
    return BAD_INPUT if problem.status < 500 else FAILED


def report(problem: Problem, *, as_json: bool) -> int:
    """Write the problem to stderr and return its exit code."""
    text = problem.model_dump_json(exclude_none=True) if as_json else visible(as_text(problem))
    sys.stderr.write(text + "\n")
    return exit_code(problem)


def visible(text: str) -> str:
    """Text for a terminal, control characters spelled out: what a model or a stranger wrote must
    not move the cursor, recolour, reorder or retitle what a person reads."""
    return text.translate(_SPELLED)


def as_text(problem: Problem) -> str:
    """Message, code, object and next step, each on a line of its own."""
    lines = [f"error: {problem.detail}", f"  code: {problem.code}"]
    if problem.object is not None:
        about = [problem.object.type, problem.object.id, problem.object.pointer]
        lines.append(f"  at:   {' '.join(part for part in about if part)}")
    if problem.next is not None:
        lines.append(f"  next: {problem.next}")
    return "\n".join(lines)
