"""Splits: the same for the same seed, whole, disjoint, and without a family on both sides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.canonical import digest_bytes
from specs.dataset import TaskEntry
from specs.errors import InvalidInput
from tests.runtime.gateway import stage
from tests.runtime.learning.live import Live
from tests.tools.ground import ask
from tools.dataset import DatasetView
from tools.split import SplitView, held_out

pytestmark = pytest.mark.anyio
DIGEST = digest_bytes(b"")


def entries(families: list[int]) -> list[TaskEntry]:
    return [
        TaskEntry(name=f"a/t{n}", digest=DIGEST, size=1, metadata={"family": f"f{family}"})
        for n, family in enumerate(families)
    ]


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=40),
    st.floats(0.01, 0.99),
    st.integers(0, 5),
    st.randoms(),
)
def test_a_split_is_proportional_and_independent_of_order(
    families: list[int], share: float, seed: int, random: object
) -> None:
    tasks = entries(families)
    held = held_out(tasks, share, seed, whole=False)
    assert held == held_out(tasks[::-1], share, seed, whole=False)
    assert len(held) == min(max(1, round(share * len(tasks))), len(tasks) - 1)
    for family in set(families):
        members = {t.name for t, f in zip(tasks, families, strict=True) if f == family}
        exact = len(held) * len(members) / len(tasks)
        assert abs(len(held & members) - exact) < 1 + 1e-9


@given(st.lists(st.integers(0, 6), min_size=2, max_size=40), st.floats(0.01, 0.99))
def test_whole_families_stand_on_one_side(families: list[int], share: float) -> None:
    tasks = entries(families)
    if len(set(families)) < 2:
        with pytest.raises(InvalidInput):
            held_out(tasks, share, 0, whole=True)
        return
    held = held_out(tasks, share, 0, whole=True)
    sides = {(f, t.name in held) for t, f in zip(tasks, families, strict=True)}
    assert len(sides) == len(set(families))
    assert {side for _, side in sides} == {True, False}


def test_another_seed_is_another_split() -> None:
    tasks = entries([0] * 40)
    assert len({frozenset(held_out(tasks, 0.5, seed, whole=False)) for seed in range(8)}) == 8


async def test_both_parts_are_published_under_their_names(live: Live) -> None:
    wanted = {"dataset": stage.DATASET, "whole_families": True}
    names = {"train_as": "acme/train@v1", "held_out_as": "acme/held@v1"}
    drawn, _ = await ask(live, "dataset split", SplitView, **wanted)
    made, text = await ask(live, "dataset split", SplitView, **wanted, **names)
    again, _ = await ask(live, "dataset split", SplitView, **wanted, **names)
    assert made == again
    assert "acme/train@v1" in text
    assert not set(made.train.families) & set(made.held_out.families)
    for side, before in ((made.train, drawn.train), (made.held_out, drawn.held_out)):
        assert side.published is not None and side.digest == before.digest
        shown, _ = await ask(live, "dataset show", DatasetView, dataset=side.published.reference)
        assert before.tasks == {"names": [task.name for task in shown.tasks]}
        assert (shown.digest, shown.count) == (side.published.digest, side.count)
