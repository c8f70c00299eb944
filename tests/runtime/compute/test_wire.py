"""Every message survives the wire, and no bytes do harm there."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as numpy_arrays

from runtime.compute import messages as m
from runtime.compute.protocol import Datum, Sampled
from runtime.compute.wire import MAGIC, Array, Message, Writer, decode, encode
from specs.errors import InvalidInput

lengths = st.integers(0, 20)
arrays: st.SearchStrategy[Array] = st.one_of(
    st.binary(max_size=40),
    numpy_arrays(np.int32, lengths),
    numpy_arrays(np.float32, lengths),
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(-(2**53) + 1, 2**53 - 1)
    | st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
messages = st.builds(
    Message,
    st.dictionaries(st.text("abcde", max_size=4), json_values, max_size=4),
    st.lists(arrays, max_size=4),
)


def same(left: Array, right: Array) -> bool:
    if isinstance(left, bytes) or isinstance(right, bytes):
        return left == right
    return left.dtype == right.dtype and left.tobytes() == right.tobytes()


@given(messages)
def test_a_message_survives_the_wire_bit_for_bit(message: Message) -> None:
    back = decode(encode(message))
    assert dict(back.fields) == dict(message.fields)
    assert len(back.arrays) == len(message.arrays)
    assert all(same(a, b) for a, b in zip(back.arrays, message.arrays, strict=True))


@given(messages, st.data())
def test_a_cut_or_lengthened_message_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    for broken in (whole[:cut], whole + b"\x00"):
        with pytest.raises(InvalidInput):
            decode(broken)


@given(st.binary(max_size=64))
def test_garbage_is_refused_with_a_clear_error(data: bytes) -> None:
    for broken in (data, MAGIC + data):
        try:
            decode(broken)
        except InvalidInput as error:
            assert error.problem.next


@given(messages, st.integers(0, 200), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_but_never_crashes(
    message: Message, at: int, value: int
) -> None:
    broken = bytearray(encode(message))
    broken[at % len(broken)] = value
    try:
        decode(bytes(broken))
    except InvalidInput as error:
        assert error.problem.detail


@pytest.mark.parametrize(
    "header",
    [
        b'{"fields":{},"arrays":[{"dtype":"int32","length":-1}]}',
        b'{"fields":{},"arrays":[{"dtype":"int64","length":0}]}',
        b'{"fields":{},"arrays":[{"dtype":"bytes","length":9007199254740991}]}',
        b'{"fields":{},"arrays":[],"more":1}',
        b'{"fields":[],"arrays":[]}',
        b'{"fields":{}}',
        b'{"fields":{"a":NaN},"arrays":[]}',
        b'{"fields":{},"fields":{},"arrays":[]}',
    ],
)
def test_a_lying_header_is_refused(header: bytes) -> None:
    with pytest.raises(InvalidInput):
        decode(MAGIC + len(header).to_bytes(4, "little") + header)


def test_an_index_must_name_an_array_of_the_right_kind() -> None:
    message = Message({}, [np.zeros(1, np.int32), b"x"])
    for index in (-1, 2):
        with pytest.raises(InvalidInput, match="no array"):
            message.int32(index)
    with pytest.raises(InvalidInput, match="not float32"):
        message.float32(0)
    with pytest.raises(InvalidInput, match="not bytes"):
        message.data(0)
    with pytest.raises(InvalidInput, match="not int32"):
        message.int32(1)


def test_unknown_fields_of_a_request_are_refused() -> None:
    for fields in ({"name": "x", "more": 1}, {}, {"name": 1}):
        with pytest.raises(InvalidInput):
            Message(fields).read(m.NameRequest, what="request")


def test_samples_and_datums_survive_including_missing_logprobs() -> None:
    sampled = [
        Sampled(np.array([1, 2], np.int32), np.array([-1, np.nan], np.float32), "stop"),
        Sampled(np.array([], np.int32), None, "length", "scripted"),
    ]
    back = m.read_sampled(decode(encode(m.write_sampled(sampled))))
    assert [(s.stop_reason, s.provenance) for s in back] == [
        ("stop", "sampled"),
        ("length", "scripted"),
    ]
    assert back[1].logprobs is None
    assert back[0].logprobs is not None
    assert np.isnan(back[0].logprobs[1])
    datum = Datum(
        np.array([1], np.int32), np.array([2], np.int32), {"weights": np.array([0.5], np.float32)}
    )
    writer = Writer()
    message = decode(encode(writer.message(data=m.write_data(writer, [datum]))))
    wired = m.WireDatum.model_validate(message.fields["data"][0])  # pyright: ignore[reportOptionalSubscript, reportArgumentType, reportCallIssue, reportIndexIssue]
    (read,) = m.read_data(message, [wired])
    assert read.inputs["weights"].tolist() == [0.5]
