"""Interactions: what one call shows of itself (invariants 2 and 3)."""

import pytest

from specs.interaction import (
    BranchReason,
    CallState,
    Delivery,
    Failure,
    Intent,
    LimitedBy,
    Superseded,
)
from tests.specs.calls import AT, answer, call, intent


@pytest.mark.parametrize(
    ("branch", "provenance", "span", "exact"),
    [
        (BranchReason.ROOT, "sampled", "root", False),
        (BranchReason.EDITED, "sampled", "branched(edited)", False),
        (BranchReason.PROXY_RESTART, "scripted", "branched(proxy_restart)", False),
        (None, "sampled", "exact", True),
        (None, None, "lost", True),
        (BranchReason.ROOT, None, "lost", False),
    ],
)
def test_invariant_3_a_span_is_root_exact_branched_or_lost(
    branch: BranchReason | None, provenance: str | None, span: str, exact: bool
) -> None:
    found = call(branch=branch, provenance=provenance)
    assert (found.span, found.exact) == (span, exact)


@pytest.mark.parametrize(
    ("state", "delivery", "replaced", "acted"),
    [
        (CallState.ANSWERED, Delivery.SETTLED, False, True),
        (CallState.ANSWERED, Delivery.UNKNOWN, False, True),
        (CallState.ANSWERED, Delivery.SETTLED, True, False),
        (CallState.SUPERSEDED, Delivery.SETTLED, False, True),
        (CallState.SUPERSEDED, Delivery.ABORTED, False, False),
        (CallState.SUPERSEDED, Delivery.SETTLED, True, False),
        (CallState.LOST, Delivery.ABORTED, False, False),
        (CallState.LOST, Delivery.UNKNOWN, False, False),
    ],
)
def test_a_harness_acts_on_an_answer_that_it_kept(
    state: CallState, delivery: Delivery, replaced: bool, acted: bool
) -> None:
    assert call(state=state, delivery=delivery, replaced=replaced).acted_upon is acted


def test_what_is_not_known_of_a_call_is_not_claimed() -> None:
    found = call()
    assert (found.delivery, found.replaced) == (Delivery.UNKNOWN, False)
    begun = found.intent
    assert (begun.session, begun.agent, begun.normalisations) == ("", "", ())
    assert (begun.requested, begun.dialect) == ({}, "anthropic")
    used = begun.sampling
    assert (used.seed, used.stop_sequences) == (None, ())
    assert used.limited_by is LimitedBy.REQUEST


def test_a_record_says_only_what_happened() -> None:
    begun = intent()
    said = answer(begun)
    assert (said.stop_sequence, said.parse_error, said.superseded) == (None, None, False)
    gone = Superseded(interaction=begun.interaction, at=AT)
    assert gone.reason == "client_gone"
    failure = Failure(interaction=begun.interaction, at=AT, code="c", detail="d")
    assert failure.sampled, "sampling may have begun"
    assert isinstance(begun, Intent) and begun.kind == "intent"
