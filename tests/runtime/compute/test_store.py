"""Adapters take bounded room, and none goes that somebody may be about to open."""

import os
import time
from pathlib import Path

import pytest

from runtime.compute.protocol import SavedBytes
from runtime.compute.store import IN_USE_S, Store
from specs.canonical import digest_bytes
from specs.errors import ErrorCode, NotFound

ONE = 100
"""Bytes of an adapter here."""
ROOM = 3 * ONE


def adapter(number: int) -> bytes:
    return bytes([number]) * ONE


def digest(number: int) -> str:
    return digest_bytes(adapter(number))


def unused(folder: Path, number: int, seconds: float) -> None:
    """Let an adapter's last use be so long ago."""
    path = folder / "adapters" / f"{digest(number).removeprefix('sha256:')}.safetensors"
    then = time.time() - seconds
    os.utime(path, (then, then))


def there(folder: Path) -> set[int]:
    """Which adapters have a file, found without using any."""
    names = {path.stem for path in (folder / "adapters").iterdir()}
    return {number for number in range(20) if digest(number).removeprefix("sha256:") in names}


def filled(folder: Path) -> Store:
    """A store whose room is taken by adapters long unused, 0 for the longest time."""
    store = Store(folder, adapter_bytes=ROOM)
    for number in range(3):
        store.add_adapter(adapter(number))
        unused(folder, number, (10 - number) * IN_USE_S)
    return store


def test_the_least_recently_used_adapters_make_room_for_others(tmp_path: Path) -> None:
    store = filled(tmp_path)
    assert there(tmp_path) == {0, 1, 2}
    store.add_adapter(adapter(3))
    assert there(tmp_path) == {1, 2, 3}
    store.put_adapter(digest(4), adapter(4))
    assert there(tmp_path) == {2, 3, 4}


@pytest.mark.parametrize("use", ["has", "get", "put", "add"])
def test_an_adapter_that_is_used_stays(use: str, tmp_path: Path) -> None:
    store = filled(tmp_path)
    match use:
        case "has":
            assert store.has_adapter(digest(0))
        case "get":
            assert store.get_adapter(digest(0)) == adapter(0)
        case "put":
            store.put_adapter(digest(0), adapter(0))
        case _:
            assert store.add_adapter(adapter(0)) == SavedBytes(digest(0), ONE)
    store.add_adapter(adapter(3))
    assert there(tmp_path) == {0, 2, 3}


def test_what_was_just_made_or_brought_stays_whatever_room_it_takes(tmp_path: Path) -> None:
    """It may be the only copy, or a trainer is about to open it."""
    store = Store(tmp_path, adapter_bytes=0)
    for number in range(5):
        store.add_adapter(adapter(number))
    assert there(tmp_path) == set(range(5))
    for number in range(5):
        unused(tmp_path, number, IN_USE_S / 2)
    Store(tmp_path, adapter_bytes=0)
    assert there(tmp_path) == set(range(5))


def test_a_start_makes_room_and_leaves_states_alone(tmp_path: Path) -> None:
    filled(tmp_path).save_state("upd_1", bytes(ROOM))
    state = next((tmp_path / "states").iterdir())
    os.utime(state, (0, 0))
    store = Store(tmp_path, adapter_bytes=ONE)
    assert there(tmp_path) == {2}
    assert store.get_state("upd_1") == bytes(ROOM)


def test_an_adapter_that_made_room_is_missing_and_can_be_brought_back(tmp_path: Path) -> None:
    store = filled(tmp_path)
    store.add_adapter(adapter(3))
    assert not store.has_adapter(digest(0))
    with pytest.raises(NotFound) as missing:
        store.get_adapter(digest(0))
    assert missing.value.problem.code == ErrorCode.ADAPTER_MISSING
    store.put_adapter(digest(0), adapter(0))
    assert store.get_adapter(digest(0)) == adapter(0)
