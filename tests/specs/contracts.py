"""What a contract says of one of its fields, whatever the others are."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from specs.ids import Prefix, new_id

RUN, TRIAL = new_id(Prefix.RUN), new_id(Prefix.TRIAL)
NOTHING: list[Any] = []
EMPTY: dict[str, Any] = {}
DIGEST, OTHER = "sha256:" + "0" * 64, "sha256:" + "1" * 64


def lets(contract: type[BaseModel], field: str, value: Any) -> bool:
    """Whether a value is one of this field."""
    try:
        contract.model_validate({field: value})
    except ValidationError as error:
        return all(problem["loc"][0] != field for problem in error.errors() if problem["loc"])
    return True


def refused(contract: type[BaseModel], values: Any) -> str:
    """The words in which a document is refused."""
    with pytest.raises(ValidationError) as caught:
        contract.model_validate(values)
    return "; ".join(problem["msg"] for problem in caught.value.errors())
