"""Where two JSON documents differ, as pointers with both values."""

from pydantic import JsonValue

from specs.comparison import Difference

__all__ = ["Difference", "differences"]


def differences(left: JsonValue, right: JsonValue, pointer: str = "") -> list[Difference]:
    """Every innermost place that differs, in order of the keys."""
    if isinstance(left, dict) and isinstance(right, dict):
        found: list[Difference] = []
        for key in sorted(left.keys() | right.keys()):
            place = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
            found += differences(left.get(key), right.get(key), place)
        return found
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            difference
            for index, (one, other) in enumerate(zip(left, right, strict=True))
            for difference in differences(one, other, f"{pointer}/{index}")
        ]
    if left == right and type(left) is type(right):
        return []
    return [Difference(pointer=pointer or "/", left=left, right=right)]
