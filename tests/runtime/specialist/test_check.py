"""Rows beside a deployment: every planted fault is found where it is, and nothing else is."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.specialist.check import Check
from runtime.specialist.findings import PARTS, Cause
from runtime.specialist.leaks import HeldOutTask
from runtime.specialist.reading import seal
from runtime.specialist.render import parts
from specs.chat import File
from tests.runtime.specialist.desk import INSTRUCTIONS, SPEC, call, findings, row

PHRASES = (
    "and/or",
    "1/2 of them",
    "at 40 km/h",
    "see https://example.org/tmp/page.md for more",
    "<b>bold</b> words",
    "the right tool for it",
    "use a function call",
    "`ls` and `cat`",
    "edit config.yaml yourself",
    "look in handbook/leave.md",
    "read /opt/finder/limits.md",
    "write /work/out/report.txt",
    "#!/bin/bash",
    "2>/dev/null",
    "/usr/bin/env python3",
    "GET /users/7",
    "s/home/work/g",
    "<p>text</home>",
    "import what you need",
    "the answers, keyed",
    "preference/order",
    "{{ name }} is a place",
    "naïve café ☕",
)
HELD_OUT = HeldOutTask.of(
    "count", "Count the lines of ledger.txt.", "#!/bin/bash\nset -e\ncd /app\nwc -l ledger.txt\n"
)

type Spoil = Callable[[dict[str, Any]], None]


def _set(index: int, content: str) -> Spoil:
    def spoil(one: dict[str, Any]) -> None:
        one["messages"][index]["content"] = content

    return spoil


def _call(name: str, arguments: Any) -> Spoil:
    def spoil(one: dict[str, Any]) -> None:
        one["messages"][2] = call(name, arguments)

    return spoil


def _tools(change: Callable[[list[Any]], object]) -> Spoil:
    def spoil(one: dict[str, Any]) -> None:
        change(one["tools"])

    return spoil


def _thought(one: dict[str, Any]) -> None:
    one["messages"][4]["reasoning_content"] = "It is in /data/secrets.txt."


FAULTS: dict[str, tuple[Spoil, Cause]] = {
    "no instructions": (lambda one: one["messages"].pop(0), Cause.INSTRUCTIONS_DIFFER),
    "other instructions": (_set(0, INSTRUCTIONS + "\n"), Cause.INSTRUCTIONS_DIFFER),
    "a tool less": (_tools(lambda tools: tools.pop()), Cause.TOOLS_DIFFER),
    "no tools": (lambda one: one.pop("tools"), Cause.TOOLS_DIFFER),
    "another order": (_tools(lambda tools: tools.reverse()), Cause.TOOLS_DIFFER),
    "another description": (
        _tools(lambda tools: tools[0]["function"].update(description="Finds.")),
        Cause.TOOLS_DIFFER,
    ),
    "another schema": (
        _tools(lambda tools: tools[1]["function"].update(parameters={})),
        Cause.TOOLS_DIFFER,
    ),
    "strict": (_tools(lambda tools: tools[0]["function"].update(strict=True)), Cause.TOOLS_DIFFER),
    "an unknown call": (_call("teach", {}), Cause.TOOL_UNKNOWN),
    "another case of a name": (_call("Search", {"query": "x"}), Cause.TOOL_UNKNOWN),
    "an unknown tool in words": (_set(4, "Use the `oracle` tool."), Cause.TOOL_UNKNOWN),
    "a call in text": (
        _set(4, '<tool_call>{"name": "oracle", "arguments": {}}</tool_call>'),
        Cause.TOOL_UNKNOWN,
    ),
    "an argument too many": (_call("search", {"query": "x", "n": 1}), Cause.ARGUMENTS_INVALID),
    "arguments that are no JSON": (_call("search", "query=x"), Cause.ARGUMENTS_INVALID),
    "a file out of reach": (_set(4, "As /data/notes.txt says, ten."), Cause.FILE_UNAVAILABLE),
    "a file at home": (_set(4, "It is in ~/notes."), Cause.FILE_UNAVAILABLE),
    "a question's file": (_set(1, "What does /mnt/q.csv say?"), Cause.FILE_UNAVAILABLE),
    "a call's file": (_call("bash", {"command": "cat /etc/passwd"}), Cause.FILE_UNAVAILABLE),
    "a thought's file": (_thought, Cause.FILE_UNAVAILABLE),
    "a host": (_call("bash", {"command": "curl http://a.test/x"}), Cause.HOST_UNREACHABLE),
    "a withheld file": (_set(4, "The Answers.Key has it."), Cause.WITHHELD_NAMED),
    "a withheld folder": (_set(3, "reference/leave.md: thirty"), Cause.WITHHELD_NAMED),
    "a withheld name in a call": (
        _call("bash", {"command": "cat answers.key"}),
        Cause.WITHHELD_NAMED,
    ),
    "a wrapper": (_set(4, 'import A from "./a"\n\n<A />'), Cause.WRAPPER_ONLY),
    "a wrapped question": (_set(1, "---\ntitle: Leave\n---\n<Leave />\n"), Cause.WRAPPER_ONLY),
    "an empty fence": (_set(4, "```python\n```"), Cause.WRAPPER_ONLY),
    "nothing": (_set(4, " \n"), Cause.ANSWER_EMPTY),
    "too much": (_set(4, "word " * 60), Cause.OUTPUT_DIFFERS),
    "a held-out question": (_set(1, "count the  lines of LEDGER.txt."), Cause.HELD_OUT_TASK),
    "a held-out answer": (_set(4, "Do:\nwc  -l ledger.txt"), Cause.HELD_OUT_ANSWER),
    "a held-out answer in a call": (
        _call("bash", {"command": "wc -l ledger.txt"}),
        Cause.HELD_OUT_ANSWER,
    ),
}

words = st.lists(
    st.sampled_from([*PHRASES, "leave", "days", "thirty", "who", "knows"]), min_size=1, max_size=8
).map(lambda found: f"Well, {' '.join(found)}"[:200])
queries = words.filter(lambda text: "http" not in text)
clean_rows = st.builds(row, question=words, query=queries, result=words, answer=words)


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(clean_rows, min_size=1, max_size=5))
def test_rows_that_fit_raise_no_alarm(rows: list[dict[str, Any]]) -> None:
    assert findings(rows, held_out=(HELD_OUT,)) == []


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(clean_rows, min_size=1, max_size=4),
    faults=st.lists(st.sampled_from(sorted(FAULTS)), min_size=4, max_size=4),
    chosen=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_every_planted_fault_is_found_in_its_row_and_no_other(
    rows: list[dict[str, Any]], faults: list[str], chosen: list[bool]
) -> None:
    spoiled = copy.deepcopy(rows)
    planted: set[tuple[int, Cause]] = set()
    for line, (one, name, bad) in enumerate(zip(spoiled, faults, chosen, strict=False), start=1):
        if bad:
            spoil, cause = FAULTS[name]
            spoil(one)
            planted.add((line, cause))
    found = findings(spoiled, held_out=(HELD_OUT,))
    assert {(one.row, one.cause) for one in found} == planted
    assert all(one.part == PARTS[one.cause] for one in found)


@pytest.mark.parametrize("name", FAULTS)
def test_each_kind_of_fault_is_found_alone(name: str) -> None:
    spoil, cause = FAULTS[name]
    spoiled = row()
    spoil(spoiled)
    found = findings([row(), spoiled, row()], held_out=(HELD_OUT,))
    assert [(one.row, one.cause) for one in found] == [(2, cause)]


def test_every_cause_has_a_fault_that_shows_it() -> None:
    shown = {cause for _, cause in FAULTS.values()} | {Cause.PROGRAM_UNAVAILABLE}
    assert shown == set(Cause) == set(PARTS)


def test_a_turn_that_is_context_may_look_as_it_likes_but_names_nothing_withheld() -> None:
    context = row()
    context["messages"][2] = {**call("teach", {}), "weight": 0}
    assert findings([context]) == []
    context["messages"][2] = {**call("teach", {"file": "answers.key"}), "weight": 0}
    assert [one.cause for one in findings([context])] == [Cause.WITHHELD_NAMED]


def test_the_first_line_that_differs_is_named() -> None:
    other = row()
    other["messages"][0]["content"] = INSTRUCTIONS.replace("a sentence", "two")
    (found,) = findings([row(), other])
    assert found.row == 2
    assert found.detail.startswith("line 2 is 'Say what you found, in two.'")


def test_instructions_in_parts_or_in_two_messages_are_what_the_model_is_told() -> None:
    split = row()
    split["messages"][0]["content"] = [
        {"type": "text", "text": INSTRUCTIONS[:7]},
        {"type": "text", "text": INSTRUCTIONS[7:]},
    ]
    assert findings([split]) == []


def test_what_rows_carry_is_counted_by_digest() -> None:
    other = row()
    del other["tools"]
    spec = seal(SPEC, None)
    check = Check(spec)
    data = "\n".join(map(json.dumps, [row(), other, row()])).encode()
    list(check.findings(File.of("rows.jsonl", data).rows()))
    first, second, third = check.variants
    assert (first.part, first.digest, first.rows) == ("instructions", parts(spec).instructions, 3)
    assert (second.part, second.digest, second.rows) == ("tools", parts(spec).tools, 2)
    assert (third.part, third.rows, third.first_row) == ("tools", 1, 2)


COMMANDS: dict[str, Any] = {
    **SPEC,
    "tools": [],
    "output": {"turns": "every", "programs": ["cat", "wc"], "max_lines": 1},
}


def commands(*replies: str) -> list[Any]:
    """Causes found in a conversation of commands."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": INSTRUCTIONS}]
    for reply in replies:
        messages.append({"role": "user", "content": "Look at a.txt."})
        messages.append({"role": "assistant", "content": reply})
    return [one.cause for one in findings([{"messages": messages}], COMMANDS)]


