"""Every contract is frozen, closed and finite, and is written as it is read."""

import importlib
import math
import pkgutil
from collections.abc import Iterator

import pytest
from pydantic import Field, ValidationError

import specs
from specs.base import Contract
from specs.operator_api import Resolve
from specs.plans import Budget


def _contracts(kind: type[Contract]) -> Iterator[type[Contract]]:
    for below in kind.__subclasses__():
        if below.__module__.startswith("specs."):
            yield below
            yield from _contracts(below)


def every_contract() -> list[type[Contract]]:
    for module in pkgutil.iter_modules(specs.__path__):
        importlib.import_module(f"specs.{module.name}")
    return sorted(set(_contracts(Contract)), key=lambda kind: (kind.__module__, kind.__name__))


@pytest.mark.parametrize("kind", every_contract(), ids=lambda kind: kind.__name__)
def test_a_contract_takes_no_unknown_key_and_is_never_changed(kind: type[Contract]) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate({"no-such-key": 1})
    assert "extra_forbidden" in {problem["type"] for problem in refused.value.errors()}
    value = kind.model_construct()
    with pytest.raises(ValidationError) as fixed:
        setattr(value, next(iter(kind.model_fields)), None)
    assert fixed.value.errors()[0]["type"] == "frozen_instance"


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_is_finite(number: float) -> None:
    with pytest.raises(ValidationError, match="finite number"):
        Budget(max_sec=number)


def test_a_name_that_python_reserves_is_read_either_way_and_written_as_in_json() -> None:
    by_name, by_alias = (Resolve.model_validate({name: "applied"}) for name in ("as_", "as"))
    assert by_name == by_alias
    assert by_name.model_dump() == {"as": "applied"}


class _Late(Contract):
    number: int = Field(default=-1, ge=0)


def test_a_contract_is_built_when_it_is_used_and_its_defaults_are_checked() -> None:
    assert not _Late.__pydantic_complete__
    with pytest.raises(ValidationError, match="greater than or equal"):
        _Late()
