"""What holds for every family and all conversations, answers and ways to cut an answer up.

qwen3.5 is read here over the tokenizer of qwen3, which has the same control tokens and loads in
a fraction of the time.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.formats.codec import Codec, FileCodec, Mark, Piece, spell
from runtime.formats.conversation import (
    Block,
    Conversation,
    Message,
    Start,
    Text,
    Thinking,
    Tool,
    ToolResult,
    ToolUse,
)
from runtime.formats.families import Family, TextDelta, family_named
from runtime.formats.families.base import Template
from specs.model import RENDERERS, FamilyName
from tests.proxy.world import TOKENIZER
from tests.runtime.formats.families.oracle import adapter

CALL = "int_" + "0" * 32
TOKENIZERS: dict[FamilyName, str] = {
    "qwen3": "Qwen3Tokenizer",
    "qwen3-coder": "Qwen3Tokenizer",
    "qwen3.5": "Qwen3Tokenizer",
    "deepseek-v3.1": "DeepSeekV31Tokenizer",
    "deepseek-v4": "DeepSeekV4Tokenizer",
    "kimi-k2": "KimiK2ThinkingTokenizer",
    "glm": "GlmTokenizer",
    "gpt-oss": "HarmonyTokenizer",
}
NAMES: list[FamilyName] = ["chatml", *TOKENIZERS]
quick = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])

MARKUP = (
    *("<tool_call>", "</tool_call>", "<think>", "</think>", "<arg_key>", "</arg_key>"),
    *("<arg_value>", "</arg_value>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
    *(
        "<｜tool▁calls▁end｜>",
        "｜DSML｜",
        "<|im_end|>",
        "<|im_start|>",
        "<|user|>",
        "<|observation|>",
    ),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
)
FRAGMENTS = (
    *('{"name": "a", "arguments": {"x": 1}}', '{"name": "a"', "{}", "functions.a:0", "a", "\n"),
    *("<function=a>\n", "</function>\n", "<parameter=x>\n", "</parameter>\n", "<", "</", ">", " "),
    *("tool_calls>", 'invoke name="a">\n', "invoke>", 'parameter name="x" string="false">', "1"),
    *("parameter>", "99999999999999999999", "NaN", "assistant to=functions.a", "analysis"),
    *("commentary", "final", "é", "\x00", "\u2028"),
)


def voice(name: FamilyName) -> tuple[Family, Codec]:
    if name == "chatml":
        codec = FileCodec(TOKENIZER)
        return family_named(name, codec, model="tiny"), codec
    return adapter(name, TOKENIZERS[name])


words = st.text(alphabet="ab <>/\n{}é\"'☃", max_size=12)
spelled = st.sampled_from(MARKUP)
texts = st.lists(words | spelled, max_size=3).map("".join)
keys = st.text(alphabet="abc_", min_size=1, max_size=5)
scalars = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)
calls = st.builds(
    ToolUse,
    st.just(""),
    st.sampled_from(["Bash", "mcp__x__y"]),
    st.dictionaries(keys, values, max_size=3),
)


def _answer(thinking: str, text: str, made: list[ToolUse]) -> list[Block]:
    thoughts: list[Block] = [Thinking(thinking)] if thinking else []
    return [*thoughts, *([Text(text)] if text else []), *made]


answers = st.builds(_answer, texts, texts, st.lists(calls, max_size=2))
symbols = st.lists(
    st.sampled_from([Mark(token) for token in MARKUP]) | st.sampled_from(FRAGMENTS) | words,
    max_size=14,
)  # fmt: skip


def tools_for(blocks: Sequence[Block]) -> list[Tool]:
    """Tools whose schemas say the types of the calls' arguments, where these agree."""
    schemas: dict[str, dict[str, Any]] = {"Bash": {}}
    for block in blocks:
        if isinstance(block, ToolUse):
            for name, value in block.input.items():
                schemas.setdefault(block.name, {})[name] = {"type": kind(value)}
    return [Tool(name, "", {"properties": fields}) for name, fields in schemas.items()]


def kind(value: Any) -> str:
    for name, types in (
        ("string", str),
        ("boolean", bool),
        ("integer", int),
        ("array", list),
        ("object", dict),
    ):
        if isinstance(value, types):
            return name
    return "null"


