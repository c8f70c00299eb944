"""`practicum plugin`: its hooks, called as Claude Code calls them, and where the plugin is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from journals import Journal
from runtime.formats.carried import carried_tokenizer, load_codec
from runtime.home import Home
from specs.journal import JournalDraft
from tests.runtime.gateway import stage
from tools import registry
from tools.context import Context
from tools.overview import overview
from tools.plugin import PluginFolder, marketplace

ROOT = Path(__file__).resolve().parents[2]
LONGEST_START = 220
"""Qwen tokens of what a session is told at its start, at most."""
HOOK = ROOT / "plugins" / "claude" / "hooks" / "hook.sh"


@pytest.fixture
def command(tmp_path: Path) -> Path:
    return write_command(tmp_path / "practicum")


def write_command(program: Path) -> Path:
    """A program `practicum` of this checkout."""
    line = f'PYTHONPATH={ROOT} exec {sys.executable} -P -m tools "$@"'
    program.write_text(f"#!/bin/sh\n{line}\n")
    program.chmod(0o755)
    return program


def called(event: str, program: Path | str, home: Path, **given: JsonValue) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a hook of the plugin."""
    said = {"session_id": "s", "hook_event_name": "X", "cwd": str(home.parent), **given}
    return told(event, program, home, json.dumps(said).encode())


def told(event: str, program: Path | str, home: Path, stdin: bytes) -> tuple[int, str, str]:
    """The same of a hook that is told just this."""
    environment = {
        "PATH": os.environ["PATH"],
        "PRACTICUM_COMMAND": str(program),
        "PRACTICUM_HOME": str(home),
        "CLAUDE_PLUGIN_DATA": str(home.parent / "plugin data"),
        "CLAUDE_CODE_SESSION_ID": "s",
    }
    done = subprocess.run(
        ["sh", str(HOOK), event], env=environment, input=stdin, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_session_starts_without_a_stack_and_starts_none(command: Path, tmp_path: Path) -> None:
    code, out, err = called("session-start", command, tmp_path / "home", source="startup")
    assert (code, err) == (0, "")
    assert "no stack runs" in out
    assert not (tmp_path / "home").exists()


def test_a_session_starts_without_the_command(tmp_path: Path) -> None:
    code, out, _ = called("session-start", "no-such-practicum", tmp_path)
    assert code == 0 and "PRACTICUM_COMMAND" in out
    assert called("guard", "no-such-practicum", tmp_path, tool_name="Bash") == (0, "", "")


def test_the_guard_answers_as_claude_code_reads_it(command: Path, tmp_path: Path) -> None:
    tool = "mcp__plugin_practicum_practicum__run_cancel"
    code, out, _ = called("guard", command, tmp_path, tool_name=tool, tool_input={"run": "run_1"})
    answer = json.loads(out)["hookSpecificOutput"]
    assert code == 0
    assert answer["hookEventName"] == "PreToolUse" and answer["permissionDecision"] == "ask"
    assert "run_cancel may end or discard" in answer["permissionDecisionReason"]


@pytest.mark.parametrize("way", ["practicum", "python -m tools"])
def test_the_guard_hears_of_a_shell_command_that_names_the_program(
    command: Path, way: str, short_dir: Path
) -> None:
    given: dict[str, JsonValue] = {"command": f"{way} run cancel r"}
    code, out, _ = called("guard", command, short_dir, tool_name="Bash", tool_input=given)
    assert code == 0 and "run_cancel may end" in out


def test_other_shell_commands_do_not_reach_the_command(tmp_path: Path) -> None:
    given: dict[str, JsonValue] = {"command": "ls -m tool"}
    program = tmp_path / "refuses"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    home = Path("/tmp/elsewhere")
    assert called("guard", program, home, tool_name="Bash", tool_input=given)[0] == 0


def test_stopping_is_held_up_once_for_the_journal(command: Path, tmp_path: Path) -> None:
    call: dict[str, JsonValue] = {
        "type": "tool_use",
        "id": "t1",
        "name": "Bash",
        "input": {"command": "practicum run start --dataset a/b@v1"},
    }
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps({"type": "assistant", "message": {"content": [call]}}))
    code, out, _ = called("stop", command, tmp_path, transcript_path=str(file))
    answer = json.loads(out)
    assert code == 0 and answer["decision"] == "block" and "run_start" in answer["reason"]
    again = called("stop", command, tmp_path, transcript_path=str(file), stop_hook_active=True)
    assert again == (0, "", "")
    code, out, err = called("session-end", "no-such-practicum", tmp_path)
    assert (code, out) == (1, "") and "run_start" in err
    assert called("session-end", "no-such-practicum", tmp_path) == (0, "", "")


UNREAD = "Practicum: what Claude Code tells its hook cannot be read."


