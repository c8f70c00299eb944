"""Upstreams: a model of somebody else, its key named and never held."""

from typing import Any

import pytest

from specs.upstream import Upstream
from tests.specs.contracts import lets, refused

JUDGE: dict[str, Any] = {
    "name": "judge",
    "kind": "openai",
    "base_url": "https://a/v1",
    "model": "large",
    "context_tokens": 1,
}


def test_an_upstream_is_named_apart_from_local_models() -> None:
    judge = Upstream.model_validate(JUDGE)
    assert judge.full_name == "upstream/judge"
    assert (judge.key_env, judge.counts_as) == (None, "qwen3")


def test_whatever_decides_who_answers_is_in_the_digest() -> None:
    digest = Upstream.model_validate(JUDGE).digest
    assert digest == Upstream.model_validate(JUDGE).digest
    for change in ({"base_url": "https://b/v1"}, {"model": "small"}, {"kind": "anthropic"}):
        assert Upstream.model_validate(JUDGE | change).digest != digest


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("name", ["j", "j" * 64, "a.b_c-1"], ["", "j" * 65, "J", ".j", "a/b"]),
        ("kind", ["openai", "anthropic"], ["google"]),
        (
            "base_url",
            ["http://a", "https://a/v1"],
            ["a", "https://", "https://key@a", "http://a b"],
        ),
        ("model", ["m", "m" * 256], ["", "m" * 257]),
        ("key_env", ["K", "A_1", None], ["", "k", "1A", "A-B"]),
        ("context_tokens", [1], [0]),
    ],
)
def test_a_field_has_its_form(field: str, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not lets(Upstream, field, value)] == []
    assert [value for value in bad if lets(Upstream, field, value)] == []


@pytest.mark.parametrize("name", ["PRACTICUM_KEY", "PYTHONPATH"])
def test_a_variable_that_reaches_every_process_holds_no_key(name: str) -> None:
    assert "reach every process" in refused(Upstream, JUDGE | {"key_env": name})
    assert lets(Upstream, "key_env", f"MY_{name}")
