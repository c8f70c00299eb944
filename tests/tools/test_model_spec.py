"""Model specifications by operation: written, checked, rendered, and the shipped example."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from runtime.home import Home
from runtime.specialist.findings import Cause
from specs import canonical
from specs.errors import Conflict, ErrorCode, PracticumError
from specs.launch import validate_profile
from specs.model_spec import Generation
from specs.profile import Profile
from tests.runtime.specialist.desk import SPEC, row
from tools.context import Context
from tools.registry import call, find

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "shell-specialist.json")
ROWS = ROOT / "examples" / "rows"
HELD_OUT = str(ROOT / "examples" / "shell-held-out")

type Do = Callable[..., Any]


@pytest.fixture
def do(tmp_path: Path) -> Do:
    """Calls an operation as the CLI and MCP do; there is no stack."""

    def run(verb: str, **values: Any) -> Any:
        context = Context(Home.at(tmp_path / "home"))
        return anyio.run(call, find("model-spec", verb), context, values)

    return run


def rows_file(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return str(path)


@pytest.mark.parametrize("name", ["commands", "commands-check"])
def test_the_example_rows_fit_the_example_specification(do: Do, name: str) -> None:
    found = do("check", spec=EXAMPLE, rows=str(ROWS / f"{name}.jsonl"), held_out=HELD_OUT)
    assert found.ok
    assert found.held_out == 56
    assert {one.digest for one in found.variants} == {found.parts.instructions, found.parts.tools}


def test_the_example_is_the_baseline_with_its_instructions_told(do: Do) -> None:
    rendered = do("render", spec=EXAMPLE)
    baseline = json.loads((ROOT / "examples" / "profiles" / "baseline.json").read_text())
    ours, theirs = rendered.document["agent"], baseline["agent"]
    at = theirs["args"].index("/opt/harness/agent.py") + 1
    told = ["--system", "Reply with one shell command."]
    assert ours["args"] == [*theirs["args"][:at], *told, *theirs["args"][at:]]
    for key in ("model", "engine", "env", "instruction", "sampling", "workdir"):
        assert ours[key] == theirs[key]


def test_a_held_out_answer_among_the_rows_is_named(do: Do, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (ROWS / "commands.jsonl").read_bytes().splitlines()]
    rows[3]["messages"][2]["content"] = "cp breeze.csv coral.txt"
    found = do("check", spec=EXAMPLE, rows=rows_file(tmp_path, *rows), held_out=HELD_OUT)
    assert not found.ok
    assert found.counts == {Cause.HELD_OUT_ANSWER: 1}
    assert (found.findings[0].row, found.rows_found, found.rows) == (4, 1, len(rows))
    assert "held-out-01-copy-file" in found.findings[0].detail


def test_findings_are_limited_by_cause_and_counted_in_full(do: Do, tmp_path: Path) -> None:
    bad: dict[str, Any] = {**row(), "tools": []}
    worse: dict[str, Any] = {**row(answer=" "), "tools": []}
    path = rows_file(tmp_path, bad, bad, bad, worse)
    found = do("check", spec=SPEC, rows=path, limit=2)
    assert found.counts == {Cause.TOOLS_DIFFER: 4, Cause.ANSWER_EMPTY: 1}
    assert [(one.row, one.cause) for one in found.findings] == [
        (1, Cause.TOOLS_DIFFER),
        (2, Cause.TOOLS_DIFFER),
        (4, Cause.ANSWER_EMPTY),
    ]
    text = find("model-spec", "check").text(found)
    assert "lacks the tool search" in text


def test_what_create_writes_validates_and_pins_its_resources(do: Do, tmp_path: Path) -> None:
    (tmp_path / "system.md").write_text("Be short.\n")
    (tmp_path / "facts.md").write_text("Facts.\n")
    file = str(tmp_path / "spec.json")
    start = {**SPEC, "resources": [{"path": "/work/facts.md", "source": "facts.md"}]}
    del start["withheld"]
    created = do(
        "create",
        file=file,
        spec=start,
        name="acme/other",
        instructions=f"@{tmp_path / 'system.md'}",
        useful=["short=At most a sentence."],
        model="small",
    )
    assert do("validate", spec=file) == created.spec
    document = json.loads(Path(file).read_text())
    assert document["instructions"] == {"source": "system.md"}
    assert document["resources"][0]["digest"] == canonical.digest_bytes(b"Facts.\n")
    assert (created.spec.name, created.spec.model) == ("acme/other", "small")
    (tmp_path / "facts.md").write_text("Other facts.\n")
    with pytest.raises(PracticumError) as caught:
        do("validate", spec=file)
    assert caught.value.problem.code == ErrorCode.DIGEST_MISMATCH


FIELDS = {
    "name": "acme/short",
    "behaviour": "Answers.",
    "instructions": "Be short.",
    "model": "tiny",
    "useful": ("right=It is right.",),
}


def test_a_file_that_is_there_stays_unless_it_is_said_to_be_replaced(
    do: Do, tmp_path: Path
) -> None:
    file = tmp_path / "spec.json"
    first = do("create", file=str(file), **FIELDS)
    before = file.read_bytes()
    assert do("create", file=str(file), **FIELDS).replaced is None
    changed = {**FIELDS, "instructions": "Be long."}
    with pytest.raises(Conflict):
        do("create", file=str(file), **changed)
    assert file.read_bytes() == before
    second = do("create", file=str(file), **changed, replace=True)
    assert second.replaced == canonical.digest_bytes(before)
    assert second.spec.parts.instructions != first.spec.parts.instructions
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("missing", ["name", "behaviour", "instructions", "model", "useful"])
def test_nothing_is_written_that_does_not_validate(do: Do, tmp_path: Path, missing: str) -> None:
    fields = {key: value for key, value in FIELDS.items() if key != missing}
    with pytest.raises(PracticumError, match=missing):
        do("create", file=str(tmp_path / "spec.json"), **fields)
    assert not (tmp_path / "spec.json").exists()


def test_rendered_files_are_what_was_shown_and_can_be_launched(do: Do, tmp_path: Path) -> None:
    for kind in ("profile", "teacher"):
        to = str(tmp_path / f"{kind}.json")
        shown = do("render", spec=SPEC, kind=kind, model="big")
        written = do("render", spec=SPEC, kind=kind, model="big", to=to)
        document = json.loads(Path(to).read_text())
        assert document == shown.document
        assert written.digest == shown.digest == canonical.digest(document)
        validate_profile(canonical.validate(Profile, document, what="profile"))
    bundle = do("render", spec=SPEC, kind="generation", model="big")
    made = canonical.validate(Generation, bundle.document, what="generation")
    assert made.profile_digest == canonical.digest(
        json.loads((tmp_path / "teacher.json").read_text())
    )
    with pytest.raises(PracticumError, match="teacher needs a model"):
        do("render", spec=SPEC, kind="teacher")


def test_show_cuts_long_texts_and_keeps_digests(do: Do) -> None:
    long = {**SPEC, "instructions": "word " * 1000}
    shown = do("show", spec=long)
    assert len(shown.document["instructions"]) < 450
    assert shown.view.digest == do("validate", spec=long).digest
    assert "acme/finder" in find("model-spec", "show").text(shown)


@pytest.mark.parametrize("instructions", ["@loop", "@" + "a" * 300, "@~no-such-user/x"])
def test_instructions_that_cannot_be_found_are_refused(
    do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instructions: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(PracticumError) as refused:
        do(
            "create",
            file="new.json",
            name="acme/x",
            behaviour="b",
            instructions=instructions,
            model="tiny",
            useful=("a=b",),
        )
    assert refused.value.problem.status < 500
    assert not (tmp_path / "new.json").exists()


def test_a_teacher_without_a_name_is_not_the_deployed_model(do: Do) -> None:
    for model in (None, ""):
        with pytest.raises(PracticumError) as refused:
            do("render", spec=EXAMPLE, kind="teacher", model=model)
        assert refused.value.problem.next
