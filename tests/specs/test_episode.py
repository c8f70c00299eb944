"""Episodes: a promise for every check, and what an author leaves open."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from specs.episode import (
    PROMISES,
    CheckId,
    Episode,
    EpisodeBudget,
    EpisodeCheck,
    EpisodeOutcome,
    EpisodeReport,
)
from tests.specs.contracts import lets


def test_every_check_has_a_promise() -> None:
    assert set(PROMISES) == set(get_args(CheckId.__value__))
    assert len(set(PROMISES.values())) == len(PROMISES)


def test_what_an_author_leaves_open_is_the_gateways_own_rules() -> None:
    episode = Episode.model_validate(
        {
            "name": "a/e",
            "held_out": "a/d@v1",
            "attempts": 1,
            "baseline": "tiny",
            "budget": {"trial_slots": 0, "updates": 0},
        }
    )
    assert (episode.approvers, episode.reviewer) == (("policy",), None)
    assert set(episode.journal) == {"decision", "change", "comparison"}
    budget = episode.budget
    assert (budget.rows, budget.tokens, budget.seconds) == (None, None, None)
    assert EpisodeCheck(id="data", ok=True, promise="p").causes == ()


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Episode, "attempts", [1], [0]),
        (Episode, "baseline", ["m", "m" * 128], ["", "m" * 129]),
        (Episode, "reviewer", ["r" * 128, None], ["r" * 129]),
        (EpisodeBudget, "trial_slots", [0], [-1]),
        (EpisodeBudget, "updates", [0], [-1]),
        (EpisodeBudget, "rows", [0, None], [-1]),
        (EpisodeBudget, "tokens", [0, None], [-1]),
        (EpisodeBudget, "seconds", [0, None], [-0.1]),
        (EpisodeOutcome, "journal", ["j", "j" * 1024], ["", "j" * 1025, "a\x00"]),
        (EpisodeReport, "reward", [0, 1], [2, -1, 0.5]),
    ],
)
def test_an_amount_has_its_bound(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []
