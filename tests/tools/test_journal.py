"""`practicum journal`: by name and by path, links with digests, clear refusals. Needs no stack."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from runtime.home import Home
from specs import canonical, package
from specs.errors import ErrorCode, PracticumError
from specs.ids import Prefix, new_id
from specs.journal import JournalEntry, JournalExport, JournalInfo, JournalList, JournalPage
from tools.cli import main
from tools.context import Context
from tools.registry import call, find

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Context:
    monkeypatch.setenv("PRACTICUM_NO_AUTOSTART", "1")
    monkeypatch.setenv("PRACTICUM_AUTHOR", "ada")
    monkeypatch.chdir(tmp_path)
    return Context(Home.at(tmp_path / "home"))


async def journal[O](context: Context, verb: str, output: type[O], **values: Any) -> O:
    result = await call(find("journal", verb), context, values)
    assert isinstance(result, output)
    assert find("journal", verb).text(result)
    return result


async def test_a_named_journal_lies_in_the_home_and_a_path_is_the_users_own(
    context: Context, tmp_path: Path
) -> None:
    named = await journal(context, "new", JournalInfo, journal="shell", title="Shell tasks")
    own = await journal(context, "new", JournalInfo, journal="./notes", author="eve")
    assert Path(named.folder) == context.home.journals / "shell"
    assert Path(own.folder) == tmp_path / "notes"
    assert (named.title, own.title, named.entries) == ("Shell tasks", "notes", 0)
    entry = await journal(context, "append", JournalEntry, journal=own.folder, text="seen")
    assert (entry.author, entry.kind, entry.seq) == ("ada", "note", 1)
    page = (tmp_path / "notes" / "journal.md").read_text()
    assert "by eve" in page
    assert "> seen" in page
    listed = await journal(context, "list", JournalList)
    assert [info.journal for info in listed.items] == ["shell"]


async def test_work_is_picked_up_from_the_journal_alone(context: Context) -> None:
    run = new_id(Prefix.RUN)
    await journal(context, "new", JournalInfo, journal="j")
    first = await journal(
        context, "append", JournalEntry, journal="j", text="It learns.", kind="hypothesis"
    )
    await journal(
        context,
        "append",
        JournalEntry,
        journal="j",
        text="Train for two epochs.",
        kind="decision",
        links=(f"run:{run}",),
        data='{"epochs": 2}',
    )
    shown = await journal(context, "show", JournalPage, journal="j", limit=1)
    assert [entry.text for entry in shown.items] == ["Train for two epochs."]
    assert (shown.journal.entries, shown.items[0].data) == (2, {"epochs": 2})
    older = await journal(context, "show", JournalPage, journal="j", cursor=shown.next)
    assert older.items == [first]
    assert (await journal(context, "show", JournalPage, journal="j", open=True)).items == [first]
    assert (await journal(context, "show", JournalPage, journal="j", entry="1")).items == [first]
    found = await journal(
        context, "search", JournalPage, journal="j", link=f"run:{run}", text="EPOCHS 2", since="1d"
    )
    assert found.items == shown.items
    none = await journal(context, "search", JournalPage, journal="j", kind=("change",))
    assert none.items == []


async def test_what_an_entry_links_to_is_shown_with_the_command_that_shows_it(
    context: Context,
) -> None:
    run, trial, checkpoint = (new_id(p) for p in (Prefix.RUN, Prefix.TRIAL, Prefix.CHECKPOINT))
    await journal(context, "new", JournalInfo, journal="j")
    first = await journal(context, "append", JournalEntry, journal="j", text="t")
    links = (f"run:{run}", f"trial:{trial}", f"checkpoint:{checkpoint}", f"entry:{first.id}")
    await journal(context, "append", JournalEntry, journal="j", text="t", links=links)
    await journal(context, "append", JournalEntry, journal="j", text="t", links=links[1:2])
    page = await journal(context, "show", JournalPage, journal="j")
    lines = find("journal", "show").text(page).splitlines()
    commands = [line.split("   ", 1)[1] for line in lines if line.startswith("  ->")]
    assert commands == [
        f"practicum run transcript RUN {trial}",
        f"practicum run show {run}",
        f"practicum run transcript {run} {trial}",
        f"practicum checkpoint show {checkpoint}",
        f"practicum journal show j --entry {first.id}",
    ]


async def test_a_file_and_a_skill_are_linked_in_the_revision_of_that_moment(
    context: Context, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text("{}")
    skill = tmp_path / "skill"
    skill.mkdir()
    (skill / "SKILL.md").write_text("# One")
    await journal(context, "new", JournalInfo, journal="j")
    named = ("dataset:acme/x@v1", "model-spec:acme/shell")
    links = ("file:a.json", "skill:skill", "skill:skill/SKILL.md", "model-spec:a.json", *named)
    entry = await journal(context, "append", JournalEntry, journal="j", text="t", links=links)
    file, folder, same, spec, dataset, name = entry.links
    assert (file.id, file.digest) == (str(tmp_path / "a.json"), canonical.digest_bytes(b"{}"))
    assert folder == same
    assert (folder.id, folder.digest) == (str(skill), canonical.digest_bytes(package.pack(skill)))
    assert (spec.id, spec.digest) == (file.id, file.digest)
    assert [(link.id, link.digest) for link in (dataset, name)] == [
        ("acme/x@v1", None),
        ("acme/shell", None),
    ]
    text = find("journal", "show").text(await journal(context, "show", JournalPage, journal="j"))
    assert text.count("practicum model-spec show") == 1
    (skill / "SKILL.md").write_text("# Two")
    later = await journal(
        context, "append", JournalEntry, journal="j", text="t", links=("skill:skill",)
    )
    (tmp_path / "a.json").unlink()
    shown = await journal(context, "show", JournalPage, journal="j", verify=True)
    assert shown.changed == [file, folder, same, spec]
    assert shown.ok
    assert later.links[0].digest not in (None, folder.digest)
    both = await journal(context, "search", JournalPage, journal="j", link="skill:skill")
    assert both.items == [later, entry]


async def test_calls_at_once_each_add_one_entry_and_the_page_follows(context: Context) -> None:
    await journal(context, "new", JournalInfo, journal="j")
    numbers: list[int] = []

    async def add(text: str) -> None:
        entry = await journal(context, "append", JournalEntry, journal="j", text=text)
        numbers.append(entry.seq)

    async with anyio.create_task_group() as calls:
        for number in range(50):
            calls.start_soon(add, f"call {number}")
    assert sorted(numbers) == [*range(1, 51)]
    shown = await journal(context, "show", JournalPage, journal="j", verify=True, limit=50)
    assert shown.ok
    assert {entry.text for entry in shown.items} == {f"call {number}" for number in range(50)}
    page = (context.home.journals / "j" / "journal.md").read_text()
    assert all(f"> call {number}\n" in page for number in range(50))


async def test_a_page_that_cannot_be_written_keeps_nobody_from_the_record(context: Context) -> None:
    await journal(context, "new", JournalInfo, journal="j")
    (context.home.journals / "j" / ".journal.md.part").mkdir()
    entry = await journal(context, "append", JournalEntry, journal="j", text="seen")
    assert (await journal(context, "show", JournalPage, journal="j")).items == [entry]


async def test_text_and_data_may_come_from_files(context: Context, tmp_path: Path) -> None:
    (tmp_path / "t.md").write_text("Long\ntext.\n")
    (tmp_path / "d.json").write_text('{"reward": 0.5}')
    await journal(context, "new", JournalInfo, journal="j")
    entry = await journal(
        context, "append", JournalEntry, journal="j", text="@t.md", data="@d.json"
    )
    assert (entry.text, entry.data) == ("Long\ntext.\n", {"reward": 0.5})


async def test_an_export_is_the_whole_record(context: Context, tmp_path: Path) -> None:
    await journal(context, "new", JournalInfo, journal="j")
    await journal(context, "append", JournalEntry, journal="j", text="seen")
    lines = context.home.journals / "j" / "journal.jsonl"
    out = await journal(context, "export", JournalExport, journal="j", format="jsonl", out="o")
    assert (tmp_path / "o").read_bytes() == lines.read_bytes()
    assert out.digest == canonical.digest_bytes(lines.read_bytes())
    await journal(context, "export", JournalExport, journal="j")
    assert "> seen" in (tmp_path / "journal-j.md").read_text()
    lines.write_bytes(lines.read_bytes().replace(b"seen", b"SEEN"))
    with pytest.raises(PracticumError) as refused:
        await journal(context, "export", JournalExport, journal="j")
    assert refused.value.problem.code is ErrorCode.JOURNAL_DAMAGED
    shown = await journal(context, "show", JournalPage, journal="j", verify=True)
    assert not shown.ok
    assert shown.problems[0].byte > 0


APPEND = {"journal": "j", "text": "t"}
INVALID_REFERENCE = ErrorCode.INVALID_REFERENCE
LONG = "a" * 300

BAD: list[tuple[str, dict[str, Any], ErrorCode]] = [
    ("new", {"journal": "j"}, ErrorCode.STATE_CONFLICT),
    ("new", {"journal": "Not A Name"}, ErrorCode.INVALID_REFERENCE),
    ("new", {"journal": "a.json/j"}, ErrorCode.INVALID_REFERENCE),
    ("show", {"journal": "k"}, ErrorCode.NOT_FOUND),
    ("show", {"journal": "./k"}, ErrorCode.NOT_FOUND),
    ("show", {"journal": "j", "entry": "7"}, ErrorCode.NOT_FOUND),
    ("show", {"journal": "j", "cursor": "1"}, ErrorCode.INVALID_DOCUMENT),
    ("append", {"journal": "k", "text": "t"}, ErrorCode.NOT_FOUND),
    ("append", {**APPEND, "kind": "thought"}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "text": " \n"}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "text": "x" * 8001}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "text": "a\udc80"}, ErrorCode.INVALID_JSON),
    ("append", {**APPEND, "text": "@absent"}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "text": "@binary"}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "author": ""}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "data": "[1]"}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "data": '{"a": NaN}'}, ErrorCode.INVALID_JSON),
    ("append", {**APPEND, "links": ("run",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("planet:x",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("run:run_1",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": (f"run:{new_id(Prefix.TRIAL)}",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("dataset:x",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("model-spec:absent.json",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("file:absent",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("file:.",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("skill:.",)}, ErrorCode.INVALID_REFERENCE),
    ("append", {**APPEND, "links": ("file:a.json",) * 17}, ErrorCode.INVALID_DOCUMENT),
    ("append", {**APPEND, "links": (f"entry:{'jrn_' + '0' * 32}",)}, ErrorCode.NOT_FOUND),
    ("search", {"journal": "j", "since": "yesterday"}, ErrorCode.INVALID_DOCUMENT),
    ("search", {"journal": "j", "since": "999999999d"}, ErrorCode.INVALID_DOCUMENT),
    ("search", {"journal": "j", "link": "nothing"}, ErrorCode.INVALID_REFERENCE),
    ("search", {"journal": "j", "kind": ("thought",)}, ErrorCode.INVALID_DOCUMENT),
    ("export", {"journal": "j", "out": "absent/x"}, ErrorCode.INVALID_REFERENCE),
    ("append", {"journal": "j", "text": "@a\0b"}, ErrorCode.INVALID_JSON),
    ("append", {"journal": "j", "text": "@~no-such-user/x"}, ErrorCode.INVALID_REFERENCE),
    ("append", {"journal": "j", "text": "x", "links": (f"skill:{LONG}",)}, INVALID_REFERENCE),
    ("append", {"journal": "j", "text": "x", "links": (f"model-spec:{LONG}",)}, INVALID_REFERENCE),
    ("show", {"journal": "~no-such-user/x"}, ErrorCode.INVALID_REFERENCE),
    ("show", {"journal": f"./{LONG}"}, ErrorCode.INVALID_REFERENCE),
    ("show", {"journal": "j", "cursor": "9" * 5000}, ErrorCode.INVALID_DOCUMENT),
    ("show", {"journal": "j", "entry": "9" * 5000}, ErrorCode.NOT_FOUND),
    ("export", {"journal": "j", "out": "~no-such-user/x"}, ErrorCode.INVALID_REFERENCE),
]


@pytest.mark.parametrize(("verb", "values", "code"), BAD)
async def test_bad_input_is_refused_with_its_cause_and_changes_nothing(
    context: Context, tmp_path: Path, verb: str, values: dict[str, Any], code: ErrorCode
) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    await journal(context, "new", JournalInfo, journal="j")
    with pytest.raises(PracticumError) as refused:
        await call(find("journal", verb), context, values)
    assert refused.value.problem.code is code
    assert refused.value.problem.next
    assert (await journal(context, "show", JournalPage, journal="j")).journal.entries == 0


def test_the_commands_speak_json_and_end_with_their_codes(
    context: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(context.home.root))
    assert main(["journal", "new", "j", *home]) == 0
    words = ["journal", "append", "j", "Seen.", "--kind", "observation", "--data", '{"a": 1}']
    capfd.readouterr()
    assert main([*words, "--link", "dataset:a/b@v1", "--json", *home]) == 0
    entry = json.loads(capfd.readouterr().out)
    assert (entry["kind"], entry["data"], entry["links"][0]["type"]) == (
        "observation",
        {"a": 1},
        "dataset",
    )
    assert main(["journal", "show", "j", *home]) == 0
    assert "#1 observation" in capfd.readouterr().out
    assert main(["journal", "show", "k", *home]) == 3
    assert main(["journal", "append", "j", "x", "--kind", "thought", *home]) == 2


@pytest.mark.parametrize("obstacle", ["folder", "pipe", "empty"])
async def test_one_journal_that_cannot_be_read_hides_no_other(
    context: Context, obstacle: str
) -> None:
    await journal(context, "new", JournalInfo, journal="good")
    bad = context.home.journals / "bad" / "journal.jsonl"
    bad.parent.mkdir()
    {"folder": bad.mkdir, "pipe": lambda: os.mkfifo(bad), "empty": bad.touch}[obstacle]()
    (context.home.journals / "No Name").mkdir()
    (context.home.journals / "No Name" / "journal.jsonl").touch()
    listed = await journal(context, "list", JournalList)
    assert [info.journal for info in listed.items] == ["good"]
    assert [str(bad) in cause for cause in listed.unreadable] == [True]
    assert not listed.ok
    calls: list[tuple[str, dict[str, Any]]] = [("show", {}), ("append", {"text": "x"})]
    for verb, more in [*calls, ("export", {"out": "x.md"})]:
        with pytest.raises(PracticumError) as refused:
            await call(find("journal", verb), context, {"journal": "bad", **more})
        assert refused.value.problem.code in (INVALID_REFERENCE, ErrorCode.JOURNAL_DAMAGED)


def test_what_an_entry_says_cannot_steer_the_terminal_of_its_reader(
    context: Context, capfd: pytest.CaptureFixture[str]
) -> None:
    home = ("--home", str(context.home.root))
    assert main(["journal", "new", "j", *home]) == 0
    assert main(["journal", "append", "j", "ok\x1b[2J\u202eko\x9b1m\tä", *home]) == 0
    assert main(["journal", "show", "j", *home]) == 0
    shown = capfd.readouterr().out
    assert "ok\\x1b[2J\\u202eko\\x9b1m\tä" in shown
    assert not set("\x1b\x9b\u202e") & set(shown)
