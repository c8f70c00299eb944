"""Ids are UUIDv7 (RFC 9562): a version, a variant, the time, and 74 random bits."""

import time
from uuid import RFC_4122, UUID

from specs.ids import Prefix, is_id, new_id

RANDOM_BITS = (1 << 76) - (1 << 64) | (1 << 62) - 1


def test_an_id_is_a_uuid_of_version_7_that_holds_its_time() -> None:
    before = time.time_ns() // 1_000_000
    found = UUID(new_id(Prefix.RUN).removeprefix("run_"))
    after = time.time_ns() // 1_000_000
    assert (found.version, found.variant) == (7, RFC_4122)
    assert before <= found.int >> 80 <= after


def test_every_bit_that_may_be_random_is() -> None:
    every, common = 0, -1
    for _ in range(400):
        bits = UUID(new_id(Prefix.TRIAL)[4:]).int & RANDOM_BITS
        every, common = every | bits, common & bits
    assert (every, common) == (RANDOM_BITS, 0)


def test_an_id_is_of_its_kind_alone() -> None:
    made = new_id(Prefix.UPDATE)
    assert is_id(made) and is_id(made, Prefix.UPDATE)
    assert not is_id(made, Prefix.TRIAL)
    assert not is_id(made[:-1]) and not is_id(f"{made}0") and not is_id(made.upper())
