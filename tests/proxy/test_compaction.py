"""A compaction is told from an edit by what its two requests hold."""

import pytest

from proxy.compaction import Compactions, asks_for_summary
from runtime.formats.conversation import Message, Text, ToolResult

SUMMARY = "twelve chars"  # as short as one may be
ASKED = "CRITICAL: Respond with TEXT ONLY. Summarise."


def user(*texts: str) -> Message:
    return Message("user", tuple(Text(text) for text in texts))


def assistant(text: str) -> Message:
    return Message("assistant", (Text(text),))


def known(*answers: str, session: str = "s") -> Compactions:
    made = Compactions()
    for answer in answers:
        made.answered(session, [Text(answer)])
    return made


@pytest.mark.parametrize(
    ("answer", "first", "continues"),
    [
        (f"<summary>{SUMMARY}</summary>", f"so far: {SUMMARY}!", True),
        (f"a <summary>\n {SUMMARY} \n</summary> b", SUMMARY, True),
        (f"<summary>{SUMMARY}", SUMMARY, True),  # cut at its end
        ("<summary>two\nlines of it</summary>", "two\nlines of it", True),
        (f"<summary>{SUMMARY[:-1]}</summary>", SUMMARY, False),  # too short to be a proof
        (f"<summary>{SUMMARY[:-1]}  </summary>", f"{SUMMARY[:-1]}  ", False),
        (SUMMARY, SUMMARY, False),
        (f"<summary>{SUMMARY}</summary>", "something else", False),
        ("", "This session is being continued from a previous conversation that", True),
        ("", "\n This session is being continued from a previous conversation", True),
        ("", "He said: This session is being continued from a previous conversation", False),
    ],
)
def test_a_history_that_begins_with_a_summary_continues_it(
    answer: str, first: str, continues: bool
) -> None:
    made = known(answer)
    assert made.continues("s", [user(first), assistant("yes")]) is continues
    assert made.continues("s", [user("noise", first)]) is continues  # any text of the turn
    assert not made.continues("s", [user("noise"), assistant("x"), user(first)])
    assert made.continues("s", [Message("system", ()), user(first)]) is continues


def test_summaries_are_those_of_the_session() -> None:
    made = known(f"<summary>{SUMMARY}</summary>")
    assert not made.continues("other", [user(SUMMARY)])
    assert not made.continues("s", [])
    assert not made.continues("s", [assistant(SUMMARY)])
    result = Message("user", (ToolResult("toolu_1", SUMMARY),))
    assert not made.continues("s", [result])
    made.answered("s", [ToolResult("toolu_1", "<summary>of no answer at all</summary>")])
    assert not made.continues("s", [user("of no answer at all")])


def test_the_latest_eight_summaries_are_known() -> None:
    made = known(*(f"<summary>summary number {number}</summary>" for number in range(9)))
    found = [made.continues("s", [user(f"summary number {number}")]) for number in range(9)]
    assert found == [False] + [True] * 8


@pytest.mark.parametrize(
    ("messages", "asks"),
    [
        ([user(ASKED)], True),
        ([user(f"\n {ASKED}")], True),
        ([user("look", ASKED)], True),
        ([user(ASKED, "look")], False),  # it is the last text that asks
        ([user("go on", f"then {ASKED}")], False),
        ([user(ASKED), assistant("{")], True),  # the answer begun for it
        ([user(ASKED), assistant("yes"), user("go on")], False),
        ([assistant(ASKED)], False),
        ([Message("user", (Text(ASKED), ToolResult("toolu_1", "x")))], False),
        ([Message("user", ())], False),
        ([], False),
    ],
)
def test_the_last_turn_asks_for_a_summary(messages: list[Message], asks: bool) -> None:
    assert asks_for_summary(messages) is asks
