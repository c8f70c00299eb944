"""Grants: a part of an operator's authority that is whole in itself."""

from typing import Any

import pytest

from specs.grant import READ_ONLY, GatewayAccess, GrantRequest, Scope
from tests.specs.contracts import lets, refused


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope is not Scope.START])
def test_whoever_changes_something_also_reads_it(scope: Scope) -> None:
    assert GatewayAccess.model_validate({"scopes": [scope, "read"]}).max_runs == 0
    if scope is not Scope.READ:
        assert "add the scope 'read'" in refused(GatewayAccess, {"scopes": [scope]})


@pytest.mark.parametrize(
    ("scopes", "runs", "allowed"),
    [
        (["read", "start"], 1, True),
        (["read", "start"], 0, False),
        (["read", "publish"], 1, False),
        (["read"], 0, True),
    ],
)
def test_the_scope_start_and_a_number_of_runs_belong_together(
    scopes: list[str], runs: int, allowed: bool
) -> None:
    values: dict[str, Any] = {"scopes": scopes, "max_runs": runs}
    if allowed:
        assert GatewayAccess.model_validate(values).max_runs == runs
    else:
        assert "belong together" in refused(GatewayAccess, values)


def test_an_access_without_limits_of_its_own_starts_nothing_and_opens_any_model() -> None:
    assert READ_ONLY.scopes == (Scope.READ,)
    assert (READ_ONLY.max_slots, READ_ONLY.max_updates) == (0, None)
    assert (READ_ONLY.models, READ_ONLY.datasets) == (None, None)


def test_a_credential_is_good_for_a_day_at_most() -> None:
    assert lets(GrantRequest, "expires_in_sec", 24 * 60 * 60)
    assert not lets(GrantRequest, "expires_in_sec", 24 * 60 * 60 + 1)
    assert not lets(GrantRequest, "expires_in_sec", 0)
