"""Layers and bases are bounded, and none goes while somebody uses it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.execution.sandbox.cache import SIZE, Holds, prune
from runtime.execution.sandbox.environment import LocalSandboxEnvironment
from tests.runtime.execution.sandbox.test_environment import environment

ROOT = Path(__file__).resolve().parents[4]
_HOLD = """
import sys
from pathlib import Path
from runtime.execution.sandbox.cache import Holds

holds = Holds()
assert holds.take(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def entry(folder: Path, name: str, size: int = 100) -> Path:
    place = folder / name
    place.mkdir(parents=True)
    (place / SIZE).write_text(json.dumps({"bytes": size}))
    (folder / f"{name}.lock").touch()
    return place


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_not_used_for_longest_goes_first_until_the_rest_fits(tmp_path: Path) -> None:
    layers, bases = tmp_path / "layers", tmp_path / "base"
    first, second = entry(layers, "first"), entry(layers, "second")
    third = entry(bases, "third")
    for day, place in enumerate((first, second, third)):
        os.utime(place, (day, day))
    with Holds() as holds:
        assert holds.take(first)
    assert prune([layers, bases, tmp_path / "absent"], 300) == []
    assert prune([layers, bases], 299) == [second]
    assert names(layers) == ["first", "first.lock"]
    assert prune([layers, bases], 0) == [third, first]
    assert names(layers) == names(bases) == []


def test_what_is_in_use_stays_whatever_the_bound(tmp_path: Path) -> None:
    place = entry(tmp_path, "used")
    with Holds() as one, Holds() as other:
        assert one.take(place) and other.take(place)
        assert prune([tmp_path], 0) == []
        one.release()
        assert prune([tmp_path], 0) == []
    assert prune([tmp_path], 0) == [place]
    assert not Holds().take(place)


def test_a_killed_process_uses_nothing(tmp_path: Path) -> None:
    place = entry(tmp_path, "used")
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(place)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"held\n"
        assert prune([tmp_path], 0) == []
        process.kill()
    assert prune([tmp_path], 0) == [place]


def test_what_a_pruning_left_half_removed_goes_with_the_next(tmp_path: Path) -> None:
    kept = entry(tmp_path, "kept")
    (tmp_path / ".gone-old" / "deep").mkdir(parents=True)
    assert prune([tmp_path], 1000) == []
    assert names(tmp_path) == [kept.name, "kept.lock"]


def test_an_entry_that_states_no_size_is_measured(tmp_path: Path) -> None:
    place = entry(tmp_path, "old")
    (place / SIZE).unlink()
    (place / "data").write_bytes(b"x" * 1_000_000)
    assert prune([tmp_path], 2_000_000) == []
    assert prune([tmp_path], 500_000) == [place]


@pytest.mark.anyio
@pytest.mark.sandbox
async def test_a_new_layer_pushes_old_ones_out_but_none_below_a_sandbox(tmp_path: Path) -> None:
    state = tmp_path / "state"

    async def started(name: str) -> LocalSandboxEnvironment:
        folder = tmp_path / name
        (folder / "environment").mkdir(parents=True)
        content = f"FROM debian:bookworm\nRUN head -c 800000 /dev/zero > /{name}\n"
        (folder / "environment" / "Dockerfile").write_text(content)
        made = environment(folder, state, options={"max_cache_mb": 1})
        await made.start(force_build=False)
        return made

    def kept() -> int:
        return sum(path.is_dir() for path in (state / "layers").iterdir())

    first, second = await started("one"), await started("two")
    assert kept() == 2
    assert (await first.exec("test -s /one")).return_code == 0
    await first.stop(delete=True)
    await second.stop(delete=True)
    third = await started("three")
    assert kept() == 1
    assert (await third.exec("test -s /three")).return_code == 0
    await third.stop(delete=True)
