"""The real Claude Code, with the plugin from the local marketplace, uses every skill that there is.

One session for all: a scripted model asks for one skill after the other, and after each makes the
first call that the skill's page shows, on real records. What the skill said is read from the exact
tokens of the next call. It needs the pinned program in the tool folder, which npm installs once;
where it cannot be had, these tests are skipped.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from runtime.client import OperatorClient
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.home import Home
from runtime.native import engines
from specs import evidence
from specs.interaction import Interaction
from tests.e2e import episode
from tests.e2e.episode import TOOLS, Replies
from tests.e2e.support import Stack, obtained, own_stack, profile, until_sealed
from tests.skills.pages import SKILLS, calls
from tests.skills.test_calls import ids, named_records
from tests.skills.test_executed import lay_out
from tests.tools.test_plugin import write_command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

GIVEN = "what lies in this folder"
"""The arguments of every skill."""
NO_RUN = f"run_{'0' * 32}"
PLAN = {"source": {"file": "skills/rows.jsonl"}, "batch_size": 16, "lora": {"rank": 2}}


@dataclass(frozen=True)
class Session:
    """The model calls of the session, in order."""

    words: dict[str, str]
    """What stood for the words of the pages."""
    calls: list[Interaction]

    def prompt(self, place: int) -> str:
        """What the model read, out of its exact tokens."""
        codec = load_codec(carried_tokenizer("Qwen3Tokenizer"))
        return codec.decode(self.calls[place].prompt)

    def asked(self, tool: str, given: dict[str, Any], start: int = 0) -> tuple[int, str]:
        """The place of the answer that called a tool with this input, and the id of the call."""
        for place, call in enumerate(self.calls[start:], start):
            for block in cast(list[dict[str, Any]], call.answer.content if call.answer else []):
                if block["type"] == "tool_use" and (block["name"], block["input"]) == (tool, given):
                    return place, str(block["id"])
        raise AssertionError(f"{tool} was never called with {given}")

    def result(self, place: int, call: str) -> dict[str, Any]:
        """What Claude Code answered to a call, in its next request."""
        for message in json.loads(self.calls[place + 1].request)["messages"]:
            content: object = message["content"]
            for block in cast(list[dict[str, Any]], content if isinstance(content, list) else []):
                if block["type"] == "tool_result" and block["tool_use_id"] == call:
                    return block
        raise AssertionError(f"nothing was answered to {call}")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """One launch, on a stack with a run that has trained and the files that skills speak of."""
    obtained(engines.install)
    with own_stack() as stack:
        up = stack.run("up", timeout=300)
        assert up.code == 0, up.err
        write_command(stack.root / "practicum")
        stack.json("model", "pull", "tiny")
        words = prepared(stack, stack.root / "skills")
        work = episode.worked(stack, "skills", episode.changed(lambda _: played(words)))
        assert work.outcome == "completed", work.said
        yield Session(words, anyio.run(recorded, stack, work.session))


def prepared(stack: Stack, folder: Path) -> dict[str, str]:
    """The files and records of the pages' calls, and what each word of a page stands for."""
    folder.mkdir()
    lay_out(folder)
    stack.json(
        *("model-spec", "create", str(folder / "spec.json"), "--name", "acme/shell"),
        *("--behaviour", "Turns a request about files into one shell command."),
        *("--instructions", f"@{folder / 'instructions.txt'}", "--model", "tiny"),
        *("--useful", "works=The folder is as the request says"),
    )
    actor, plan = stack.write("actor.json", profile()), stack.write("rows-plan.json", PLAN)
    run = str(stack.json("train", "start", "--actor", actor, "--plan", plan)["run"])
    waited = stack.run("run", "wait", run, "--timeout", "5m", timeout=330)
    assert waited.code == 0, (waited.out, waited.err)
    last = {part: stack.json("run", part, run)["items"][-1] for part in ("updates", "checkpoints")}
    return {
        "RUN": run,
        "TRAINING_RUN": run,
        "UPDATE": last["updates"]["id"],
        "CHECKPOINT": last["checkpoints"]["id"],
        "TEACHER": "tiny",
        "smollm2-135m-instruct": "tiny",
    }


def loads(page: Path) -> dict[str, Any]:
    """The input with which a skill is asked for."""
    return {"skill": f"practicum:{page.parent.name}", "args": GIVEN}


def first(page: Path, words: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """The first call of a page, on records that exist."""
    call = calls(page)[0]
    return f"{TOOLS}{call.tool}", named_records(call.arguments, words)


def played(words: dict[str, str]) -> Replies:
    """Each skill and its first call; one call that is refused; the end, which is held up once."""
    asked = [call for page in SKILLS for call in (("Skill", loads(page)), first(page, words))] + [
        (f"{TOOLS}run_show", {"run": NO_RUN})
    ]
    replies: Replies = [{"calls": [{"name": tool, "input": given}]} for tool, given in asked]
    return [*replies, {"text": "Done."}, {"text": "Nothing is left to write down."}]


async def recorded(stack: Stack, session: str) -> list[Interaction]:
    sealed = await until_sealed(stack.home, session)
    assert sealed.seal is not None and sealed.seal.object is not None
    async with OperatorClient.at(Home.at(stack.home)) as gateway:
        return evidence.interactions(await gateway.object(sealed.seal.object))


def body(page: Path) -> re.Pattern[str]:
    """The whole text of a page below its head, as it arrives: the arguments are in their place,
    and so is the folder of the installed skill."""
    _, _, text = page.read_text().split("---\n", 2)
    parts = text.strip().replace("$ARGUMENTS", GIVEN).split("${CLAUDE_SKILL_DIR}")
    folder = rf"/[^\"\n]*/skills/{page.parent.name}"
    return re.compile(folder.join(map(re.escape, parts)))


@pytest.mark.parametrize("page", SKILLS, ids=ids)
def test_a_skill_says_all_that_its_page_says(session: Session, page: Path) -> None:
    place, call = session.asked("Skill", loads(page))
    assert not session.result(place, call).get("is_error")
    assert body(page).search(session.prompt(place)) is None
    assert body(page).search(session.prompt(place + 1)) is not None


@pytest.mark.parametrize("page", SKILLS, ids=ids)
def test_the_first_call_of_a_skill_is_answered(session: Session, page: Path) -> None:
    asked, _ = session.asked("Skill", loads(page))
    place, call = session.asked(*first(page, session.words), asked)
    assert place == asked + 1, "it is made by who has just read the skill"
    result = session.result(place, call)
    assert not result.get("is_error"), result
    assert result["content"]


def test_a_call_that_is_refused_would_be_seen(session: Session) -> None:
    result = session.result(*session.asked(f"{TOOLS}run_show", {"run": NO_RUN}))
    assert result["is_error"] and "not_found" in json.dumps(result["content"])