def normal(family: Family, blocks: Sequence[Block], *, quiet: bool = False) -> list[dict[str, Any]]:
    """The documented normal form of what was said; `quiet`: behind thinking that was closed."""
    made = [block for block in blocks if isinstance(block, ToolUse)]
    said_so = family.answer(blocks, quiet=quiet)
    thought = Mark("</think>") in said_so or "analysis" in said_so
    marked = bool(made) or thought or Mark("<|channel|>") in said_so
    content: list[dict[str, Any]] = []
    for block in blocks:
        match block:
            case Thinking() if family.thinks and block.text.strip():
                content.append({"type": "thinking", "thinking": block.text.strip("\n")})
            case Text() if block.text.strip() or not marked:
                text = block.text.rstrip("\n") if marked else block.text
                content.append({"type": "text", "text": text.lstrip("\n") if thought else text})
            case ToolUse():
                content.append({"name": block.name, "input": dict(block.input)})
            case _:
                pass
    return content


def plain(content: Sequence[Any]) -> list[dict[str, Any]]:
    """Content without what is minted."""
    shown: list[dict[str, Any]] = []
    for block in cast(Sequence[dict[str, Any]], content):
        if block["type"] == "tool_use":
            shown.append({"name": block["name"], "input": block["input"]})
        else:
            shown.append({key: value for key, value in block.items() if key != "signature"})
    return shown


def said(content: Sequence[Any]) -> list[Block]:
    blocks: list[Block] = []
    for block in cast(Sequence[dict[str, Any]], content):
        match block["type"]:
            case "text":
                blocks.append(Text(block["text"]))
            case "thinking":
                blocks.append(Thinking(block["thinking"]))
            case _:
                blocks.append(ToolUse(block["id"], block["name"], block["input"]))
    return blocks


def ambiguous(name: FamilyName, blocks: Sequence[Block]) -> bool:
    """Whether what is said looks like the grammar, where that is text and not control tokens."""
    plain_text = str(blocks)
    if name == "chatml":
        return "tool_call>" in plain_text
    if name in ("qwen3-coder", "qwen3.5"):
        same = [
            (block.name, key, kind(value))
            for block in blocks
            if isinstance(block, ToolUse)
            for key, value in block.input.items()
        ]
        return "</" in plain_text or len({one[:2] for one in same}) != len(set(same))
    same = [
        (block.name, key, kind(value))
        for block in blocks
        if isinstance(block, ToolUse)
        for key, value in block.input.items()
    ]
    return name == "glm" and len({one[:2] for one in same}) != len(set(same))


@pytest.mark.parametrize("name", NAMES)
def test_a_family_records_the_version_that_the_contract_has(name: FamilyName) -> None:
    family, codec = voice(name)
    assert family.renderer == f"{name}/{RENDERERS[name]}"
    assert all(codec.mark(token) is not None for token in cast(Template, family).required)


@pytest.mark.parametrize("name", NAMES)
@given(blocks=answers)
@quick
def test_what_is_said_is_read_back_in_normal_form_and_so_again(
    name: FamilyName, blocks: list[Block]
) -> None:
    family, codec = voice(name)
    if ambiguous(name, blocks):
        return
    tools = tools_for(blocks)
    ids = codec.encode(family.answer(blocks))
    assert ids == codec.encode(family.answer(blocks))
    once = family.parse(opened(family, codec, ids), call=CALL, tools=tools)
    assert once.parse_error is None
    assert plain(once.content) == normal(family, blocks)
    again = codec.encode(family.answer(said(once.content)))
    twice = family.parse(opened(family, codec, again), call=CALL, tools=tools)
    assert twice.content == once.content


def opened(family: Family, codec: Codec, ids: Sequence[int]) -> list[Piece]:
    """The pieces of an answer as they were sampled."""
    del family
    return codec.pieces(ids)


@pytest.mark.parametrize("name", NAMES)
@given(pieces=symbols, cuts=st.lists(st.integers(0, 40), max_size=6))
@quick
def test_any_answer_is_read_the_same_however_it_arrives(
    name: FamilyName, pieces: list[Piece], cuts: list[int]
) -> None:
    family, codec = voice(name)
    ids = list(codec.encode(pieces))
    tools = [Tool("a", "", {"properties": {"x": {"type": "integer"}}})]
    whole = family.parse(codec.pieces(ids), call=CALL, tools=tools)
    decoder, reader = codec.decoder(), family.reader(call=CALL, tools=tools)
    shown: dict[int, str] = {}
    kinds: dict[int, str] = {}
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(ids)], strict=True):
        for delta in reader.feed(decoder.feed(ids[start:end])):
            assert not shown or delta.block >= max(shown)
            shown[delta.block] = shown.get(delta.block, "") + delta.text
            kinds[delta.block] = "text" if isinstance(delta, TextDelta) else "thinking"
    reader.feed(decoder.close())
    assert reader.close() == whole
    for index, text in shown.items():
        block = cast(dict[str, Any], whole.content[index])
        assert block["type"] == kinds[index] and block[kinds[index]].startswith(text)


