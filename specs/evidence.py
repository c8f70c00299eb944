"""Codec of a trial's evidence segment: append-only frames, and the reading of them.

A frame is

    version u8 = 1 | header length u32 | payload length u32 | header (JSON) | payload | crc32 u32

little-endian; the checksum covers all before it. The header is a `Record` plus `arrays`, a
list of [name, dtype, count] in payload order. A torn last frame (a crash while writing) ends
the segment; any other damage is an error.
"""

import hashlib
import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import TypeAdapter

from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.interaction import (
    Answer,
    AnyRecord,
    CallState,
    Delivered,
    Delivery,
    Failure,
    Intent,
    Interaction,
    Record,
    Refusal,
    Superseded,
)

VERSION = 1
_HEAD = struct.Struct("<BII")
_CRC = struct.Struct("<I")
_TYPES = {"int32": "i", "float32": "f", "uint8": "B"}
_RECORD: TypeAdapter[AnyRecord] = TypeAdapter(Record)

type Arrays = Mapping[str, "array[Any]"]


@dataclass(frozen=True, slots=True)
class Frame:
    """One record with its arrays."""

    record: AnyRecord
    arrays: Arrays


def encode(record: AnyRecord, arrays: Arrays) -> bytes:
    """One frame. Arrays are `array('i'|'f'|'B')` of 4, 4 and 1 bytes."""
    names = {code: name for name, code in _TYPES.items()}
    layout = [[name, names[data.typecode], len(data)] for name, data in arrays.items()]
    header = record.model_dump(mode="json", exclude_unset=True)
    header["kind"] = record.kind
    text = json.dumps({**header, "arrays": layout}, separators=(",", ":")).encode()
    payload = b"".join(_little(data) for data in arrays.values())
    body = _HEAD.pack(VERSION, len(text), len(payload)) + text + payload
    return body + _CRC.pack(zlib.crc32(body))


def frames(data: bytes) -> Iterator[tuple[Frame, int]]:
    """Each whole frame with the offset behind it; a torn tail ends the iteration.

    Raises:
        InvalidInput: `digest_mismatch` for damage before the end, `invalid_document` for a
            record that is not one.
    """
    offset = 0
    while len(data) - offset >= _HEAD.size:
        version, header_size, payload_size = _HEAD.unpack_from(data, offset)
        end = offset + _HEAD.size + header_size + payload_size
        if version != VERSION:
            raise _damaged(offset, f"unknown version {version}")
        if end + _CRC.size > len(data):
            return
        if zlib.crc32(data[offset:end]) != _CRC.unpack_from(data, end)[0]:
            if end + _CRC.size == len(data):
                return
            raise _damaged(offset, "checksum mismatch")
        start = offset + _HEAD.size
        yield (
            _frame(data[start : start + header_size], data[start + header_size : end], offset),
            (end + _CRC.size),
        )
        offset = end + _CRC.size


def interactions(data: bytes) -> list[Interaction]:
    """Every call of a segment in order, whole; refused calls are left out.

    Raises:
        InvalidInput: damage, an orphan record, or a prompt whose hash does not match.
    """
    intents: dict[str, tuple[int, Frame]] = {}
    outcomes: dict[str, Frame] = {}
    gone: dict[str, Superseded] = {}
    delivered: set[str] = set()
    place = 0
    for frame, end in frames(data):
        match frame.record:
            case Intent():
                intents[frame.record.interaction] = (place, frame)
            case Failure(sampled=False):
                intents.pop(frame.record.interaction, None)
            case Answer() | Failure():
                outcomes[frame.record.interaction] = frame
            case Superseded():
                gone[frame.record.interaction] = frame.record
            case Delivered():
                delivered.add(frame.record.interaction)
            case Refusal():
                pass
        place = end
    prompts: dict[str, tuple[array[int], array[int]]] = {}
    result: list[Interaction] = []
    for name, (place, frame) in intents.items():
        after = _After(outcomes.get(name), gone.get(name), name in delivered)
        interaction = _assemble(place, frame, after, prompts)
        prompts[name] = (interaction.prompt, interaction.output)
        result.append(interaction)
    return result


