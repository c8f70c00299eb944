"""The output contract, applied to what a row teaches; and turns that say nothing of their own."""

import re
from collections.abc import Iterator

from runtime.specialist.findings import Cause
from runtime.specialist.render import schema_error
from runtime.specialist.shell import programs
from specs import canonical
from specs.errors import PracticumError
from specs.model_spec import Answer

_WRAPPING = re.compile(
    r"\A---\n.*?\n---(?=\n|\Z)"  # front matter
    r"|^[ \t]*import\s+(?:[\w*{][^\n]*\s+from\s+)?[\"'][^\"'\n]+[\"'];?[ \t]*$"
    r"|^[ \t]*export\s+(?:default|const|let|function|class|type|\{|\*)[^\n]*$"
    r"|<!--.*?-->|\{/\*.*?\*/\}"  # comments
    r"|</?[A-Za-z][\w.:-]*(?:\s[^<>]*)?/?>|</?>"  # tags
    r"|\{%.*?%\}|\{\{[<%]?.*?[>%]?\}\}"  # includes
    r"|^[ \t]*(?:```|~~~)[\w+-]*[ \t]*$|^[ \t]*:::[^\n]*$",  # fences
    re.DOTALL | re.MULTILINE,
)
_WORD = re.compile(r"\w")
_MAX_WRAPPER = 1 << 14
"""Characters beyond which a text is taken to say something."""


def is_wrapper(text: str) -> bool:
    """Whether a text is markup, imports and includes around nothing."""
    if len(text) > _MAX_WRAPPER:
        return False
    rest, count = _WRAPPING.subn(" ", text)
    return count > 0 and not _WORD.search(rest)


class Answers:
    """One output contract.

    :ivar acting: answers are commands, so what they name is acted upon.
    """

    def __init__(self, contract: Answer) -> None:
        self._contract = contract
        self._pattern = None if contract.pattern is None else re.compile(contract.pattern)
        self._formal = self._pattern is not None or contract.json_schema is not None
        self.acting = contract.programs is not None

    def faults(self, text: str, *, last: bool) -> Iterator[tuple[Cause, str]]:
        """What is wrong with the text of a turn that calls no tool."""
        if not self._formal and is_wrapper(text):
            yield Cause.WRAPPER_ONLY, "has markup and imports, and nothing that they wrap"
        if not last and self._contract.turns == "last":
            return
        for fault in self._shape(text):
            yield Cause.OUTPUT_DIFFERS, fault
        if self._contract.programs is not None:
            yield from self._command(text, self._contract.programs)

    def _shape(self, text: str) -> Iterator[str]:
        contract = self._contract
        if contract.max_characters is not None and len(text) > contract.max_characters:
            yield f"has {len(text)} characters, and {contract.max_characters} are allowed"
        lines = len(text.splitlines())
        if contract.max_lines is not None and lines > contract.max_lines:
            yield f"has {lines} lines, and {contract.max_lines} are allowed"
        if self._pattern is not None and not self._pattern.fullmatch(text):
            yield f"does not match {contract.pattern!r}"
        if contract.json_schema is not None:
            try:
                value = canonical.loads(text, what="answer")
            except PracticumError as error:
                yield error.problem.detail
                return
            if fault := schema_error(contract.json_schema, value):
                yield f"is not what the schema allows: {fault}"

    @staticmethod
    def _command(text: str, allowed: tuple[str, ...]) -> Iterator[tuple[Cause, str]]:
        try:
            used = programs(text)
        except ValueError as error:
            yield Cause.OUTPUT_DIFFERS, f"cannot be read as a command: {error}"
            return
        if not used:
            yield Cause.OUTPUT_DIFFERS, "runs no program"
        for name in dict.fromkeys(used):
            if name not in allowed:
                yield Cause.PROGRAM_UNAVAILABLE, f"runs {name}, which the model lacks"
