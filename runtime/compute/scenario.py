"""The scenario file of a scripted model.

    {"schema": "practicum.scenario/v1",
     "tokenizer": "smollm2-135m-instruct",
     "replies": {"<task name>": ["reply to the first call", {"calls": [{"name": "Bash", …}]}]},
     "agents": {"<task name>": [{"when": "list the files", "replies": […]}]},
     "asides": [{"when": "CRITICAL: Respond with TEXT ONLY", "text": "<summary>…</summary>"}]}

`tokenizer` names a model whose tokenizer and family are played in, or a family (`qwen3`,
`deepseek-v3.1`, …), whose own they then are. `context_tokens` makes the window smaller, so that
a harness has to compact.

A reply that is a string is the exact text of an answer, markup and control tokens included,
without the stop token. A reply with blocks is written in the family's own grammar: thinking,
text, then calls; `raw` is exact text as well. `stop: length` leaves the answer open, as one
that was cut. `error` is raised once where it stands, and the next reply then follows: the
harness's retry gets it.

`replies` are the main agent's, in order. A sub-agent has a script of its own in `agents`: the
first whose `when` is found in the text that the sub-agent was started with, else the one at its
place among those without `when`; without any, all agents share `replies`. A reply with `when` is
an aside: it is played whenever the last message of a request has that text, and does not count.
"""

import re
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints, model_validator

from specs.base import Contract
from specs.canonical import read

SCHEMA = "practicum.scenario/v1"

type Name = Annotated[str, StringConstraints(min_length=1)]


class Pattern(Contract):
    """A regular expression that is searched for."""

    regex: Name

    @model_validator(mode="after")
    def _compiles(self) -> "Pattern":
        try:
            re.compile(self.regex)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return self


type When = Name | Pattern


class ScriptedCall(Contract):
    """A tool call of a reply."""

    name: Name
    input: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Reply(Contract):
    """A reply in blocks, or an error on cue."""

    when: When | None = None
    thinking: str = ""
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    raw: str | None = None
    stop: Literal["length"] | None = None
    error: Literal["overloaded", "drop"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "Reply":
        blocks = bool(self.thinking or self.text or self.calls)
        if blocks + (self.raw is not None) + (self.error is not None) > 1:
            raise ValueError("a reply has blocks, `raw` or `error`, one of them")
        return self


class Script(Contract):
    """The replies to one sub-agent."""

    when: When | None = None
    replies: list[str | Reply]


class Scenario(Contract):
    """What a scripted model answers, per task, agent and call."""

    schema_: Literal["practicum.scenario/v1"] = Field(alias="schema")
    tokenizer: Annotated[str, StringConstraints(min_length=1, max_length=128)]
    context_tokens: Annotated[int, Field(ge=1)] | None = None
    """The model's window, if it is to be smaller than the one of its tokenizer's model."""
    replies: dict[Name, list[str | Reply]]
    agents: dict[Name, list[Script]] = Field(default_factory=dict[str, list[Script]])
    asides: list[Reply] = Field(default_factory=list[Reply])
    """Replies to whatever request has their text, of any task and agent."""

    @model_validator(mode="after")
    def _asides_say_when(self) -> "Scenario":
        if any(aside.when is None for aside in self.asides):
            raise ValueError("an aside needs `when`")
        return self


def read_scenario(data: bytes) -> Scenario:
    """Read a scenario strictly; the error names the first bad field."""
    return read(Scenario, data, what="scenario")


def found(when: When | None, text: str) -> bool:
    """Whether a text has what `when` asks for."""
    if when is None:
        return False
    return re.search(when.regex, text) is not None if isinstance(when, Pattern) else when in text
