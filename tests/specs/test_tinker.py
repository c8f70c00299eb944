"""Models of a training service: named apart from local ones, known by the service's name."""

from typing import Any

import pytest
from pydantic import BaseModel

from specs.tinker import HOUR, TinkerModel, TinkerSettings
from tests.specs.contracts import lets, refused

MODEL: dict[str, Any] = {"name": "qwen", "model": "Qwen/Qwen3-8B", "context_tokens": 4096}
TEN_YEARS = 3650 * 24 * 60 * 60


def test_a_model_is_known_by_the_services_name_and_called_by_ours() -> None:
    ours = TinkerModel(name="qwen", model="Qwen/Qwen3-8B", context_tokens=4096)
    renamed = ours.model_copy(update={"name": "other", "context_tokens": 8192})
    larger = ours.model_copy(update={"model": "Qwen/Qwen3-32B"})
    assert (ours.full_name, renamed.full_name) == ("tinker/qwen", "tinker/other")
    assert ours.digest == renamed.digest != larger.digest


def test_what_is_left_out_is_the_services_own() -> None:
    model = TinkerModel.model_validate(MODEL)
    assert (model.tokenizer, model.family, model.trains) == ("qwen3", None, True)
    settings = TinkerSettings()
    assert (settings.base_url, settings.key_env) == (None, "TINKER_API_KEY")
    assert (settings.stuck_sec, settings.keep_sec, settings.models) == (1800, None, ())


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (TinkerModel, "name", ["q", "q" * 64, "qwen3.5-8b_x"], ["", "q" * 65, "Qwen", "-q", "a/b"]),
        (TinkerModel, "model", ["m", "m" * 256], ["", "m" * 257]),
        (TinkerModel, "context_tokens", [2], [1]),
        (TinkerModel, "family", ["qwen3", None], ["llama"]),
        (TinkerSettings, "base_url", ["http://a", "https://a:1/b", None],
         ["ftp://a", "a", "https://", "https://key@a", "https://a b"]),
        (TinkerSettings, "key_env", ["K", "MY_KEY2"], ["", "key", "PRACTICUM_KEY", "PYTHONX"]),
        (TinkerSettings, "stuck_sec", [0.1], [0, -1]),
        (TinkerSettings, "keep_sec", [None, HOUR, TEN_YEARS], [HOUR - 1, TEN_YEARS + 1]),
    ],
)  # fmt: skip
def test_a_setting_that_the_service_would_refuse_is_refused_here(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []


def test_weights_are_kept_an_hour_at_least() -> None:
    assert TinkerSettings(keep_sec=60 * 60).keep_sec == 3600
    words = refused(TinkerSettings, {"keep_sec": 60})
    assert "between one hour and ten years" in words


def test_two_models_of_one_name_are_refused() -> None:
    models = [MODEL, MODEL | {"name": "other"}]
    assert len(TinkerSettings.model_validate({"models": models}).models) == 2
    assert "one name" in refused(TinkerSettings, {"models": [*models, MODEL]})