@pytest.mark.parametrize("name", NAMES)
@given(pieces=symbols)
@quick
def test_no_answer_is_an_error_or_a_call_that_was_not_made(
    name: FamilyName, pieces: list[Piece]
) -> None:
    family, codec = voice(name)
    arrived = codec.pieces(codec.encode(pieces))
    parsed = family.parse(arrived, call=CALL, tools=[Tool("a", "", {})])
    content = cast(list[dict[str, Any]], parsed.content)
    made = [block for block in content if block["type"] == "tool_use"]
    closes = cast(Template, family).grammar.call[1]
    assert len(made) <= spell(arrived).count(closes)
    without = family.parse(arrived, call=CALL, tools=[])
    assert all(cast(dict[str, Any], block)["type"] != "tool_use" for block in without.content)
    plain_text = name != "gpt-oss" and not cast(Template, family).opens_thinking
    if not made and "think>" not in spell(arrived) and plain_text:
        shown = "".join(block["text"] for block in content)
        stops = [Mark(stop) for stop in family.stops]
        kept = arrived[:-1] if arrived and arrived[-1] in stops else arrived
        assert "".join(shown.split()) == "".join(spell(kept).split())


@pytest.mark.parametrize("name", NAMES)
@given(
    system=st.lists(texts, max_size=1),
    question=texts,
    blocks=answers,
    result=texts,
    late=st.booleans(),
    more=st.none() | texts,
)
@quick
def test_a_grown_conversation_goes_on_from_the_stored_tokens(
    name: FamilyName,
    system: list[str],
    question: str,
    blocks: list[Block],
    result: str,
    late: bool,
    more: str | None,
) -> None:
    """Invariant 3: prompt n+1 is prompt n, output n and a suffix; and it says what a rendering
    of the whole conversation would say, but for what a family documents as drawn otherwise."""
    family, codec = voice(name)
    numbered = [
        ToolUse(f"functions.{block.name}:{index}", block.name, block.input)
        if isinstance(block, ToolUse)
        else block
        for index, block in enumerate(blocks, -sum(not isinstance(b, ToolUse) for b in blocks))
    ]
    made = [block for block in numbered if isinstance(block, ToolUse)]
    answer = [*(ToolResult(call.id, result) for call in made)]
    user = Message("user", (*answer, *([] if more is None and made else [Text(more or "go")])))
    first = (Message("user", (Text(question),)),)
    between = (Message("system", (Text("late"),)),) if late else ()
    before = Conversation(tuple(system), (Tool("Bash", "Run ☃", {}),), first)
    messages = (*first, Message("assistant", tuple(numbered)), *between, user)
    after = Conversation(before.system, before.tools, messages)
    prompt, output = codec.encode(family.prompt(before)), codec.encode(family.answer(numbered))
    assert prompt == codec.encode(family.prompt(before))
    ends = {codec.mark(stop): stop for stop in family.stops}
    suffix = codec.encode(family.suffix(after, 2, ends[output[-1]]))
    stored, whole = (
        codec.decode(prompt + output + suffix),
        codec.decode(codec.encode(family.prompt(after))),
    )
    if name == "glm" and (late or (not made) != (user.blocks[0] not in answer)):
        stored = stored.replace("<|user|><|system|>late", "<|system|>late").replace(
            "<|observation|><|system|>late", "<|system|>late"
        )
    place = len(codec.decode(prompt + codec.encode(family.answer(numbered, cut=True))))
    assert stored == drawn(whole, place, ends[output[-1]] if name == "gpt-oss" else None)
    cut = codec.encode(family.answer(numbered, cut=True)) + codec.encode(
        family.suffix(after, 2, None)
    )
    ended = "<|end|>" if name == "gpt-oss" else None
    assert codec.decode(prompt + cut) == drawn(whole, place, ended)


def drawn(whole: str, place: int, end: str | None) -> str:
    """A rendering in which the answer that ends at `place` ends with what was drawn.

    gpt-oss ends a final message with `<|return|>`, and a call that was cut with no `<|call|>`;
    rendered histories have `<|end|>` and `<|call|>` there.
    """
    if end is None:
        return whole
    ends = [one for one in ("<|end|>", "<|call|>") if whole.startswith(one, place)]
    return whole[:place] + end + whole[place + len(ends[0]) :]


