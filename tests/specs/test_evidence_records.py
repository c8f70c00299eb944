"""The evidence codec record by record: what became of each call, and what damage is named."""

import json
import struct
import zlib
from array import array
from typing import Any

import pytest

from specs import evidence
from specs.errors import ErrorCode, InvalidInput
from specs.interaction import (
    BranchReason,
    CallState,
    Delivered,
    Delivery,
    Failure,
    Intent,
    Interaction,
    Refusal,
    Superseded,
)
from tests.specs.calls import AT, answer, intent

NONE: dict[str, array[int]] = {}


def begun(prompt: list[int], **values: Any) -> Intent:
    digest = evidence.prompt_hash(array("i", prompt))
    return intent(prompt_sha256=digest, prompt_tokens=len(prompt), **values)


def written(call: Intent, suffix: list[int], **arrays: Any) -> bytes:
    return evidence.encode(call, {"suffix": array("i", suffix), **arrays})


def answered(call: Intent, **values: Any) -> bytes:
    return evidence.encode(answer(call, **values), {"output": array("i", [5, 2])})


def failed(call: Intent, *, sampled: bool) -> bytes:
    failure = Failure(
        interaction=call.interaction, at=AT, code="overloaded", detail="busy", sampled=sampled
    )
    return evidence.encode(failure, NONE)


def gone(call: Intent, reason: str = "client_gone") -> bytes:
    value = {"interaction": call.interaction, "at": AT, "reason": reason}
    return evidence.encode(Superseded.model_validate(value), NONE)


def arrived(call: Intent) -> bytes:
    return evidence.encode(Delivered(interaction=call.interaction, at=AT), NONE)


def only(data: bytes) -> Interaction:
    (found,) = evidence.interactions(data)
    return found


CALL = begun([1, 2])
BEGUN = written(CALL, [1, 2])
ANSWERED = BEGUN + answered(CALL)


@pytest.mark.parametrize(
    ("data", "state", "delivery", "replaced"),
    [
        (BEGUN, CallState.LOST, Delivery.ABORTED, False),
        (BEGUN + failed(CALL, sampled=True), CallState.LOST, Delivery.ABORTED, False),
        (ANSWERED, CallState.ANSWERED, Delivery.UNKNOWN, False),
        (ANSWERED + arrived(CALL), CallState.ANSWERED, Delivery.SETTLED, False),
        (ANSWERED + gone(CALL), CallState.SUPERSEDED, Delivery.ABORTED, False),
        (ANSWERED + gone(CALL) + arrived(CALL), CallState.SUPERSEDED, Delivery.SETTLED, False),
        (ANSWERED + gone(CALL, "empty_reply"), CallState.SUPERSEDED, Delivery.ABORTED, True),
        (BEGUN + answered(CALL, superseded=True), CallState.SUPERSEDED, Delivery.ABORTED, False),
    ],
)
def test_invariant_2_the_records_of_a_call_say_how_it_ended(
    data: bytes, state: CallState, delivery: Delivery, replaced: bool
) -> None:
    found = only(data)
    assert (found.state, found.delivery, found.replaced) == (state, delivery, replaced)
    assert (found.answer is None) == (state is CallState.LOST)
    assert list(found.output) == ([] if found.answer is None else [5, 2])
    assert found.logprobs is None


def test_what_is_told_of_one_call_is_told_of_no_other() -> None:
    other = begun([3], sequence=1)
    data = ANSWERED + arrived(CALL) + written(other, [3]) + answered(other) + gone(other)
    first, second = evidence.interactions(data)
    assert (first.state, second.state) == (CallState.ANSWERED, CallState.SUPERSEDED)
    assert (first.delivery, second.delivery) == (Delivery.SETTLED, Delivery.ABORTED)


def test_a_call_that_was_refused_before_sampling_is_no_interaction() -> None:
    other = begun([3], sequence=1)
    data = ANSWERED + written(other, [3]) + failed(other, sampled=False)
    assert only(data).intent.interaction == CALL.interaction
    (refusal,) = evidence.refusals(data)
    assert (refusal.interaction, refusal.sequence) == (other.interaction, 1)
    assert (refusal.code, refusal.detail, refusal.at) == ("overloaded", "busy", AT)
    assert only(failed(other, sampled=False) + BEGUN).intent == CALL
    assert evidence.refusals(failed(other, sampled=False)) == []
    assert evidence.refusals(BEGUN + failed(CALL, sampled=True)) == []


def test_a_refusal_of_the_proxy_is_read_as_it_was_written() -> None:
    refusal = Refusal(
        interaction=CALL.interaction, trial=CALL.trial, sequence=0, at=AT, code="c", detail="d"
    )
    data = evidence.encode(refusal, {"request": array("B", b"x")})
    assert evidence.refusals(ANSWERED + data) == [refusal]
    assert only(ANSWERED + data).intent == CALL


