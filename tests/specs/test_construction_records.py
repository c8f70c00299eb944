"""Records of a construction: each names what it speaks of."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from specs.construction_records import (
    RECORDS,
    ApprovalRules,
    Bulk,
    Construction,
    ConstructionRevision,
    Outcome,
    Probe,
    RecordRequest,
    Review,
    RowsFile,
    Spend,
    Training,
)
from specs.ids import Prefix, new_id
from tests.specs.contracts import DIGEST, NOTHING, RUN, lets, refused

ROWS = {"name": "rows.jsonl", "digest": DIGEST, "rows": 1}
CHECKPOINT, COMPARISON = new_id(Prefix.CHECKPOINT), new_id(Prefix.COMPARISON)
REVIEW: dict[str, Any] = {"subject": DIGEST, "reviewer": "ada", "relevant": True}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (Probe, "runs", [RUN]),
        (Probe, "files", [ROWS]),
        (Bulk, "runs", [RUN]),
        (Bulk, "files", [ROWS]),
        (Bulk, "datasets", ["a/d@v1"]),
    ],
)
def test_a_probe_and_bulk_data_name_something(
    kind: type[Probe | Bulk], field: str, value: list[Any]
) -> None:
    found = kind.model_validate({field: value})
    assert len(getattr(found, field)) == 1
    assert (found.tokens, found.seconds, found.note) == (0, 0.0, "")
    assert "names" in refused(kind, {"tokens": 1})


def coverage(*verdicts: str) -> Review:
    rows = [{"query": f"q{n}", "verdict": verdict} for n, verdict in enumerate(verdicts)]
    return Review.model_validate(REVIEW | {"coverage": rows})


@pytest.mark.parametrize(
    ("verdicts", "complete"),
    [
        ((), True),
        (("covered",), True),
        (("covered", "covered"), True),
        (("partial",), False),
        (("missing",), False),
        (("covered", "missing"), False),
        (("partial", "covered"), False),
    ],
)
def test_a_review_is_complete_where_every_query_is_covered(
    verdicts: tuple[str, ...], complete: bool
) -> None:
    assert coverage(*verdicts).complete is complete


GOOD: list[dict[str, Any]] = [
    {"result": "checkpoint", "checkpoint": CHECKPOINT, "comparison": COMPARISON},
    {"result": "profile", "profile": "a/p@v1", "comparison": COMPARISON},
    {"result": "baseline", "note": "nothing was better"},
    {"result": "baseline", "note": "nothing was better", "comparison": COMPARISON},
]


@pytest.mark.parametrize("values", GOOD)
def test_an_outcome_names_its_result(values: dict[str, Any]) -> None:
    assert Outcome.model_validate(values).result == values["result"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"result": "checkpoint", "comparison": COMPARISON}, "checkpoint needs a checkpoint"),
        (GOOD[0] | {"profile": "a/p@v1"}, "checkpoint has no profile"),
        ({"result": "profile", "comparison": COMPARISON}, "profile needs a profile"),
        (GOOD[1] | {"checkpoint": CHECKPOINT}, "profile has no checkpoint"),
        (GOOD[2] | {"checkpoint": CHECKPOINT}, "baseline has no checkpoint"),
        (GOOD[2] | {"profile": "a/p@v1"}, "baseline has no profile"),
        ({"result": "baseline"}, "say in the note why the baseline stays"),
        (GOOD[0] | {"comparison": None}, "a checkpoint is compared with the baseline"),
        (GOOD[1] | {"comparison": None}, "a profile is compared with the baseline"),
    ],
)
def test_any_other_outcome_is_refused_by_what_is_wrong_with_it(
    values: dict[str, Any], words: str
) -> None:
    assert words in refused(Outcome, values)


@pytest.mark.parametrize(("kind", "record"), sorted(RECORDS.items()))
def test_a_record_is_read_by_its_kind(kind: str, record: type[BaseModel]) -> None:
    assert get_args(record.model_fields["kind"].annotation) == (kind,)
    words = refused(RecordRequest, {"record": {"kind": kind, "no-such-key": 1}})
    assert "Extra inputs" in words


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (RowsFile, "rows", [1], [0]),
        (Probe, "tokens", [0], [-1]),
        (Probe, "seconds", [0], [-0.1]),
        (Bulk, "tokens", [0], [-1]),
        (Bulk, "seconds", [0], [-0.1]),
        (Probe, "note", ["", "n" * 20_000], ["n" * 20_001]),
        (Training, "runs", [[RUN]], [NOTHING]),
        (ConstructionRevision, "replaces", [1], [0]),
        (ApprovalRules, "max_trial_slots", [0], [-1]),
        (ApprovalRules, "max_probe_rows", [0], [-1]),
        (ApprovalRules, "max_tokens", [0, None], [-1]),
    ],
)
def test_an_amount_has_its_bound(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []


def test_nothing_is_spent_before_something_was() -> None:
    spend = Spend()
    assert (spend.trial_slots, spend.updates, spend.rows, spend.tokens, spend.seconds) == (0,) * 5
    assert "steps" in Construction.model_fields
