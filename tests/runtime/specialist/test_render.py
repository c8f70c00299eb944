"""A specification's digests and profiles: of the same content the same bytes, and told in full."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.specialist import render
from runtime.specialist.reading import seal
from specs import canonical
from specs.errors import ErrorCode, InvalidInput
from specs.launch import validate_profile
from specs.model_spec import Parts
from tests.runtime.specialist.desk import INSTRUCTIONS, SPEC, TOOLS, chat_tools

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
tricky = st.one_of(texts, st.lists(st.sampled_from(
    ["$", "$$", "{", "}", "${model.token}", "${spec.tools}", "${spec.instructions}", "a", "\n"]
), min_size=1, max_size=8).map("".join))  # fmt: skip


def spec_with(**changes: Any) -> Any:
    return seal({**SPEC, **changes}, None)


@settings(max_examples=40, deadline=None)
@given(instructions=tricky, about=texts)
def test_instructions_and_tools_reach_the_harness_to_the_letter(
    instructions: str, about: str
) -> None:
    tools: Any = [{"name": "search", "description": about, "input_schema": {}}]
    plan = validate_profile(render.actor_profile(spec_with(instructions=instructions, tools=tools)))
    assert plan.argv[2] == instructions
    assert json.loads(plan.argv[3].removeprefix("--tools=")) == tools


def shuffled(value: Any, order: Any) -> Any:
    """The same JSON with its keys in another order."""
    if isinstance(value, dict):
        items = [(str(key), shuffled(item, order)) for key, item in value.items()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        order.shuffle(items)
        return dict(items)
    return value


@settings(max_examples=15, deadline=None)
@given(order=st.randoms(use_true_random=False))
def test_equal_specifications_render_to_equal_bytes(order: Any) -> None:
    env = {f"V{number}": str(number) for number in range(5)}
    given_one: dict[str, Any] = {**SPEC, "deployment": {**SPEC["deployment"], "env": env}}
    left, right = seal(given_one, None), seal(shuffled(given_one, order), None)
    for make in (render.actor_profile, render.teacher_profile, render.generation):
        assert canonical.canonical_bytes(make(left, "m")) == canonical.canonical_bytes(
            make(right, "m")
        )
    assert render.parts(left) == render.parts(right)


CHANGES: dict[str, dict[str, Any]] = {
    "instructions": {"instructions": INSTRUCTIONS + " "},
    "tools": {"tools": TOOLS[::-1]},
    "output": {"output": {"max_characters": 201}},
    "resources": {"resources": SPEC["resources"][:2]},
    "deployment": {"deployment": {**SPEC["deployment"], "network": "any"}},
    "useful": {"useful": [{"name": "right", "statement": "It is right."}]},
}


def test_a_part_has_a_new_digest_exactly_if_it_changed() -> None:
    before = render.parts(seal(SPEC, None)).model_dump()
    assert set(CHANGES) == set(Parts.model_fields)
    for part, change in CHANGES.items():
        after = render.parts(spec_with(**change)).model_dump()
        assert {name for name in before if before[name] != after[name]} == {part}


def test_a_default_that_is_written_out_changes_no_part() -> None:
    written = copy.deepcopy(SPEC)
    written["output"]["turns"] = "last"
    written["deployment"]["setup"] = []
    assert render.parts(seal(written, None)) == render.parts(seal(SPEC, None))


def test_teacher_and_actor_differ_in_name_model_and_withheld_files_alone() -> None:
    spec = seal(SPEC, None)
    actor = canonical.document(render.actor_profile(spec))
    teacher: Any = canonical.document(render.teacher_profile(spec, "big"))
    assert teacher.pop("name") == "acme/finder-teacher"
    assert actor.pop("name") == "acme/finder"
    assert teacher["agent"].pop("model") == "big"
    assert teacher["agent"]["files"].pop() == {"path": "answers.key", "content": "42\n"}
    agent: Any = actor["agent"]
    assert agent.pop("model") == "tiny"
    assert teacher == actor


def test_generation_tells_the_generator_what_the_model_is_told() -> None:
    spec = seal(SPEC, None)
    made = render.generation(spec, "big")
    assert list(made.messages) == [{"role": "system", "content": INSTRUCTIONS}]
    assert list(made.tools) == chat_tools()
    assert made.parts == render.parts(spec)
    assert made.profile_digest == canonical.digest(made.profile)
    assert made.withheld == ("answers.key", "reference/")


REFUSED: list[tuple[dict[str, Any], str, ErrorCode]] = [
    ({"args": ["finder"]}, "/instructions", ErrorCode.INVALID_DOCUMENT),
    (
        {"args": ["f", "${nope}", "${spec.instructions}"]},
        "/deployment/args/1",
        ErrorCode.UNKNOWN_BINDING,
    ),
    (
        {"env": {"ANTHROPIC_BASE_URL": "http://x"}},
        "/deployment/env/ANTHROPIC_BASE_URL",
        ErrorCode.LAUNCH_CONFLICT,
    ),
    (
        {"engine": {"name": "claude-code", "version": "latest"}},
        "/deployment/engine/version",
        ErrorCode.ENGINE_UNSUPPORTED,
    ),
    ({"workdir": "work"}, "/deployment/workdir", ErrorCode.INVALID_DOCUMENT),
]


@pytest.mark.parametrize(("changes", "pointer", "code"), REFUSED)
def test_what_cannot_be_deployed_is_refused_at_its_place(
    changes: dict[str, Any], pointer: str, code: ErrorCode
) -> None:
    with pytest.raises(InvalidInput) as caught:
        render.actor_profile(spec_with(deployment={**SPEC["deployment"], **changes}))
    problem = caught.value.problem
    assert (problem.object and problem.object.pointer, problem.code) == (pointer, code)


def test_instructions_may_be_the_whole_of_a_file() -> None:
    files = [{"path": "CLAUDE.md", "content": "${spec.instructions}"}]
    deployment = {**SPEC["deployment"], "args": ["finder"], "files": files}
    profile = render.actor_profile(spec_with(deployment=deployment))
    assert profile.agent.files[0].content == INSTRUCTIONS


@pytest.mark.parametrize("place", ["tools", "output"])
def test_a_schema_that_is_none_is_refused(place: str) -> None:
    bad: dict[str, Any] = {"type": "nonsense"}
    changes: dict[str, Any] = {"output": {"json_schema": bad}}
    if place == "tools":
        changes = {"tools": [{"name": "search", "input_schema": bad}]}
    with pytest.raises(InvalidInput, match="not a JSON Schema"):
        render.check_schemas(spec_with(**changes))
