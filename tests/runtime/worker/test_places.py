"""Runs at work at once: two kinds are counted apart, so that none waits for its own place."""

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.worker.places import Places


@given(st.integers(1, 3), st.lists(st.booleans(), max_size=12))
def test_a_run_that_waits_for_others_never_holds_their_place(runs: int, kinds: list[bool]) -> None:
    places = Places(runs)
    held = {True: 0, False: 0}
    for kind in kinds:
        wanted = places.wanted
        if places.full or wanted not in (None, kind):
            assert held[kind] == runs
            continue
        places.take(delegating=kind)
        held[kind] += 1
        assert held[kind] <= runs
    assert places.full == all(number == runs for number in held.values())
    if held[False] < runs:
        assert not places.full and places.wanted in (None, False)


@pytest.mark.anyio
async def test_who_waits_is_woken_by_a_place() -> None:
    places = Places(1)
    for kind in (True, False):
        places.take(delegating=kind)
    assert places.full
    async with anyio.create_task_group() as group:
        group.start_soon(places.wait)
        await anyio.wait_all_tasks_blocked()
        places.leave(delegating=True)
    assert not places.full and places.wanted is True