@pytest.mark.parametrize("name", NAMES)
@given(blocks=answers, system=st.lists(texts, max_size=1))
@quick
def test_an_answer_without_thinking_follows_thinking_that_the_prompt_closed(
    name: FamilyName, blocks: list[Block], system: list[str]
) -> None:
    """Prompt and output together say what an answer without thinking would say."""
    family, codec = voice(name)
    if ambiguous(name, blocks):
        return
    unthought = [block for block in blocks if not isinstance(block, Thinking)]
    asked = (Message("user", (Text("go"),)),)
    plain_one = Conversation(tuple(system), (), asked)
    quiet = Conversation(tuple(system), (), asked, Start(thinking=False))
    assert family.unenforced(quiet) == ({"thinking"} if name == "gpt-oss" else set())
    output = codec.encode(family.answer(blocks, quiet=True))
    found = family.parse(
        codec.pieces(output), call=CALL, tools=tools_for(blocks), begun=family.begun(quiet)
    )
    assert found.parse_error is None
    assert [block["type"] for block in cast(list[Any], found.content)].count("thinking") == 0
    assert plain(found.content) == normal(family, unthought, quiet=True)
    template = cast(Template, family)
    if template.unthought and name not in ("deepseek-v4", "glm"):  # these open and close in one
        whole = codec.encode(family.prompt(plain_one)) + codec.encode(family.answer(unthought))
        assert codec.decode(codec.encode(family.prompt(quiet)) + output) == codec.decode(whole)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("anyone", [True, False])
@given(made=calls)
@quick
def test_a_call_that_the_prompt_began_is_read_with_the_rest_of_it(
    name: FamilyName, anyone: bool, made: ToolUse
) -> None:
    """A required call: its beginning is prompt, the rest is sampled, the whole is one call."""
    family, codec = voice(name)
    if ambiguous(name, [made]):
        return
    tools = [replace(tool, schema={**tool.schema, "required": []}) for tool in tools_for([made])]
    asked = (Message("user", (Text("go"),)),)
    wanted = Start(call="" if anyone else made.name)
    conversation = Conversation((), tuple(tools), asked, wanted)
    assert family.unenforced(conversation) == set()
    begun = family.begun(conversation)
    assert begun is not None
    whole, head = spell(family.answer([made], quiet=True)), spell(begun)
    assert whole.startswith(head)
    prompt = codec.encode(family.prompt(conversation))
    assert codec.decode(prompt).endswith(head)
    rest = codec.encode(behind(family.answer([made], quiet=True), head))
    found = family.parse(codec.pieces(rest), call=CALL, tools=tools, begun=begun)
    assert found.parse_error is None
    assert plain(found.content) == [{"name": made.name, "input": dict(made.input)}]


@pytest.mark.parametrize("name", NAMES)
def test_a_turn_that_was_ended_behind_a_call_is_whole_in_the_next_prompt(name: FamilyName) -> None:
    family, codec = voice(name)
    assert family.ends_calls == (name != "deepseek-v4")
    if not family.ends_calls:
        return
    made = ToolUse("functions.Bash:0", "Bash", {"command": "ls"})
    said = (Text("I look."), made)
    asked = Message("user", (Text("go"),))
    result = Message("user", (ToolResult(made.id, "a"),))
    after = Conversation((), (), (asked, Message("assistant", said), result))
    answer = codec.encode(family.answer(said))
    closes = cast(Template, family).grammar.call[1]
    end = codec.mark(closes)
    kept = answer[: list(answer).index(end) + 1] if end is not None else answer[:-1]
    suffix = codec.encode(family.suffix(after, 2, codec.name(kept[-1])))
    before = codec.encode(family.prompt(Conversation((), (), (asked,))))
    whole = codec.decode(codec.encode(family.prompt(after)))
    assert codec.decode(before + kept + suffix) == whole


def test_what_a_family_cannot_be_made_to_do_is_said() -> None:
    asked = (Message("user", (Text("go"),)), Message("assistant", (Text("I"),)))
    tools = (Tool("Bash", "", {}),)
    for name in NAMES:
        family, _ = voice(name)
        filled = Conversation((), tools, asked, Start(call="Bash"))
        assert family.unenforced(filled) == {"tool_choice"} and family.begun(filled) is None
        thinking = Conversation((), tools, asked[:1], Start(thinking=True))
        assert family.unenforced(thinking) == (set() if family.thinks else {"thinking"})
        both = Conversation((), tools, asked[:1], Start(thinking=True, call="Bash"))
        assert family.unenforced(both) == {"thinking"}
        assert family.unenforced(Conversation((), tools, asked[:1])) == set()


def behind(pieces: Sequence[Piece], head: str) -> list[Piece]:
    """The pieces without the text that they begin with."""
    rest = list(pieces)
    while head:
        first = spell(rest[:1])
        if first.startswith(head):
            return [first[len(head) :], *rest[1:]]
        assert head.startswith(first)
        head = head[len(first) :]
        del rest[0]
    return rest