@pytest.mark.parametrize(
    "stdin",
    [b"practicum", b'["practicum"]', b'{"tool_input": "practicum"}', b"[" * 9999 + b"practicum"],
    ids=["no JSON", "no object", "another shape", "no end"],
)
def test_a_hook_that_cannot_read_what_it_is_told_refuses_nothing_and_the_guard_asks(
    command: Path, tmp_path: Path, stdin: bytes
) -> None:
    """Claude Code takes the exit code 2 for a refusal, of a call as of stopping."""
    assert told("stop", command, tmp_path, stdin) == (0, "", f"{UNREAD}\n")
    code, out, err = told("guard", command, tmp_path, stdin)
    answer = json.loads(out)["hookSpecificOutput"]
    assert (code, err) == (0, f"{UNREAD}\n")
    assert (answer["permissionDecision"], answer["permissionDecisionReason"]) == ("ask", UNREAD)


def test_a_hook_reads_a_text_that_was_cut_in_the_middle_of_a_character(
    command: Path, tmp_path: Path
) -> None:
    call = "practicum run cancel r; echo \ud83d"
    code, out, err = called(
        "guard", command, tmp_path, tool_name="Bash", tool_input={"command": call}
    )
    answer = json.loads(out)["hookSpecificOutput"]
    assert (code, err) == (0, "") and "run_cancel" in answer["permissionDecisionReason"]
    quiet = "practicum run show r; echo \ud83d"
    given: dict[str, JsonValue] = {"command": quiet}
    assert called("guard", command, tmp_path, tool_name="Bash", tool_input=given) == (0, "", "")
    assert called("stop", command, tmp_path, last="\ud83d", stop_hook_active=True) == (0, "", "")


def test_a_command_that_fails_refuses_nothing_and_the_guard_asks(tmp_path: Path) -> None:
    program = tmp_path / "practicum"
    program.write_text("#!/bin/sh\ncat > /dev/null\necho 'No such command.' >&2\nexit 2\n")
    program.chmod(0o755)
    stdin, says = b'{"x": "practicum"}', "No such command.\n"
    for event in ("session-start", "stop"):
        assert told(event, program, tmp_path, stdin) == (1, "", says)
    code, out, err = told("guard", program, tmp_path, stdin)
    assert (code, err) == (0, says)
    assert json.loads(out)["hookSpecificOutput"]["permissionDecision"] == "ask"


@pytest.mark.anyio
async def test_the_folder_is_the_one_that_the_marketplace_names(tmp_path: Path) -> None:
    chosen = registry.find("plugin", "path")
    found = await registry.call(chosen, Context(Home.at(tmp_path)), {})
    assert isinstance(found, PluginFolder)
    listed = json.loads((marketplace() / ".claude-plugin" / "marketplace.json").read_text())
    (entry,) = listed["plugins"]
    assert Path(found.plugin) == (marketplace() / entry["source"]).resolve()
    assert (
        json.loads((Path(found.plugin) / ".claude-plugin/plugin.json").read_text())["name"]
        == (entry["name"])
    )


def wordy(folder: Path, name: str) -> Journal:
    """A journal whose entries are long."""
    journal = Journal.create(folder, title=name, author="ada")
    for number in range(5):
        text = f"Entry {number} of {name}. " + "The loss fell, then it did not. " * 20
        journal.append(JournalDraft(kind="observation", author="ada", text=text))
    return journal


@pytest.mark.anyio
async def test_a_session_is_told_open_runs_and_the_newest_journal_in_few_words(
    short_dir: Path,
) -> None:
    home = stage.prepared_home(short_dir, stage.migrated(short_dir))
    async with stage.running(home) as stack:
        await stage.publish(stack)
        assert await overview(Context(home), short_dir) == "Practicum: no open runs."
        runs = [await stage.start(stack) for _ in range(7)]
        await stack.operator.cancel(runs[6])
        wordy(home.journals / "older", "older")
        wordy(short_dir / "journal", "here")
        told = await overview(Context(home), short_dir)
    assert "6 open runs" in told
    assert runs[5] in told and runs[6] not in told and runs[0] not in told
    assert "Journal ./journal ends" in told and "5 observation: Entry 4 of here" in told
    assert "older" not in told
    wordy(home.journals / "newer", "newer")
    assert "Journal newer ends" in await overview(Context(home), short_dir)
    codec = load_codec(carried_tokenizer("Qwen3Tokenizer"))
    assert len(codec.encode_text(told)) <= LONGEST_START


@pytest.mark.anyio
async def test_a_damaged_journal_is_named_and_stops_nothing(tmp_path: Path) -> None:
    journal = wordy(tmp_path / "journal", "here")
    (journal.folder / "journal.jsonl").write_text("{}\n")
    told = await overview(Context(Home.at(tmp_path / "home")), tmp_path)
    assert "no stack runs" in told and "Journal ./journal:" in told