@pytest.mark.parametrize(
    ("replies", "causes"),
    [
        (["cat a.txt", "wc -l < a.txt > b.txt"], []),
        (["cat a.txt | jq ."], [Cause.PROGRAM_UNAVAILABLE]),
        (["jq . a.txt", "cat a.txt"], [Cause.PROGRAM_UNAVAILABLE]),
        (['cat "$(find .)"'], [Cause.PROGRAM_UNAVAILABLE]),
        (["cat 'a.txt"], [Cause.OUTPUT_DIFFERS]),
        (["# nothing"], [Cause.OUTPUT_DIFFERS]),
        (["cat a.txt\nwc a.txt"], [Cause.OUTPUT_DIFFERS]),
        (["cat /data/b.txt"], [Cause.FILE_UNAVAILABLE]),
        (["cat http://a.test"], [Cause.HOST_UNREACHABLE]),
    ],
)
def test_commands_run_the_programs_that_are_there(replies: list[str], causes: list[Cause]) -> None:
    assert commands(*replies) == causes


def test_a_document_that_the_reader_is_sent_to_must_be_there() -> None:
    bare: dict[str, Any] = {**SPEC, "resources": SPEC["resources"][1:]}
    assert findings([row(answer="Ten, according to handbook/leave.md.")], bare) == []
    assert findings([row(answer="Write it into policy.md.")], bare) == []
    (found,) = findings([row(answer="Ten, according to `policy.md`.")], bare)
    assert (found.cause, found.message) == (Cause.FILE_UNAVAILABLE, 4)
    assert findings([row(result="See policy.md", answer="See policy.md.")], bare) == []


