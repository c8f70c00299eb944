"""Every call and command that a skill or an agent names, held against the registry."""

import importlib.util
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from specs.base import Contract
from specs.construction import ConstructionPlan
from specs.errors import ErrorCode
from specs.ids import Prefix, new_id
from specs.plans import parse_plan
from tests.docs.test_commands import refusal
from tests.skills.pages import AGENTS, PAGES, ROOT, SKILLS, Call, blocks, calls, front, named
from tools import registry
from tools.fields import Cli
from tools.hooks import SERVERS
from tools.registry import Operation

OFFERED = {one.name: one for one in registry.operations() if one.traits.agent}
NOUNS = {one.noun.replace("-", "_") for one in registry.operations()}
STARTS = ("run_start", "train_start")
IDS = {
    word: new_id(prefix)
    for word, prefix in {
        "RUN": Prefix.RUN,
        "TRIAL": Prefix.TRIAL,
        "UPDATE": Prefix.UPDATE,
        "CHECKPOINT": Prefix.CHECKPOINT,
        "COMPARISON": Prefix.COMPARISON,
        "CONSTRUCTION": Prefix.CONSTRUCTION,
    }.items()
} | dict.fromkeys(("REVIEW_SUBJECT", "APPROVAL_SUBJECT"), f"sha256:{'0' * 64}")
"""What the words in capitals stand for."""
CONTRACTS: dict[str, type[Contract]] = {"practicum.construction-plan/v1": ConstructionPlan}
BUILT_IN = {"Read", "Write", "Edit", "Grep", "Glob", "Bash", "Skill"}


def ids(page: Path) -> str:
    return page.parent.name if page.name == "SKILL.md" else page.stem


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_call_is_one_that_its_tool_takes(page: Path) -> None:
    for call in calls(page):
        assert call.tool in OFFERED, call
        chosen = OFFERED[call.tool]
        chosen.input.model_validate(named_records(call.arguments))
        assert not at_a_terminal(chosen) & set(call.arguments), call
        check_plan(call)


def named_records(value: Any, ids: Mapping[str, str] = IDS) -> Any:
    """The same with an id in place of each word that stands for one."""
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {name: named_records(item, ids) for name, item in items}
    if isinstance(value, list):
        return [named_records(item, ids) for item in cast(list[Any], value)]
    return ids.get(value, value) if isinstance(value, str) else value


def at_a_terminal(chosen: Operation) -> set[str]:
    """Arguments that only the command line has."""
    fields = chosen.input.model_fields.items()
    return {
        name
        for name, field in fields
        if any(isinstance(item, Cli) and not item.agent for item in field.metadata)
    }


def check_plan(call: Call) -> None:
    """A plan that is written out is one, and of the kind that its tool starts."""
    plan = call.arguments.get("plan")
    if call.tool in STARTS and not isinstance(plan, str):
        kind = parse_plan(named_records(plan)).kind
        assert (kind == "evaluation") == (call.tool == "run_start"), call


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_tool_that_is_named_exists(page: Path) -> None:
    assert named(page, NOUNS) - set(ErrorCode) <= set(OFFERED)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_command_is_understood(page: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "practicum":
                assert refusal(words[1:]) is None, line
            elif words:
                assert words[0] == "python3", line
                script(page.parent, words[1]).parser().parse_args(words[2:])


def script(folder: Path, word: str) -> Any:
    """The module of a script that a skill names by its own folder."""
    path = Path(word.replace("${CLAUDE_SKILL_DIR}", str(folder)))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_every_document_is_valid(page: Path) -> None:
    """By its schema; what has none is a row to train on."""
    for block in blocks(page, "json"):
        value: dict[str, Any] = json.loads(block)
        if "schema" in value:
            CONTRACTS[value["schema"]].model_validate(value)
        else:
            assert value["messages"][-1]["role"] == "assistant"


@pytest.mark.parametrize("page", SKILLS, ids=ids)
def test_a_skill_is_short_and_says_when_it_is_used_and_when_to_stop(page: Path) -> None:
    head, text = front(page), page.read_text()
    assert head["name"] == page.parent.name
    assert re.search(
        r"\b(Use|use) (to|when|whenever|before|on|at|after|for)\b", head["description"]
    )
    assert len(text.splitlines()) <= 85
    assert "## Good" in text or "## Report" in text or "## Say" in text
    assert "## Stop and ask" in text


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_skills_and_agents_that_are_referred_to_exist(page: Path) -> None:
    text = page.read_text()
    skills = {path.parent.name for path in SKILLS}
    referred = set(re.findall(r"skills? `([a-z-]+)`", text))
    assert referred <= skills
    agents = {path.stem for path in AGENTS}
    assert set(re.findall(r"agents? `practicum:([a-z-]+)`", text)) <= agents
    assert set(re.findall(r"practicum:([a-z-]+)", text)) <= skills | agents


@pytest.mark.parametrize("page", AGENTS, ids=ids)
def test_an_agent_has_tools_that_exist(page: Path) -> None:
    head = front(page)
    assert head["name"] == page.stem and head["model"] == "inherit"
    tools = head["tools"].split(", ")
    ours = [tool.removeprefix(SERVERS[0]) for tool in tools if tool.startswith(SERVERS[0])]
    assert set(tools) - {SERVERS[0] + tool for tool in ours} <= BUILT_IN
    assert set(ours) <= set(OFFERED) and len(set(ours)) == len(ours)


def ours(agent: str) -> set[str]:
    page = next(page for page in AGENTS if page.stem == agent)
    tools = front(page)["tools"].split(", ")
    return {tool.removeprefix(SERVERS[0]) for tool in tools if tool.startswith(SERVERS[0])}


def test_agents_are_narrow() -> None:
    """Who reviews or reads changes nothing; who prepares or evaluates does not train; nobody ends,
    decides or extends anything."""
    for agent in ("quality-reviewer", "trace-reader"):
        assert all(OFFERED[tool].traits.read_only for tool in ours(agent)), agent
    for page in AGENTS:
        for tool in ours(page.stem):
            traits = OFFERED[tool].traits
            assert not traits.destructive and not traits.decides, (page.stem, tool)
        assert "run_extend" not in ours(page.stem)
        assert ("train_start" in ours(page.stem)) == (page.stem == "trainer")


def test_the_plugin_carries_the_skills_and_each_is_told_of_in_its_readme() -> None:
    told = (ROOT / "plugins" / "claude" / "README.md").read_text()
    for page in PAGES:
        assert f"`{ids(page)}`" in told
