"""Base of every contract: frozen, unknown keys refused, no NaN or infinity.

A field whose JSON name is a Python keyword or shadows pydantic (`schema`, `from`) has an
alias; documents are always written with the aliases.
"""

from pydantic import BaseModel, ConfigDict


class Contract(BaseModel):
    """A value that crosses a boundary. Fields left out stay *unset* (`model_fields_set`)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
        serialize_by_alias=True,
        validate_by_name=True,
        validate_by_alias=True,
        defer_build=True,
    )
