"""Orders follow from seed and number alone, so a resumed run needs no other cursor."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.learning.order import cycled, in_turn, permutation

NAMES = ["a", "b", "c", "d", "e"]
SEEDS = st.integers(0, 2**31)


def same(name: str) -> str:
    return name


@given(SEEDS, st.integers(0, 1000))
def test_an_epoch_is_a_permutation(seed: int, epoch: int) -> None:
    assert sorted(permutation(NAMES, same, seed=seed, epoch=epoch)) == NAMES


def test_seeds_and_epochs_give_other_orders_and_always_the_same_ones() -> None:
    orders = {tuple(permutation(NAMES, same, seed=s, epoch=e)) for s in range(4) for e in range(4)}
    assert len(orders) > 8
    assert permutation(NAMES, same, seed=0, epoch=0) == ["e", "d", "c", "a", "b"]


@given(SEEDS, st.integers(1, 12), st.integers(1, 12))
def test_batches_cycle_through_all_items_evenly(seed: int, size: int, batches: int) -> None:
    row = [n for b in range(batches) for n in cycled(NAMES, same, seed=seed, batch=b, size=size)]
    assert len(row) == size * batches
    for start in range(0, len(row) - len(NAMES) + 1, len(NAMES)):
        assert sorted(row[start : start + len(NAMES)]) == NAMES


def test_the_datasets_own_order_is_kept_across_batches() -> None:
    assert in_turn(NAMES, batch=0, size=2) == ["a", "b"]
    assert in_turn(NAMES, batch=2, size=2) == ["e", "a"]
    assert in_turn(NAMES, batch=0, size=7) == [*NAMES, "a", "b"]
