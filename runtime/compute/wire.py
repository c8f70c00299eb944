"""Messages of the compute protocol as bytes: a JSON header and raw arrays.

    magic "PCW1" | header length u32 | header JSON | arrays, each as named by the header

The header is `{"fields": {...}, "arrays": [{"dtype": "int32"|"float32"|"bytes", "length": n},
...]}`; arrays follow in that order, little-endian, without padding, and must fill the message
exactly. In `fields` an array is its index in that list. Reading checks everything and never
trusts a length.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from specs.base import Contract
from specs.canonical import canonical_bytes, invalid, read
from specs.errors import ErrorObject, InvalidInput

MAGIC = b"PCW1"
MEDIA_TYPE = "application/x-practicum-compute"
MAX_ARRAYS = 1 << 20
STREAM_MEDIA_TYPE = "application/x-practicum-compute-stream"
PROBLEM_MEDIA_TYPE = "application/problem+json"
MAX_FRAME = 1 << 26

type Array = npt.NDArray[np.int32] | npt.NDArray[np.float32] | bytes

_SIZES = {"int32": 4, "float32": 4, "bytes": 1}


class ArrayHeader(Contract):
    """One array of a message."""

    dtype: Literal["int32", "float32", "bytes"]
    length: int = Field(ge=0)


class _Header(Contract):
    fields: dict[str, JsonValue]
    arrays: list[ArrayHeader] = Field(max_length=MAX_ARRAYS)


@dataclass(frozen=True, slots=True)
class Message:
    """Fields and arrays of one request or response."""

    fields: Mapping[str, JsonValue]
    arrays: Sequence[Array] = ()

    def read[T](self, kind: type[T], *, what: str) -> T:
        """The fields as `kind` (a pydantic model or dataclass), strictly.

        Raises:
            InvalidInput: `invalid_document`, naming the field.
        """
        try:
            return TypeAdapter(kind).validate_python(self.fields)
        except ValidationError as error:
            raise invalid(error, what) from None

    def int32(self, index: int) -> npt.NDArray[np.int32]:
        """Array `index`, which must be int32."""
        array = self._array(index)
        if isinstance(array, bytes) or array.dtype != np.int32:
            raise _malformed(f"array {index} is not int32")
        return cast(npt.NDArray[np.int32], array)

    def float32(self, index: int) -> npt.NDArray[np.float32]:
        """Array `index`, which must be float32."""
        array = self._array(index)
        if isinstance(array, bytes) or array.dtype != np.float32:
            raise _malformed(f"array {index} is not float32")
        return cast(npt.NDArray[np.float32], array)

    def data(self, index: int) -> bytes:
        """Array `index`, which must be bytes."""
        array = self._array(index)
        if not isinstance(array, bytes):
            raise _malformed(f"array {index} is not bytes")
        return array

    def _array(self, index: int) -> Array:
        if not 0 <= index < len(self.arrays):
            raise _malformed(f"there is no array {index}")
        return self.arrays[index]


class Writer:
    """Collects arrays while fields are written: `add` returns the index to write."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def add(self, array: Array) -> int:
        """Append an array; its index."""
        self.arrays.append(array)
        return len(self.arrays) - 1

    def message(self, **fields: JsonValue) -> Message:
        """The message of `fields` and the arrays added so far."""
        return Message(fields, self.arrays)


def encode(message: Message) -> bytes:
    """A message as bytes."""
    headers: list[JsonValue] = []
    parts: list[bytes] = []
    for array in message.arrays:
        if isinstance(array, bytes):
            headers.append({"dtype": "bytes", "length": len(array)})
            parts.append(array)
        else:
            dtype = "int32" if array.dtype == np.int32 else "float32"
            headers.append({"dtype": dtype, "length": len(array)})
            kind = np.dtype(dtype).newbyteorder("<")
            parts.append(np.ascontiguousarray(array, dtype=kind).tobytes())
    header = canonical_bytes({"fields": dict(message.fields), "arrays": headers})
    return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, *parts))


def decode(data: bytes) -> Message:
    """A message of bytes.

    Raises:
        InvalidInput: `invalid_json` or `invalid_document`: not exactly one message.
    """
    if data[:4] != MAGIC or len(data) < 8:
        raise _malformed("it does not begin with the magic and a header length")
    start = 8 + int.from_bytes(data[4:8], "little")
    if start > len(data):
        raise _malformed("it is cut off in the header")
    header = read(_Header, data[8:start], what="compute message")
    end = start + sum(_SIZES[array.dtype] * array.length for array in header.arrays)
    if end != len(data):
        raise _malformed(f"it has {len(data)} bytes, but its header describes {end}")
    arrays: list[Array] = []
    at = start
    for array in header.arrays:
        size = _SIZES[array.dtype] * array.length
        arrays.append(_take(data, at, array))
        at += size
    return Message(header.fields, arrays)


class Frames:
    """Cuts a stream of bytes into the messages that `frame` wrote one after the other."""

    def __init__(self) -> None:
        self._rest = bytearray()

    @property
    def empty(self) -> bool:
        """Whether no part of a message is left."""
        return not self._rest

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that `data` completes.

        Raises:
            InvalidInput: a message is malformed or larger than `MAX_FRAME`.
        """
        self._rest += data
        while len(self._rest) >= 4:
            size = int.from_bytes(self._rest[:4], "little")
            if size > MAX_FRAME:
                raise _malformed(f"a part of {size} bytes is larger than {MAX_FRAME}")
            if len(self._rest) < 4 + size:
                return
            message = decode(bytes(self._rest[4 : 4 + size]))
            del self._rest[: 4 + size]
            yield message


def frame(message: Message) -> bytes:
    """A message as one part of a stream: its length as u32, then its bytes."""
    data = encode(message)
    return len(data).to_bytes(4, "little") + data


def _take(data: bytes, at: int, header: ArrayHeader) -> Array:
    if header.dtype == "bytes":
        return data[at : at + header.length]
    kind: np.dtype[Any] = np.dtype(header.dtype).newbyteorder("<")
    # A copy: aligned, writable, and in the machine's own byte order.
    return np.frombuffer(data, kind, header.length, at).astype(header.dtype)


def _malformed(why: str) -> InvalidInput:
    return InvalidInput(
        f"The compute message is malformed: {why}.",
        object=ErrorObject(type="compute message"),
        next="Send a message as `runtime.compute.wire` writes it.",
    )
