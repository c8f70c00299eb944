"""What a refusal says to do next can be done."""

import pytest

from runtime.gateway.refusals import not_found
from tools.index import SUMMARIES

KINDS = (
    *("run", "trial", "checkpoint", "sampler", "update", "group"),
    *("session", "comparison", "construction", "dataset", "profile"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_is_listed_by_a_command_that_exists(kind: str) -> None:
    step = not_found(kind, "x").problem.next
    assert step is not None
    noun, verb, *_ = step.partition("practicum ")[2].split()
    assert (noun, verb) in SUMMARIES