def test_invariant_3_a_branch_does_not_extend_its_parent() -> None:
    extends = begun([1, 2, 5, 2, 9], parent=CALL.interaction, branch=None)
    branches = begun([7], parent=CALL.interaction, branch=BranchReason.EDITED)
    data = ANSWERED + written(extends, [9]) + written(branches, [7])
    assert [list(found.prompt) for found in evidence.interactions(data)] == [
        [1, 2],
        [1, 2, 5, 2, 9],
        [7],
    ]


def test_a_parent_that_is_not_there_is_damage() -> None:
    orphan = begun([9], parent=CALL.interaction, branch=None)
    with pytest.raises(InvalidInput, match=r"at byte 0: .* names an unknown parent") as refused:
        evidence.interactions(written(orphan, [9]))
    assert refused.value.problem.code is ErrorCode.DIGEST_MISMATCH


def test_a_prompt_of_other_ids_is_damage_of_its_own_frame() -> None:
    other = begun([1, 2, 5, 2, 9], parent=CALL.interaction, branch=None)
    cause = f"at byte {len(ANSWERED)}: the prompt of {other.interaction} does not match its hash"
    with pytest.raises(InvalidInput, match=cause) as refused:
        evidence.interactions(ANSWERED + written(other, [8]))
    assert refused.value.problem.code is ErrorCode.DIGEST_MISMATCH


def test_the_request_is_kept_compressed() -> None:
    body = b'{"messages": []}' * 9
    assert only(written(CALL, [1, 2], request=array("B", zlib.compress(body)))).request == body
    assert only(BEGUN).request == b""


def test_ids_and_log_probs_are_little_endian_words() -> None:
    assert evidence.prompt_hash(array("i", [1])) == (
        "sha256:67abdd721024f0ff4e0b3f4c2fc13bc5bad42d0b7851d456d88d203d15aaa450"
    )
    logprobs = array("f", [-0.5, -0.25])
    data = evidence.encode(answer(CALL), {"output": array("i", [5, 2]), "logprobs": logprobs})
    assert struct.pack("<iiff", 5, 2, -0.5, -0.25) in data
    assert only(BEGUN + data).logprobs == logprobs


def test_each_frame_ends_where_the_next_begins() -> None:
    ends = [end for _, end in evidence.frames(ANSWERED)]
    assert ends == [len(BEGUN), len(ANSWERED)]
    assert list(evidence.frames(b"")) == []


@pytest.mark.parametrize("kept", [0, 1, 8, 9, 10, -1, -4, -5])
def test_a_torn_tail_ends_the_segment(kept: int) -> None:
    tail = ANSWERED[len(BEGUN) :][:kept]
    assert [end for _, end in evidence.frames(BEGUN + tail)] == [len(BEGUN)]


def test_a_last_frame_of_other_bytes_is_torn_and_one_before_it_is_damaged() -> None:
    torn = bytearray(ANSWERED)
    torn[-1] ^= 1
    assert [end for _, end in evidence.frames(bytes(torn))] == [len(BEGUN)]
    with pytest.raises(InvalidInput) as refused:
        list(evidence.frames(bytes(torn) + BEGUN))
    problem = refused.value.problem
    assert f"damaged at byte {len(BEGUN)}: checksum mismatch" in problem.detail
    assert problem.code is ErrorCode.DIGEST_MISMATCH
    assert problem.object is not None and problem.object.pointer == f"/{len(BEGUN)}"


def test_a_frame_of_another_version_is_not_guessed_at() -> None:
    assert BEGUN[0] == 1
    with pytest.raises(InvalidInput, match="damaged at byte 0: unknown version 2"):
        list(evidence.frames(b"\x02" + BEGUN[1:]))


def raw(header: bytes) -> bytes:
    body = struct.pack("<BII", 1, len(header), 0) + header
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        b"[]",
        b"{}",
        b"3",
        b'{"arrays": []}',
        b'{"kind": "other", "arrays": []}',
        json.dumps(CALL.model_dump(mode="json")).encode(),
    ],
)
def test_a_whole_frame_that_holds_no_record_is_refused_where_it_stands(header: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        list(evidence.frames(BEGUN + raw(header)))
    problem = refused.value.problem
    assert f"record at byte {len(BEGUN)} is invalid" in problem.detail
    assert problem.code is ErrorCode.INVALID_DOCUMENT
    assert problem.object is not None and problem.object.pointer == f"/{len(BEGUN)}"


def test_what_was_left_unset_is_not_written() -> None:
    assert b'"dialect"' not in BEGUN and b'"kind":"intent"' in BEGUN
    frame, _ = next(iter(evidence.frames(BEGUN)))
    assert frame.record == CALL
    assert list(frame.arrays) == ["suffix"]


def test_a_machine_of_the_other_byte_order_swaps_what_it_writes_and_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = evidence.prompt_hash(array("i", [1]))
    monkeypatch.setattr(evidence.sys, "byteorder", "big")
    output = array("i", [5, 2])
    data = evidence.encode(answer(CALL), {"output": output})
    assert struct.pack(">ii", 5, 2) in data
    frame, _ = next(iter(evidence.frames(data)))
    assert frame.arrays["output"] == output == array("i", [5, 2])
    assert evidence.prompt_hash(array("i", [1])) != here
