"""How many threads torch uses, for sampling and for training each.

Sampling is bound by memory and made of many small operations, and the rest of the stack works
while it runs: one thread. Training is bound by arithmetic and usually runs alone: the cores of
the machine, at most four. Threads without work sleep, so more of them than free cores cost
little there.
"""

import os
from dataclasses import dataclass
from typing import Self

from specs.errors import ErrorObject, InvalidInput

SAMPLE_VARIABLE = "PRACTICUM_SAMPLE_THREADS"
TRAIN_VARIABLE = "PRACTICUM_TRAIN_THREADS"


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of one torch operation."""

    sample: int
    train: int

    @classmethod
    def choose(cls, both: int | None = None) -> Self:
        """`both` where given, else what the environment says, else the default.

        Raises:
            InvalidInput: not a positive number.
        """
        if both is not None:
            return cls(_positive("threads", str(both)), both)
        return cls(
            _positive(SAMPLE_VARIABLE, os.environ.get(SAMPLE_VARIABLE, "1")),
            _positive(
                TRAIN_VARIABLE, os.environ.get(TRAIN_VARIABLE, str(min(4, os.cpu_count() or 1)))
            ),
        )


def _positive(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInput(
            f"{name} is {text!r}, not a positive number.",
            object=ErrorObject(type="setting", id=name),
            next=f"Set {name} to a number of threads, or leave it out.",
        )
    return int(text)
