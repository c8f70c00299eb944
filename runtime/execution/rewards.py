"""Reading a reward file: a finite number, or the reason why there is none (invariant 4).

A number that no strict reader takes (`specs.canonical`: beyond 2^53) could not be recorded, so
it is no reward either.

The file is written in the sandbox by whatever ran there last, so it is opened without
following links or waiting on a pipe, and at most `MAX_REWARD_BYTES` of it are read.
"""

import math
import os
import re
import stat
from pathlib import Path
from typing import Any, cast

from runtime.execution.board import Verdict
from specs import canonical
from specs.assessment import NoReward
from specs.errors import PracticumError

MAX_REWARD_BYTES = 64 << 10
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def read_rewards(folder: Path) -> Verdict:
    """The verdict that a verifier left in `folder`: `reward.json`, else `reward.txt`."""
    for name, parse in (("reward.json", _parse_json), ("reward.txt", _parse_text)):
        try:
            data = _read(folder / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            return malformed(f"{name} cannot be read: {error.strerror or error}")
        if data is None:
            return malformed(f"{name} is not a regular file of at most {MAX_REWARD_BYTES} bytes")
        if not data.strip():
            return Verdict(reason=NoReward.REWARD_MISSING, detail=f"{name} is empty")
        try:
            return parse(data.decode("utf-8"))
        except (ValueError, PracticumError) as error:
            return malformed(f"{name}: {error}")
    return Verdict(
        reason=NoReward.REWARD_MISSING,
        detail="the verifier left neither reward.json nor reward.txt",
    )


def malformed(detail: str) -> Verdict:
    """No reward, because what stands for it is not one."""
    return Verdict(reason=NoReward.REWARD_MALFORMED, detail=detail[:1000])


def finite(value: float, name: str) -> float:
    """The number, if a record can hold it.

    Raises:
        ValueError: it is not finite, or too large; the message calls it `name`.
    """
    if not math.isfinite(value):
        raise ValueError(f"{name[:80]!r} is not finite")
    if not canonical.holds(value):
        raise ValueError(f"{name[:80]!r} is beyond 2^53")
    return value


def _read(path: Path) -> bytes | None:
    """At most the allowed bytes of a regular file; None if it is something else, or larger."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = os.read(descriptor, MAX_REWARD_BYTES + 1)
    finally:
        os.close(descriptor)
    return data if len(data) <= MAX_REWARD_BYTES else None


def _parse_text(text: str) -> Verdict:
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a finite number")
    value = finite(float(text), text)
    return Verdict(reward=value, rewards={"reward": value})


def _parse_json(text: str) -> Verdict:
    value: Any = canonical.loads(text, what="reward")
    if not isinstance(value, dict):
        value = {"reward": value}
    rewards = {name: _number(number, name) for name, number in cast(dict[str, Any], value).items()}
    if "reward" in rewards:
        return Verdict(reward=rewards["reward"], rewards=rewards)
    if len(rewards) == 1:
        return Verdict(reward=next(iter(rewards.values())), rewards=rewards)
    raise ValueError(
        "an object of rewards needs the key 'reward', or exactly one key; it has "
        + (", ".join(sorted(rewards))[:200] or "none")
    )


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name[:80]!r} is {type(value).__name__}, not a number")
    try:
        return finite(float(value), name)
    except OverflowError:
        raise ValueError(f"{name[:80]!r} is too large") from None
