"""Invariant 4: a valid zero is a reward; everything that is not a finite number is a reason."""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.execution.rewards import MAX_REWARD_BYTES, read_rewards
from specs import canonical
from specs.assessment import NoReward

MISSING = NoReward.REWARD_MISSING
MALFORMED = NoReward.REWARD_MALFORMED


def read_text(folder: Path, text: str | bytes) -> tuple[float | None, NoReward | None]:
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "reward.txt").write_bytes(data)
    verdict = read_rewards(folder)
    return verdict.reward, verdict.reason


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("0", 0.0),
        ("1\n", 1.0),
        ("-0.5", -0.5),
        ("  .25 ", 0.25),
        ("1e-3", 0.001),
        ("+2.", 2.0),
        ("9007199254740991", 2.0**53 - 1),
    ],
)
def test_invariant_4_numbers_are_rewards(tmp_path: Path, text: str, reward: float) -> None:
    assert read_text(tmp_path, text) == (reward, None)


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_invariant_4_an_empty_file_is_missing(tmp_path: Path, text: str) -> None:
    assert read_text(tmp_path, text) == (None, MISSING)


@pytest.mark.parametrize(
    "text",
    [
        "nan",
        "inf",
        "-Infinity",
        "1e999",
        "1e16",
        "-9007199254740992",
        "passed",
        "[1]",
        "1 2",
        "0x1",
        "1_000",
        "True",
        b"\xff\xfe",
    ],
)
def test_invariant_4_what_is_no_finite_number_is_malformed(
    tmp_path: Path, text: str | bytes
) -> None:
    assert read_text(tmp_path, text) == (None, MALFORMED)


def test_invariant_4_no_file_is_missing(tmp_path: Path) -> None:
    assert read_rewards(tmp_path).reason == MISSING
    assert read_rewards(tmp_path / "gone").reason == MISSING


def test_a_huge_file_is_malformed_and_not_read(tmp_path: Path) -> None:
    with (tmp_path / "reward.txt").open("wb") as file:
        file.truncate(1 << 40)
    assert read_rewards(tmp_path).reason == MALFORMED
    assert read_text(tmp_path, "1" * (MAX_REWARD_BYTES + 1)) == (None, MALFORMED)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("1")
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "reward.txt").symlink_to(tmp_path / "elsewhere")
    assert read_rewards(tmp_path / "v").reason == MALFORMED


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "reward.txt")
    assert read_rewards(tmp_path).reason == MALFORMED


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        ({"reward": 1, "style": 0.5}, 1.0),
        ({"score": -2}, -2.0),
        (0.5, 0.5),
        ({"reward": 0}, 0.0),
    ],
)
def test_json_rewards(tmp_path: Path, value: object, reward: float) -> None:
    (tmp_path / "reward.txt").write_text("0.125")
    (tmp_path / "reward.json").write_text(json.dumps(value))
    verdict = read_rewards(tmp_path)
    assert (verdict.reward, verdict.reason) == (reward, None)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"a": 1, "b": 2}',
        '{"reward": true}',
        '{"reward": "1"}',
        '{"reward": null}',
        '{"reward": NaN}',
        '{"reward": {"x": 1}}',
        '{"reward": 1e999}',
        '{"reward": 1, "reward": 0}',
        '{"a\\u0000": 1}',
        '{"\\ud800": 1}',
        '{"reward": 1, "style": 1e16}',
        "[1]",
        "[" * 50_000,
        "1" * 5000,
        "{",
        '"1"',
    ],
)
def test_invariant_4_json_that_is_no_reward_is_malformed(tmp_path: Path, text: str) -> None:
    (tmp_path / "reward.json").write_text(text)
    verdict = read_rewards(tmp_path)
    assert (verdict.reward, verdict.reason) == (None, MALFORMED)
    assert verdict.detail


@given(data=st.binary(max_size=64))
def test_invariant_4_any_bytes_give_a_finite_reward_or_a_reason(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("reward")
    for name in ("reward.txt", "reward.json"):
        (folder / name).write_bytes(data)
        verdict = read_rewards(folder)
        assert (verdict.reward is None) != (verdict.reason is None)
        assert verdict.reward is None or math.isfinite(verdict.reward)
        canonical.check(dict(verdict.rewards), what="rewards")  # so that it can be recorded
