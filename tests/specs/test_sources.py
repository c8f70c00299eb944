"""Which recorded trials a source selects, and which of the two sources a plan names."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from specs.ids import Prefix, new_id
from specs.sources import FileSource, RunSource, Source, Validation
from tests.specs.contracts import lets

RUN = new_id(Prefix.RUN)
ANY: TypeAdapter[Any] = TypeAdapter(Source)


@pytest.mark.parametrize(
    ("select", "accepted"),
    [
        ("reward >= 1", [1.0, 2.0]),
        ("reward <= 1", [-1.0, 0.0, 1.0]),
        ("reward == 1", [1.0]),
        ("reward > 1", [2.0]),
        ("reward < 1", [-1.0, 0.0]),
        ("reward > -0.5", [0.0, 1.0, 2.0]),
        ("  reward>=1.5 ", [2.0]),
    ],
)
def test_a_condition_selects_what_it_says(select: str, accepted: list[float]) -> None:
    source = RunSource(run=RUN, select=select)
    assert [reward for reward in (-1.0, 0.0, 1.0, 2.0) if source.accepts(reward)] == accepted


@pytest.mark.parametrize(
    "select", ["", "reward", "reward => 1", "score >= 1", "reward >= one", "reward >= 1 x"]
)
def test_any_other_condition_is_refused(select: str) -> None:
    with pytest.raises(ValidationError, match="write it as"):
        RunSource(run=RUN, select=select)


def test_a_run_is_learnt_from_where_it_succeeded_unless_more_is_said() -> None:
    source = RunSource(run=RUN)
    assert [source.accepts(reward) for reward in (0.0, 0.99, 1.0)] == [False, False, True]


def test_the_keys_say_which_source_is_meant() -> None:
    file = FileSource(file="rows.jsonl")
    run = RunSource(run=RUN)
    for source in (file, run):
        assert ANY.validate_python(source) is source
        assert ANY.validate_json(source.model_dump_json(exclude_unset=True)) == source
    with pytest.raises(ValidationError) as refused:
        ANY.validate_python({"file": "", "run": RUN})
    assert {problem["loc"][0] for problem in refused.value.errors()} == {"file"}
    with pytest.raises(ValidationError) as refused:
        ANY.validate_python({"select": "reward >= 1"})
    assert refused.value.errors()[0]["loc"] == ("run", "run")


def test_a_file_is_trained_on_whole_unless_more_is_said() -> None:
    file = FileSource(file="rows.jsonl")
    assert (file.train_on, file.overlong) == ("all_assistant", "refuse")
    assert (file.digest, file.size, file.rows) == (None, None, None)


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("file", ["a", "a" * 1024], ["", "a" * 1025]),
        ("size", [1, 1 << 28, None], [0, (1 << 28) + 1]),
        ("rows", [1, 10**6, None], [0, 10**6 + 1]),
        ("every_examples", [1], [0]),
    ],
)
def test_a_file_has_rows_and_bounds(field: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not lets(Validation, field, value)] == []
    assert [value for value in bad if lets(Validation, field, value)] == []
