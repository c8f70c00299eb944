"""The worker and operator protocols: what a body may hold."""

from typing import Any, get_args

import pytest
from pydantic import BaseModel

from specs.comparison import ComparisonRecord
from specs.events import EventType
from specs.ids import Prefix, is_id
from specs.operator_api import KeepState, SessionRequest, UiLinkRequest
from specs.records import LogPiece, TrialSettled
from specs.worker_api import (
    ClaimRequest,
    Completion,
    ComputeWaiting,
    GroupSettled,
    TrialTokenRequest,
    UpdateContributed,
    UpdateMeasured,
    UploadRequest,
    Write,
    WriteRequest,
)
from tests.specs.contracts import EMPTY, NOTHING, lets

DAY = 24 * 60 * 60
LOG = {"type": "log.written", "piece": {"source": "worker", "text": "x"}}


@pytest.mark.parametrize(
    ("contract", "field", "good", "bad"),
    [
        (ClaimRequest, "lease_sec", [0.1, 3600], [0, 3600.1]),
        (GroupSettled, "place", [0], [-1]),
        (UpdateContributed, "contributions", NOTHING, [NOTHING]),
        (UpdateMeasured, "metrics", [{"a": 1}], [EMPTY]),
        (ComputeWaiting, "operation", ["o" * 64], ["o" * 65]),
        (ComputeWaiting, "seconds", [0], [-0.1]),
        (WriteRequest, "sequence", [1], [0]),
        (WriteRequest, "writes", [[LOG], [LOG] * 1024], [NOTHING, [LOG] * 1025]),
        (Completion, "sequence", [1], [0]),
        (TrialTokenRequest, "expires_in_sec", [0.1, DAY], [0, DAY + 1]),
        (UploadRequest, "size", [0, 5 * 2**30], [-1, 5 * 2**30 + 1]),
        (LogPiece, "text", ["x" * 65536], ["x" * 65537]),
        (TrialSettled, "detail", ["x" * 4096], ["x" * 4097]),
        (ComparisonRecord, "earlier", [0], [-1]),
        (KeepState, "seconds", [None, 0.1, 3650 * DAY], [0, 3650 * DAY + 1]),
        (UiLinkRequest, "path", ["p" * 512], ["p" * 513]),
        (SessionRequest, "model", ["m", "m" * 128], ["", "m" * 129]),
        (SessionRequest, "expires_in_sec", [0.1, DAY], [0, DAY + 1]),
    ],
)
def test_a_body_has_its_bounds(
    contract: type[BaseModel], field: str, good: list[Any], bad: list[Any]
) -> None:
    assert [value for value in good if not lets(contract, field, value)] == []
    assert [value for value in bad if lets(contract, field, value)] == []


def test_a_session_has_an_id_of_its_own_and_ends_within_a_day() -> None:
    first, second = (SessionRequest(model="tiny", purpose="agent") for _ in range(2))
    assert is_id(first.id, Prefix.SESSION) and first.id != second.id
    assert first.expires_in_sec == DAY


def test_every_write_of_a_worker_but_a_log_is_an_event() -> None:
    kinds = get_args(get_args(Write)[0])
    types = {name for kind in kinds for name in get_args(kind.model_fields["type"].annotation)}
    assert types - {"log.written"} <= set(EventType)
    assert len(types) == len(kinds) + 1, "failed and void are one kind of write"
