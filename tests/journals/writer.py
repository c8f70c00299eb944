"""A writer in a process of its own, to be killed; sometimes it dies in the middle of a line."""

import os
import random
import signal
from collections.abc import Buffer
from pathlib import Path

from journals import Journal
from tests.journals.drafts import draft

ACK = 72
"""Bytes of one acknowledgement: a digest and an end of line."""
TORN_SHARE = 1 / 200


def write(folder: Path, acks: Path, count: int, seed: int) -> None:
    """Append what is missing to `count` entries; each is written to `acks` once it is durable."""
    _die_within_lines(random.Random(seed))
    journal = Journal(folder)
    with acks.open("ab", buffering=0) as file:
        for number in range(file.tell() // ACK, count):
            entry = journal.append(draft(f"{acks.name} {number} " + "x" * (number % 50)))
            file.write(f"{entry.digest}\n".encode())


def _die_within_lines(chance: random.Random) -> None:
    real = os.write

    def write(descriptor: int, data: Buffer, /) -> int:
        if chance.random() < TORN_SHARE:
            real(descriptor, bytes(data)[: chance.randrange(1, memoryview(data).nbytes)])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(descriptor, data)

    os.write = write
