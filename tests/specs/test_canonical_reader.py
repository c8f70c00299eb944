"""The strict reader's bounds, and the one clear error that it makes of many."""

from typing import Any

import pytest
from pydantic import Field

from specs import canonical
from specs.base import Contract
from specs.canonical import MAX_SAFE_INTEGER
from specs.errors import ErrorCode, InvalidInput
from specs.plans import BatchShape, Selection

MOST = 2**53 - 1


def words(call: Any, *args: Any, **values: Any) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        call(*args, **values)
    return caught.value


@pytest.mark.parametrize("text", [f"{MOST}", f"-{MOST}", "1e15", "-0.0", "5e-324"])
def test_a_number_that_has_a_canonical_form_is_read(text: str) -> None:
    assert canonical.loads(text) == float(text)
    assert MAX_SAFE_INTEGER == 9007199254740991


@pytest.mark.parametrize("text", [f"{MOST + 1}", f"-{MOST + 1}", "1e16", "-1e16", "1e999"])
def test_a_number_beyond_is_refused_where_it_stands(text: str) -> None:
    assert "number beyond 2^53 at /" in str(words(canonical.loads, text))
    error = words(canonical.loads, f'{{"a/b": [0, {{"c~": {text}}}]}}')
    assert "number beyond 2^53 at /a~1b/1/c~0" in str(error)


def test_integers_of_any_size_are_read_where_they_are_kept_as_they_are() -> None:
    assert canonical.loads(f"[{2**80}]", big_integers=True) == [2**80]
    assert "number beyond" in str(words(canonical.loads, "1e30", big_integers=True))


@pytest.mark.parametrize("text", ['"\\u0000"', '{"a\\u0000": 1}', '[{"a": ["x\\u0000"]}]'])
def test_nul_is_read_where_a_terminal_wrote_it(text: str) -> None:
    assert "NUL character at /" in str(words(canonical.loads, text))
    assert canonical.loads(text, allow_nul=True) is not None


def test_an_error_names_what_was_read_and_where() -> None:
    error = words(canonical.loads, '{"a": ["\\ud800"]}', what="profile")
    assert str(error) == "The profile is not valid JSON: lone surrogate at /a/0"
    assert error.problem.code is ErrorCode.INVALID_JSON
    assert "duplicate key 'a'" in str(words(canonical.loads, '{"a": 1, "a": 1}'))
    assert "NaN is not a JSON number" in str(words(canonical.loads, "[NaN]"))
    assert error.problem.object is not None and error.problem.object.type == "profile"
    assert words(canonical.loads, "{").problem.object != error.problem.object


class _Wide(Contract):
    a: int
    b: dict[str, BatchShape] = Field(default_factory=dict[str, BatchShape])
    kind: str = "wide"


def test_one_problem_is_told_and_the_others_are_counted() -> None:
    one = words(canonical.validate, _Wide, {"a": "x"}, what="thing")
    assert str(one) == "The thing is invalid at /a: Input should be a valid integer."
    assert one.problem.next == "Correct /a and send it again."
    deep: Any = {"a": 1, "b": {"x/y~z": {"tasks": 0, "trials_per_task": 0}}}
    two = words(canonical.validate, _Wide, deep, what="thing")
    assert two.problem.object is not None
    assert two.problem.object.pointer == "/b/x~1y~0z/tasks"
    assert "(and 1 more)" in str(two)


def test_an_unknown_key_is_to_be_removed() -> None:
    error = words(canonical.validate, Selection, {"colour": 1}, what="plan")
    assert str(error) == "The plan is invalid at /colour: unknown key 'colour'."
    assert error.problem.next == "Remove the key, or correct its spelling."


def test_what_is_no_object_is_invalid_at_its_root() -> None:
    error = words(canonical.read, Selection, b"[]", what="plan")
    assert error.problem.object is not None and error.problem.object.pointer == "/"
    assert "The plan is invalid at /: " in str(error)
    assert error.problem.next == "Correct the document and send it again."


def test_a_document_always_names_its_kind_and_leaves_out_what_is_unset() -> None:
    assert canonical.document(_Wide(a=1)) == {"a": 1, "kind": "wide"}
    assert canonical.canonical_bytes(_Wide(a=1)) == b'{"a":1,"kind":"wide"}'
    assert canonical.document(Selection()) == {}


def test_a_digest_is_that_of_the_canonical_bytes() -> None:
    empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert canonical.digest({}) == canonical.digest_bytes(b"{}") == empty
    assert canonical.digest(Selection()) == empty
    assert canonical.digest_bytes(memoryview(b"{}")) == empty