def refusals(data: bytes) -> list[Refusal]:
    """The calls of a segment that were refused before sampling, by the proxy or by compute."""
    result: list[Refusal] = []
    intents: dict[str, Intent] = {}
    for frame, _ in frames(data):
        match frame.record:
            case Intent() as intent:
                intents[intent.interaction] = intent
            case Refusal() as refusal:
                result.append(refusal)
            case Failure(sampled=False) as failure if failure.interaction in intents:
                intent = intents[failure.interaction]
                result.append(
                    Refusal(
                        interaction=intent.interaction,
                        trial=intent.trial,
                        sequence=intent.sequence,
                        at=failure.at,
                        code=failure.code,
                        detail=failure.detail,
                    )
                )
            case _:
                pass
    return result


def prompt_hash(prompt: "array[int]") -> str:
    """Digest over little-endian int32 ids."""
    return "sha256:" + hashlib.sha256(_little(prompt)).hexdigest()


@dataclass(frozen=True, slots=True)
class _After:
    """What became of a call."""

    outcome: Frame | None
    gone: Superseded | None
    delivered: bool

    @property
    def answer(self) -> Answer | None:
        record = self.outcome.record if self.outcome else None
        return record if isinstance(record, Answer) else None

    @property
    def state(self) -> CallState:
        if self.answer is None:
            return CallState.LOST
        superseded = self.gone is not None or self.answer.superseded
        return CallState.SUPERSEDED if superseded else CallState.ANSWERED

    @property
    def delivery(self) -> Delivery:
        if self.delivered:
            return Delivery.SETTLED
        return Delivery.UNKNOWN if self.state is CallState.ANSWERED else Delivery.ABORTED


def _assemble(
    place: int,
    frame: Frame,
    after: _After,
    prompts: Mapping[str, "tuple[array[int], array[int]]"],
) -> Interaction:
    intent = cast(Intent, frame.record)
    prompt = array("i")
    if intent.parent is not None and intent.branch is None:
        if intent.parent not in prompts:
            raise _damaged(place, f"{intent.interaction} names an unknown parent")
        before, output = prompts[intent.parent]
        prompt.extend(before)
        prompt.extend(output)
    prompt.extend(frame.arrays["suffix"])
    if prompt_hash(prompt) != intent.prompt_sha256:
        raise _damaged(place, f"the prompt of {intent.interaction} does not match its hash")
    arrays: Arrays = after.outcome.arrays if after.outcome and after.answer else {}
    request = frame.arrays.get("request")
    return Interaction(
        intent=intent,
        state=after.state,
        answer=after.answer,
        prompt=prompt,
        output=arrays.get("output", array("i")),
        logprobs=arrays.get("logprobs"),
        request=zlib.decompress(request.tobytes()) if request else b"",
        delivery=after.delivery,
        replaced=after.gone is not None and after.gone.reason == "empty_reply",
    )


def _frame(header: bytes, payload: bytes, offset: int) -> Frame:
    try:
        content = json.loads(header)
        layout = cast(list[tuple[str, str, int]], content.pop("arrays"))
        record = _RECORD.validate_json(json.dumps(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"The evidence record at byte {offset} is invalid: {error}",
            object=ErrorObject(type="evidence", pointer=f"/{offset}"),
        ) from None
    arrays: dict[str, array[Any]] = {}
    at = 0
    for name, dtype, count in layout:
        data: array[Any] = array(_TYPES[dtype])
        size = data.itemsize * count
        data.frombytes(payload[at : at + size])
        if sys.byteorder == "big":
            data.byteswap()
        arrays[name] = data
        at += size
    return Frame(record, arrays)


def _little(data: "array[Any]") -> bytes:
    if sys.byteorder == "big":
        data = array(data.typecode, data)
        data.byteswap()
    return data.tobytes()


def _damaged(offset: int, cause: str) -> InvalidInput:
    return InvalidInput(
        f"The evidence segment is damaged at byte {offset}: {cause}.",
        code=ErrorCode.DIGEST_MISMATCH,
        object=ErrorObject(type="evidence", pointer=f"/{offset}"),
        next="Treat the trial as incomplete; its tokens cannot be trusted.",
    )
