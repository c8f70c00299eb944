"""Model specifications: what each part may be, and what excludes what."""

from typing import Any

import pytest
from pydantic import BaseModel

from specs.model_spec import Answer, Criterion, ModelSpec, Resource, Tool, Withheld
from tests.specs.contracts import DIGEST, NOTHING, lets, refused

SPEC: dict[str, Any] = {
    "name": "a/s",
    "behaviour": "answer",
    "instructions": "Be brief.",
    "deployment": {"model": "tiny", "engine": {"name": "command", "version": "1"}},
    "useful": [{"name": "right", "statement": "it is right"}],
}
DOCUMENT: dict[str, Any] = {"path": "handbook", "kind": "document"}
GIVEN: dict[str, Any] = {"path": "data/", "kind": "given"}


@pytest.mark.parametrize(
    "values",
    [
        {"path": "a", "content": ""},
        {"path": "a", "content": "x", "digest": DIGEST, "size": 1},
        {"path": "a", "source": "b"},
        DOCUMENT | {"source": "b"},
        DOCUMENT | {"digest": DIGEST, "size": 0},
        DOCUMENT | {"source": "b", "digest": DIGEST},
        GIVEN,
        GIVEN | {"path": "data"},
    ],
)
def test_a_resource_says_where_it_comes_from(values: dict[str, Any]) -> None:
    assert Resource.model_validate(values).path == values["path"]


FILE = "a file needs either content or source"
NEVER = "a document needs a source or a digest, and never content"
TASK = "what a task supplies has no content"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"path": "a"}, FILE),
        ({"path": "a", "digest": DIGEST}, FILE),
        ({"path": "a", "content": "x", "source": "b"}, FILE),
        (DOCUMENT, NEVER),
        (DOCUMENT | {"content": "x"}, NEVER),
        (DOCUMENT | {"content": "", "digest": DIGEST}, NEVER),
        (GIVEN | {"content": ""}, TASK),
        (GIVEN | {"source": "b"}, TASK),
        (GIVEN | {"digest": DIGEST}, TASK),
        (GIVEN | {"size": 0}, TASK),
        ({"path": "a/", "content": "x"}, "only a given path may end in '/'"),
        (DOCUMENT | {"path": "a/", "source": "b"}, "only a given path may end in '/'"),
        ({"path": "../a", "content": "x"}, "unsafe path"),
        (GIVEN | {"path": "a/../../b"}, "unsafe path"),
    ],
)
def test_any_other_resource_is_refused_by_its_kind(values: dict[str, Any], words: str) -> None:
    assert words in refused(Resource, values)


def test_what_is_withheld_has_one_origin_or_none() -> None:
    for origin in ({}, {"content": "x"}, {"source": "b"}):
        assert Withheld.model_validate({"name": "key"} | origin).name == "key"
    both = {"name": "key", "content": "", "source": "b"}
    assert "either content or source" in refused(Withheld, both)


@pytest.mark.parametrize("pattern", [None, "a", r"\d+(?:\.\d+)?"])
def test_a_pattern_is_a_regular_expression(pattern: str | None) -> None:
    assert Answer(pattern=pattern).pattern == pattern


@pytest.mark.parametrize("pattern", ["(", "[a", "*"])
def test_what_is_none_is_refused(pattern: str) -> None:
    assert "not a regular expression" in refused(Answer, {"pattern": pattern})


TWICE: dict[str, list[dict[str, Any]]] = {
    "tools": [{"name": "one"}, {"name": "two"}],
    "resources": [{"path": "one", "content": ""}, {"path": "two", "content": ""}],
    "withheld": [{"name": "one"}, {"name": "two"}],
    "useful": [{"name": "one", "statement": "s"}, {"name": "two", "statement": "s"}],
}


@pytest.mark.parametrize("part", TWICE)
def test_each_part_names_a_thing_once(part: str) -> None:
    rows = TWICE[part]
    assert len(getattr(ModelSpec.model_validate(SPEC | {part: rows}), part)) == 2
    words = refused(ModelSpec, SPEC | {part: [*rows, rows[1]]})
    assert f"{part} names 'two' twice" in words


@pytest.mark.parametrize("part", ["tools", "resources"])
def test_what_the_deployed_model_has_is_not_withheld(part: str) -> None:
    rows = TWICE[part]
    apart = SPEC | {part: rows, "withheld": [{"name": "three"}]}
    assert ModelSpec.model_validate(apart).withheld[0].name == "three"
    both = SPEC | {part: rows, "withheld": [{"name": "three"}, {"name": "two"}]}
    assert "'two' is withheld, and the deployed model has it" in refused(ModelSpec, both)


def test_tools_may_lie_in_a_file_beside_the_specification() -> None:
    spec = ModelSpec.model_validate(
        SPEC | {"tools": {"source": "tools.json"}, "withheld": [{"name": "key"}]}
    )
    assert spec.tools != ()
    assert ModelSpec.model_validate(SPEC).tools == ()


def test_what_is_left_out_is_the_narrowest() -> None:
    spec = ModelSpec.model_validate(SPEC)
    assert (spec.deployment.network, spec.deployment.workdir) == ("none", "/app")
    assert (spec.output.turns, spec.output.programs) == ("last", None)
    assert spec.useful[0].assessed_by == "verifier"


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Tool, "name", ["t", "T.a:b_-" * 18], ["", "a b", "t" * 129]),
        (Withheld, "name", ["key", "k" * 1024], ["ke", "k" * 1025]),
        (Criterion, "name", ["c", "c" * 64], ["", "C", "-c", "c" * 65]),
        (Answer, "pattern", ["a" * 4096], ["", "a" * 4097]),
        (Answer, "max_lines", [1, None], [0]),
        (Answer, "max_characters", [1, None], [0]),
        (Resource, "size", [0], [-1]),
        (ModelSpec, "useful", [SPEC["useful"]], [NOTHING]),
        (ModelSpec, "behaviour", ["b"], ["", "b" * 16385]),
    ],
)
def test_names_and_numbers_have_their_form(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []
