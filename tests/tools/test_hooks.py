"""What the plugin's hooks decide: asking before a call, and noticing an unwritten journal."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from tools import registry
from tools.hooks import SERVERS, Call, HookInput, calls, guard, unwritten
from tools.index import SUMMARIES

SERVER = SERVERS[0]


def asked(tool: str, mode: str = "default", **given: JsonValue) -> str | None:
    return guard(HookInput(tool_name=tool, tool_input=given, permission_mode=mode))


def test_the_guard_asks_before_exactly_what_the_traits_say() -> None:
    for chosen in registry.operations():
        traits = chosen.traits
        must = traits.destructive or traits.spends or traits.decides
        for server in SERVERS:
            assert (asked(server + chosen.name) is not None) == must, chosen.name
        in_shell = f"practicum {chosen.noun} {chosen.verb} x".replace(
            "practicum stack ", "practicum "
        )
        assert (asked("Bash", command=in_shell) is not None) == must, chosen.name


def test_what_starts_work_spends() -> None:
    for name in ("run_start", "train_start", "train_check", "run_extend"):
        assert "spends a budget" in (asked(SERVER + name) or "")


def test_a_dry_run_is_not_asked_about() -> None:
    assert asked(f"{SERVER}run_start", dry_run=True) is None
    assert asked(f"{SERVER}run_start", dry_run=False) is not None
    assert asked("Bash", command="practicum train start --plan @p.json --dry-run") is None


def test_nothing_is_asked_where_asking_is_turned_off() -> None:
    assert asked(f"{SERVER}run_cancel", mode="bypassPermissions") is None
    assert asked(f"{SERVER}run_cancel", mode="acceptEdits") is not None


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("cd work && practicum --home h run cancel run_1", [("run", "cancel")]),
        ("/opt/bin/practicum down; ls", [("stack", "down")]),
        (
            "practicum run show r\npracticum checkpoint delete c",
            [("run", "show"), ("checkpoint", "delete")],
        ),
        ("X=1 nohup practicum train start --actor @a.json & wait", [("train", "start")]),
        ("$(practicum run cancel r)", [("run", "cancel")]),
        ("cd x && bash -c 'practicum run cancel r'", [("run", "cancel")]),
        ('timeout 9 /bin/sh -ec "ls; eval \\"practicum down\\""', [("stack", "down")]),
        ("cat <<E\nit's open\nE\npracticum run cancel r", [("run", "cancel")]),
        ('R="$(practicum run start --actor @a.json)"', [("run", "start")]),
        ('echo "run: `practicum run cancel r`"', [("run", "cancel")]),
        ("R=`practicum run start` && echo $R", [("run", "start")]),
        ("practicum run \\\n  cancel r", [("run", "cancel")]),
        ("prac\\\nticum run cancel r", [("run", "cancel")]),
        (".venv/bin/python -P -m tools run cancel r", [("run", "cancel")]),
        ("echo a#b; practicum run cancel r", [("run", "cancel")]),
        ("python -m tools_of_mine run cancel r", []),
        ("echo 'practicum run cancel r'", []),
        ("grep -r run start practicum", []),
        ("git commit -m 'practicum: down with it'", []),
    ],
)
def test_operations_are_found_in_shell_commands(command: str, found: list[tuple[str, str]]) -> None:
    assert [(call.noun, call.verb) for call in calls("Bash", {"command": command})] == found


def test_a_dry_run_may_stand_on_a_line_of_its_own() -> None:
    command = "practicum train start \\\n  --plan @p.json \\\n  --dry-run"
    assert asked("Bash", command=command) is None
    assert asked("Bash", command=command.replace("--dry-run", "--json")) is not None


@pytest.mark.parametrize(
    "command",
    [
        "P=practicum; $P run cancel r",
        'P="python -m tools"; $P run cancel r',
        "ssh host 'practicum run cancel r'",
        'python -c \'import os; os.execvp("practicum", ["practicum", "run", "cancel"])\'',
        "alias p=practicum\np run cancel r",
    ],
)
def test_the_guard_asks_where_the_words_stand_in_what_it_does_not_understand(command: str) -> None:
    assert "run_cancel may end" in (asked("Bash", command=command) or "")
    assert asked("Bash", mode="bypassPermissions", command=command) is None


@pytest.mark.parametrize(
    "command",
    [
        "P=practicum; $P run show r",
        "run cancel r",
        "grep -n 'run the start' practicum/notes",
        "practicum journal append j 'Next: practicum run start'",
        "git commit -m 'practicum: down with it'",
    ],
)
def test_the_guard_asks_about_no_other_words(command: str) -> None:
    assert asked("Bash", command=command) is None


@given(st.text(), st.sampled_from(sorted(SUMMARIES)))
def test_no_text_around_a_command_breaks_the_guard(text: str, key: tuple[str, str]) -> None:
    calls("Bash", {"command": text})
    asked("Bash", command=f"practicum {text}")
    noun, verb = key
    words = f"practicum {noun} {verb}" if noun != "stack" else f"practicum {verb}"
    assert calls("Bash", {"command": f"{words}\n"}) == [Call(noun, verb)]


def turn(at: int, name: str, **given: JsonValue) -> str:
    block = {"type": "tool_use", "id": f"t{at}", "name": name, "input": given}
    said = {"role": "assistant", "content": [{"type": "text", "text": "so"}, block]}
    return json.dumps(
        {"type": "assistant", "timestamp": f"2026-11-30T00:00:{at:02}Z", "message": said}
    )


def failure(at: int) -> str:
    """The result of the call made at that time: an error."""
    result = {"type": "tool_result", "tool_use_id": f"t{at}", "is_error": True, "content": "no"}
    return json.dumps({"type": "user", "message": {"role": "user", "content": [result]}})


def transcript(folder: Path, *turns: str) -> Path:
    file = folder / "session.jsonl"
    file.write_text("\n".join([json.dumps({"type": "user", "message": {"content": "x"}}), *turns]))
    return file


def test_reading_leaves_nothing_to_write_down(tmp_path: Path) -> None:
    file = transcript(
        tmp_path,
        turn(1, f"{SERVER}run_show", run="r"),
        turn(2, f"{SERVER}run_start", dry_run=True),
        turn(3, "Bash", command="practicum run result r"),
        turn(4, f"{SERVER}run_cancel", run="none"),
        failure(4),
        '{"type": "assistant", "tool_use": half a li',
    )
    assert unwritten(file) == []


def test_what_an_agent_did_counts_for_the_conversation_that_sent_it(tmp_path: Path) -> None:
    agents = tmp_path / "session" / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-1.jsonl").write_text(turn(5, f"{SERVER}train_start") + "\n")
    file = transcript(tmp_path, turn(1, "Bash", command="practicum run start"), turn(9, "Read"))
    assert unwritten(file) == ["run_start", "train_start"]
    assert unwritten(tmp_path / "missing.jsonl") == []


def test_calls_in_substitutions_and_over_lines_are_to_be_written_down(tmp_path: Path) -> None:
    started = turn(1, "Bash", command='R="$(practicum train start --actor @a.json)"')
    compared = turn(2, "Bash", command="practicum run \\\n  compare a b")
    assert unwritten(transcript(tmp_path, started, compared)) == ["train_start", "run_compare"]
    appended = turn(3, "Bash", command="practicum journal \\\n append j 'Started.'")
    assert unwritten(transcript(tmp_path, started, compared, appended)) == []


def test_an_entry_of_the_journal_settles_what_came_before_it(tmp_path: Path) -> None:
    written = turn(3, f"{SERVER}journal_append", journal="j", text="Started.")
    before = [turn(1, f"{SERVER}train_start"), turn(2, f"{SERVER}run_cancel")]
    assert unwritten(transcript(tmp_path, *before, written)) == []
    read = turn(4, f"{SERVER}journal_show", journal="j")
    after = [*before, written, read, turn(5, f"{SERVER}run_compare")]
    assert unwritten(transcript(tmp_path, *after)) == ["run_compare"]
    in_shell = turn(6, "Bash", command="practicum journal append j 'Compared.'")
    assert unwritten(transcript(tmp_path, *after, in_shell)) == []
