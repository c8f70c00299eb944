"""Reading an answer while it is sampled gives what reading it whole gives, at every cut."""

import itertools
import json
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.anthropic import MESSAGES
from proxy.dialects.base import Head, Whole
from proxy.hearing import Heard, Hearing
from runtime.compute.protocol import Chunk
from runtime.formats.codec import FileCodec, Mark
from runtime.formats.conversation import Tool
from runtime.formats.families.lexer import pattern
from runtime.formats.families.reading import Delta, Grammar, SectionReader
from runtime.formats.families.values import read_json_call
from specs.errors import Internal, Unavailable
from specs.interaction import Answer, Intent, LimitedBy, SamplingUsed
from tests.proxy.world import END, TOKENIZER, text_ids

INTERACTION = "int_" + "0123456789abcdef" * 2
CODEC = FileCodec(TOKENIZER)
MARKUP = ("<tool_call>", "</tool_call>", "<think>", "</think>")
GRAMMAR = Grammar(
    {name: pattern(CODEC, Mark(name)) for name in MARKUP},
    read_json_call,
    call=("<tool_call>", "</tool_call>"),
    think=("<think>", "</think>"),
    stops=frozenset({"<|im_end|>"}),
)
TOOLS = (Tool("Bash", "", {"type": "object"}),)
PIECES = (
    *("Hello", " wor", "ld\n", "\n\n", " ", "é☃\U0001f600", "STOP", "ST", "OP", "###", "#"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<", "{"),
    '<tool_call>\n{"name": "Bash", "arguments": {"command": "ls # STOP"}}\n</tool_call>',
    "<think>\nwhy STOP\n</think>\n",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=9).map("".join)
STOPS = st.sampled_from([(), ("STOP",), ("###", "ld\n\n"), ("STOP", "TOP", "o")])


def sampled(text: str, *, ended: bool) -> list[int]:
    return [*text_ids(text), END] if ended else text_ids(text) or [50]


def heard(
    ids: Sequence[int],
    cuts: Sequence[int] = (),
    stops: tuple[str, ...] = (),
    *,
    reason: Literal["stop", "length"] = "stop",
) -> tuple[Heard, list[Delta]]:
    """The answer in chunks that end at `cuts`, read until it is over."""
    reader = SectionReader(GRAMMAR, call=INTERACTION, tools=TOOLS, thinking=False)
    hearing = Hearing(INTERACTION, CODEC.decoder(), reader, stops)
    shown: list[Delta] = []
    places = [0, *sorted({cut % len(ids) for cut in cuts} - {0}), len(ids)]
    for start, end in itertools.pairwise(places):
        tokens = np.array(ids[start:end], np.int32)
        logprobs = -tokens.astype(np.float32)
        last = reason if end == len(ids) else None
        shown += hearing.feed(Chunk(tokens, logprobs, stop_reason=last))
        if hearing.over:
            break
    return hearing.close(), shown


def whole_of(found: Heard) -> Whole:
    answer = Answer(
        interaction=INTERACTION,
        at="",
        stop_reason=found.stop_reason,
        stop_sequence=found.stop_sequence,
        provenance="sampled",
        content=found.content,
        parse_error=found.parse_error,
    )
    return Whole(answer, len(found.sampled.tokens))


def head(*, session: str = "", limited_by: LimitedBy = LimitedBy.REQUEST) -> Head:
    used = SamplingUsed(
        temperature=1, top_p=1, top_k=-1, max_tokens=9, stop=(END,), limited_by=limited_by
    )
    intent = Intent(
        interaction=INTERACTION,
        trial="tri_" + "0" * 32,
        fence=1,
        sequence=0,
        at="",
        session=session,
        parent=None,
        branch=None,
        prompt_tokens=7,
        prompt_sha256="sha256:" + "0" * 64,
        sampler="smp_" + "0" * 32,
        sampling=used,
        request_digest="sha256:" + "0" * 64,
    )
    return Head(intent, "m")


def listened(data: bytes) -> dict[str, Any]:
    """A client: the message that events make, block by block."""
    message: dict[str, Any] = {}
    stopped: list[int] = []
    for part in data.decode().strip().split("\n\n"):
        event = json.loads(part.split("\n")[1].removeprefix("data: "))
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"]) == len(stopped)
                message["content"].append(event["content_block"] | {"json": ""})
            case "content_block_delta":
                assert event["index"] == len(message["content"]) - 1 == len(stopped)
                block, delta = message["content"][-1], event["delta"]
                field = delta["type"].removesuffix("_delta").replace("input_", "partial_")
                block["json" if field == "partial_json" else field] += delta[field]
            case "content_block_stop":
                assert event["index"] == len(stopped)
                stopped.append(event["index"])
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case kind:
                assert kind in ("ping", "message_stop")
    for block in message["content"]:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    assert len(stopped) == len(message["content"])
    return message


@given(
    text=TEXTS,
    cuts=st.lists(st.integers(0, 500), max_size=12),
    stops=STOPS,
    reason=st.sampled_from(["stop", "length"]),
)
def test_events_make_the_message_wherever_the_stream_was_cut(
    text: str, cuts: list[int], stops: tuple[str, ...], reason: Literal["stop", "length"]
) -> None:
    """Invariants 1 and 2: chunks change when text is seen, never tokens, blocks or text."""
    ids = sampled(text, ended=reason == "stop")
    found, shown = heard(ids, cuts, stops, reason=reason)
    alone, _ = heard(ids, range(len(ids)), stops, reason=reason)
    assert found.sampled.tokens.tolist() == alone.sampled.tokens.tolist()
    assert found.content == alone.content and found.parse_error == alone.parse_error
    assert (found.stop_reason, found.stop_sequence) == (alone.stop_reason, alone.stop_sequence)
    kept = found.sampled.tokens.tolist()
    assert kept == ids[: len(kept)]
    assert found.sampled.logprobs is not None and found.sampled.logprobs.tolist() == [
        -one for one in kept
    ]
    told = MESSAGES.events(head())
    data = told.begin() + b"".join(told.delta(delta) for delta in shown)
    assert b'"tool_use"' not in data
    assert listened(data + told.end(whole_of(found))) == MESSAGES.message(head(), whole_of(found))


@given(text=TEXTS, cuts=st.lists(st.integers(0, 500), max_size=8), stops=STOPS)
def test_no_text_block_holds_a_stop_sequence(
    text: str, cuts: list[int], stops: tuple[str, ...]
) -> None:
    found, shown = heard(sampled(text, ended=True), cuts, stops)
    for value in found.content:
        block = cast(dict[str, Any], value)
        assert block["type"] != "text" or not any(stop in block["text"] for stop in stops)
    assert (found.stop_reason == "sequence") == (found.stop_sequence is not None)
    assert found.stop_reason != "sequence" or found.stop_sequence in stops
    texts: dict[int, str] = {}
    for delta in shown:
        texts[delta.block] = texts.get(delta.block, "") + delta.text
    for index, text_ in texts.items():
        block = cast(dict[str, Any], found.content[index])
        assert cast(str, block.get("text", block.get("thinking"))).startswith(text_)


def test_a_stop_sequence_ends_the_answer_with_the_token_that_completes_it() -> None:
    ids = sampled("one STOP two", ended=True)
    found, _ = heard(ids, [3, 6, 9], ("STOP",))
    assert found.sampled.tokens.tolist() == text_ids("one STOP")
    assert found.content == [{"type": "text", "text": "one "}]
    message = MESSAGES.message(head(), whole_of(found))
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "STOP")
    assert cast(Any, message["usage"])["output_tokens"] == 8


def test_thinking_and_calls_are_not_searched_for_stop_sequences() -> None:
    text = "<think>STOP</think>" + PIECES[-2]
    found, _ = heard(sampled(text, ended=True), [], ("STOP",))
    assert [cast(Any, block)["type"] for block in found.content] == ["thinking", "tool_use"]
    assert found.stop_reason == "stop"


def test_thinking_is_signed_with_a_name_that_is_known_before_it_ends() -> None:
    found, shown = heard(sampled("<think>\nwhy\n</think>\nso", ended=True), [12, 26])
    thinking = cast(dict[str, Any], found.content[0])
    assert thinking["thinking"] == "why" and len(thinking["signature"]) > 16
    told = MESSAGES.events(head())
    early = told.begin() + b"".join(told.delta(delta) for delta in shown)
    assert thinking["signature"].encode() in early and b"content_block_stop" in early


def test_nothing_that_ends_a_block_leaves_before_the_answer_is_durable() -> None:
    """Invariant 2."""
    found, shown = heard(sampled("Look.\n" + PIECES[-2], ended=True), range(200))
    told = MESSAGES.events(head())
    early = told.begin() + b"".join(told.delta(delta) for delta in shown)
    rest = told.end(whole_of(found))
    assert listened(early + rest)["content"][0]["text"] == "Look." and b"text_delta" in early
    for late in (b"tool_use", b"content_block_stop", b"message_delta", b"message_stop"):
        assert late not in early and late in rest


def test_an_error_is_an_event_before_content_and_a_cut_after_it() -> None:
    """Claude Code repeats the one, takes an error after content as final, and asks once more
    after a cut."""
    told = MESSAGES.events(head())
    told.begin()
    failed = told.fail(Unavailable("busy"), "req_1")
    assert failed is not None and b"overloaded_error" in failed
    _, (delta, *_) = heard(sampled("text", ended=True))
    told.delta(delta)
    assert told.fail(Unavailable("busy"), "req_1") is None


def test_an_answer_that_does_not_begin_as_it_was_streamed_is_never_sent() -> None:
    _, shown = heard(sampled("text", ended=True))
    other, _ = heard(sampled("other", ended=True))
    told = MESSAGES.events(head())
    for delta in shown:
        told.delta(delta)
    with pytest.raises(Internal, match="not the beginning"):
        told.end(whole_of(other))


@pytest.mark.parametrize(
    ("text", "reason", "limited_by", "session", "expected"),
    [
        ("a", "stop", LimitedBy.REQUEST, "", "end_turn"),
        (PIECES[-2], "stop", LimitedBy.REQUEST, "", "tool_use"),
        ("a", "length", LimitedBy.REQUEST, "s", "max_tokens"),
        ("a", "length", LimitedBy.TRIAL, "s", "max_tokens"),
        ("a", "length", LimitedBy.WINDOW, "s", "model_context_window_exceeded"),
        ("<tool_call>{</tool_call>", "stop", LimitedBy.REQUEST, "", "end_turn"),
        ("<tool_call>{</tool_call>", "stop", LimitedBy.REQUEST, "s", "tool_use"),
        ("<tool_call>{", "length", LimitedBy.REQUEST, "s", "max_tokens"),
    ],
)
def test_why_an_answer_ends_is_said_in_the_harnesss_words(
    text: str,
    reason: Literal["stop", "length"],
    limited_by: LimitedBy,
    session: str,
    expected: str,
) -> None:
    found, _ = heard(sampled(text, ended=reason == "stop"), reason=reason)
    named = head(session=session, limited_by=limited_by)
    assert MESSAGES.message(named, whole_of(found))["stop_reason"] == expected