def test_a_file_name_needs_a_folder_that_is_given_or_a_conversation_that_names_it() -> None:
    bare: dict[str, Any] = {**COMMANDS, "resources": []}
    told = {"role": "system", "content": INSTRUCTIONS}
    asked = {"role": "user", "content": "Look at a.txt."}

    def causes(reply: str) -> list[str]:
        messages = [told, asked, {"role": "assistant", "content": reply}]
        return [one.detail for one in findings([{"messages": messages}], bare)]

    assert causes("cat a.txt") == []
    assert causes("cat b.txt") == ["names b.txt, which no resource covers"]


@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [
        ({"pattern": "yes|no"}, "yes", "yes!"),
        ({"json_schema": {"type": "object"}}, "{}", "[]"),
        ({"json_schema": {"type": "object"}}, '{"a": 1}', "{'a': 1}"),
        ({"json_schema": {"$ref": "http://a.test/schema"}}, None, "{}"),
        ({"max_lines": 2}, "a\nb", "a\nb\nc"),
    ],
)
def test_the_output_contract_is_held(output: dict[str, Any], good: str | None, bad: str) -> None:
    spec: dict[str, Any] = {**SPEC, "output": output}
    if good is not None:
        assert findings([row(answer=good)], spec) == []
    assert [one.cause for one in findings([row(answer=bad)], spec)] == [Cause.OUTPUT_DIFFERS]


def test_only_the_last_turn_is_bound_unless_every_one_is() -> None:
    talk = row()
    talk["messages"][2:4] = [
        {"role": "assistant", "content": "Let me think."},
        {"role": "user", "content": "Go on."},
    ]
    spec: dict[str, Any] = {**SPEC, "output": {"pattern": "There .*"}}
    assert findings([talk], spec) == []
    spec["output"]["turns"] = "every"
    assert [(one.message, one.cause) for one in findings([talk], spec)] == [
        (2, Cause.OUTPUT_DIFFERS)
    ]
