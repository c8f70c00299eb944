"""Models: what a backend does with a family, and under which name its renderer is recorded."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from specs.model import RENDERERS, SERVES, TRAINS, Backend, FamilyName, ModelInfo, Optimizer
from tests.specs.contracts import DIGEST, lets

MODEL: dict[str, Any] = {
    "name": "m",
    "backend": "torch",
    "digest": DIGEST,
    "tokenizer_digest": DIGEST,
    "family": "chatml",
    "context_tokens": 8,
    "stop_tokens": [2],
    "trainable": True,
    "parameters": 1,
    "present": True,
}
RECORDED = {
    "chatml/1",
    "qwen3/1",
    "qwen3-coder/2",
    "qwen3.5/2",
    "deepseek-v3.1/1",
    "deepseek-v4/1",
    "kimi-k2/1",
    "glm/1",
    "gpt-oss/1",
}
"""As samplers name them whose prompts are still to be read."""


def model(**values: Any) -> ModelInfo:
    return ModelInfo.model_validate(MODEL | values)


def test_every_family_has_a_renderer_under_the_name_that_samplers_recorded() -> None:
    assert set(RENDERERS) == set(get_args(FamilyName.__value__))
    assert {model(family=family).renderer for family in RENDERERS} == RECORDED


def test_every_backend_says_what_it_serves_and_trains_no_other_family() -> None:
    backends = set(get_args(Backend.__value__))
    assert set(SERVES) == set(TRAINS) == backends
    assert all(TRAINS[backend] <= SERVES[backend] for backend in SERVES)


@pytest.mark.parametrize(
    ("values", "serves", "why"),
    [
        ({}, True, None),
        ({"family": "qwen3"}, False, "the backend torch does not train the family qwen3"),
        ({"trainable": False}, True, "the backend torch only serves it"),
        ({"backend": "tinker", "family": "qwen3"}, True, None),
        ({"backend": "tinker", "trainable": False}, True, "the backend tinker only serves it"),
        ({"backend": "scripted"}, True, "it plays a scenario and has no weights"),
        ({"backend": "scripted", "family": "glm"}, True, "it plays a scenario and has no weights"),
        ({"backend": "upstream"}, True,
         "an upstream serves it, in text: it has no tokens and no weights here"),
    ],
)  # fmt: skip
def test_a_model_is_trained_or_it_is_said_why_not(
    values: dict[str, Any], serves: bool, why: str | None
) -> None:
    found = model(**values)
    assert (found.serves, found.why_not_trained) == (serves, why)
    assert found.tokenizer == "file"


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (Optimizer, "beta1", [0, 0.999], [-0.1, 1]),
        (Optimizer, "beta2", [0, 0.999], [-0.1, 1]),
        (Optimizer, "eps", [1e-30, 1], [0, 1.1]),
        (Optimizer, "weight_decay", [0, 1], [-0.1, 1.1]),
    ],
)
def test_an_optimizer_converges_within_its_bounds(
    contract: type[BaseModel], field: str, good: list[float], bad: list[float]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []
