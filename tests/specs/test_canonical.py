"""Canonical bytes, digests and the strict reader."""

import json
import pickle
import string
from typing import Annotated, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, JsonValue

from specs import canonical
from specs.errors import ErrorCode, InvalidInput, PracticumError, Problem
from specs.plans import TrainingPlan, parse_plan
from specs.profile import Profile

_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2**53) + 1, 2**53 - 1)
    | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_canonical_bytes_do_not_depend_on_key_order_or_spelling(value: object) -> None:
    shuffled = json.loads(json.dumps(value, indent=3), object_pairs_hook=_reversed)
    assert canonical.canonical_bytes(value) == canonical.canonical_bytes(shuffled)  # type: ignore[arg-type]


def _reversed(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


@given(_json)
def test_the_strict_reader_accepts_all_json_that_has_a_canonical_form(value: object) -> None:
    data = canonical.canonical_bytes(value)  # type: ignore[arg-type]
    assert canonical.canonical_bytes(canonical.loads(data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a":NaN}',
        b"[Infinity]",
        b"1e999",
        b"\xef\xbb\xbf{}",
        b'"\\ud800"',
        b'"\\u0000"',
        b'{"\\udfff":1}',
        b"9007199254740993",
        b"[" * 100_000,
        b"\xff\xfe",
        b"{",
        b"",
    ],
)
def test_what_has_no_canonical_form_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        canonical.loads(data, what="profile")
    assert caught.value.problem.code is ErrorCode.INVALID_JSON
    assert caught.value.problem.object is not None
    assert caught.value.problem.object.type == "profile"


def test_an_unset_field_is_not_written_and_a_set_default_is() -> None:
    unset = parse_plan({"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 2}})
    chosen = parse_plan(
        {"num_batches": 1, "batch": {"tasks": 1, "trials_per_task": 2}, "learning_rate": 1e-4}
    )
    assert isinstance(unset, TrainingPlan)
    assert isinstance(chosen, TrainingPlan)
    assert unset.learning_rate == chosen.learning_rate
    assert canonical.document(unset) == {
        "kind": "training",
        "num_batches": 1,
        "batch": {"tasks": 1, "trials_per_task": 2},
    }
    assert canonical.digest(unset) != canonical.digest(chosen)


def test_a_document_always_names_its_schema() -> None:
    profile = canonical.read(
        Profile,
        b'{"name":"a/b","agent":{"model":"tiny","engine":{"name":"command","version":"1"},'
        b'"args":["true"]}}',
        what="profile",
    )
    assert canonical.document(profile)["schema"] == "practicum.profile/v1"


def test_an_unknown_key_is_named_with_its_pointer() -> None:
    with pytest.raises(InvalidInput) as caught:
        canonical.read(Profile, b'{"name":"a/b","agent":{"modle":"tiny"}}', what="profile")
    problem = caught.value.problem
    assert problem.code is ErrorCode.INVALID_DOCUMENT
    assert problem.object is not None
    assert problem.object.pointer is not None
    assert problem.object.pointer.startswith("/agent/")


@given(st.sampled_from(list(ErrorCode)), st.sampled_from([404, 403, 409, 422, 503, 500]), _text)
def test_an_error_survives_the_wire_and_pickling(code: ErrorCode, status: int, text: str) -> None:
    problem = Problem(title="t", status=status, detail=text, code=code, next="do it")
    error = PracticumError.from_problem(problem)
    assert pickle.loads(pickle.dumps(error)).problem == problem
    assert type(error).status == status
    assert str(error) == text


def test_strict_reading_does_not_coerce_types() -> None:
    for batch in ({"tasks": "1", "trials_per_task": 2}, {"tasks": True, "trials_per_task": 2}):
        with pytest.raises(InvalidInput):
            parse_plan({"num_batches": 1, "batch": batch})  # type: ignore[dict-item]


def test_digests_name_their_algorithm() -> None:
    value = canonical.digest({"a": 1})
    assert value.startswith("sha256:")
    assert set(value[7:]) <= set(string.hexdigits.lower())


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize(("within", "end"), [("[", "]"), ('{"a":', "}")])
def test_nesting_has_a_bound_that_lists_and_objects_share(
    opening: str, closing: str, within: str, end: str
) -> None:
    half = canonical.MAX_DEPTH // 2
    deepest = opening * half + within * half + "1" + end * half + closing * half
    assert json.loads(deepest) == canonical.loads(deepest, what="value")
    for deeper in (f"[{deepest}]", f'{{"a":{deepest}}}'):
        with pytest.raises(InvalidInput, match=r"nested deeper than \d+ at (/0|/a)+\b"):
            canonical.loads(deeper, what="value")


@pytest.mark.parametrize(
    "value", ["a\0b", {"a": ["\udc80"]}, {"\ud800": 1}, [float("nan")], {"a": 2**53}]
)
def test_a_value_of_another_parser_is_held_to_the_same_rules(value: object) -> None:
    canonical.check({"fine": ["ä", 1.5, None, True]}, what="arguments")
    with pytest.raises(InvalidInput) as refused:
        canonical.check(value, what="arguments")
    assert refused.value.problem.code is ErrorCode.INVALID_JSON


def test_the_place_of_a_bad_value_is_its_own_and_not_what_a_union_tried() -> None:
    class Part(BaseModel, extra="forbid"):
        text: Annotated[str, Field(min_length=1)] | list[int] | None = None

    class Given(BaseModel):
        plan: dict[str, JsonValue] | str = ""
        parts: list[Part | str] = []

    cases: list[tuple[dict[str, JsonValue], str]] = [
        ({"plan": []}, "/plan"),
        ({"parts": [{"text": ""}]}, "/parts/0/text"),
        ({"parts": ["fine", {"text": ["x"]}]}, "/parts/1/text"),
        ({"parts": [{"other/one": 1}]}, "/parts/0/other~1one"),
    ]
    for value, place in cases:
        with pytest.raises(InvalidInput) as refused:
            canonical.validate(Given, cast(JsonValue, value), what="arguments")
        assert refused.value.problem.object is not None
        assert refused.value.problem.object.pointer == place
