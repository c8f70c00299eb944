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

A reply may need what the world answered before, such as the id of a run that it has started:
`capture` takes it out of the text that the reply answers, and `${captured.NAME}` stands for it in
this reply and all later ones of the trial, in whichever agent.

    {"capture": {"run": "\\"run\\": *\\"(run_[0-9a-f]+)"},
     "calls": [{"name": "run_wait", "input": {"run": "${captured.run}"}}]}
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, model_validator

from specs.base import Contract
from specs.canonical import read

SCHEMA = "practicum.scenario/v1"

_SPOKEN = {"thinking", "text", "calls", "raw"}
_CAPTURED = re.compile(r"\$\{captured\.([^}]*)\}")

type Name = Annotated[str, StringConstraints(min_length=1)]
type Label = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]


def _compiled(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return text


type Regex = Annotated[Name, AfterValidator(_compiled)]


class Pattern(Contract):
    """A regular expression that is searched for."""

    regex: Regex


type When = Name | Pattern


class ScriptedCall(Contract):
    """A tool call of a reply."""

    name: Name
    input: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Reply(Contract):
    """A reply in blocks, or an error on cue."""

    when: When | None = None
    capture: dict[Label, Regex] = Field(default_factory=dict[str, str])
    """What to take out of the text that is answered: a pattern's first group, else all of it."""
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

    @model_validator(mode="after")
    def _captures_what_it_uses(self) -> "Scenario":
        known = {name for reply in self._all() for name in reply.capture}
        used = {
            name for reply in self._all() for name in _CAPTURED.findall(reply.model_dump_json())
        }
        if used - known:
            raise ValueError(f"nothing captures {', '.join(sorted(used - known))}")
        return self

    def _all(self) -> Iterator[Reply]:
        scripts = [script.replies for agents in self.agents.values() for script in agents]
        for replies in (*self.replies.values(), *scripts, self.asides):
            yield from (reply for reply in replies if isinstance(reply, Reply))


def read_scenario(data: bytes) -> Scenario:
    """Read a scenario strictly; the error names the first bad field."""
    return read(Scenario, data, what="scenario")


def found(when: When | None, text: str) -> bool:
    """Whether a text has what `when` asks for."""
    if when is None:
        return False
    return re.search(when.regex, text) is not None if isinstance(when, Pattern) else when in text


def captured(reply: Reply, text: str) -> dict[str, str | None]:
    """What a reply captures from the text that it answers; None where its pattern is not there."""
    hits = {name: re.search(pattern, text) for name, pattern in reply.capture.items()}
    return {name: hit and hit[hit.re.groups and 1] for name, hit in hits.items()}


def filled(reply: Reply, values: Mapping[str, str]) -> Reply:
    """A reply with what was captured in its place.

    Raises:
        KeyError: something that has not been captured yet.
    """

    def fill(value: JsonValue) -> JsonValue:
        match value:
            case str():
                return _CAPTURED.sub(lambda hit: values[hit[1]], value)
            case list():
                return [fill(item) for item in value]
            case dict():
                return {key: fill(item) for key, item in value.items()}
            case _:
                return value

    said = Reply.model_validate(fill(reply.model_dump(mode="json", include=_SPOKEN)))
    return reply.model_copy(update={name: getattr(said, name) for name in _SPOKEN})
