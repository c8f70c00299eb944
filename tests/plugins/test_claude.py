"""The Claude Code plugin: equal skills, hooks that cover the registry, manifests that are valid.

Claude Code itself is asked offline, with a configuration of its own.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.native import engines
from tests.e2e.support import obtained
from tools import registry
from tools.hooks import SERVERS, reason_to_ask
from tools.plugin import marketplace

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "claude"
SKILLS = ROOT / "skills"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_plugin_carries_the_skills_as_they_are() -> None:
    assert tree(PLUGIN / "skills") == tree(SKILLS), "run: make plugin"


def test_the_server_is_started_by_the_command() -> None:
    servers = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]
    assert servers["practicum"]["args"] == ["mcp"]
    assert "practicum" in servers["practicum"]["command"]


def test_the_guard_is_called_for_exactly_what_it_asks_about() -> None:
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    (group,) = hooks["PreToolUse"]
    matcher = re.compile(group["matcher"])
    assert matcher.fullmatch("Bash")
    for chosen in registry.operations():
        asked = chosen.traits.agent and reason_to_ask(chosen.traits) is not None
        for server in SERVERS:
            assert bool(matcher.fullmatch(server + chosen.name)) == asked, (
                f"{chosen.name}: correct the matcher in hooks.json"
            )


def test_every_hook_has_a_time_limit_and_is_one_that_the_command_answers() -> None:
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]
    events = registry.find("plugin", "hook").input.model_json_schema()["properties"]["event"][
        "enum"
    ]
    called = [hook for groups in hooks.values() for group in groups for hook in group["hooks"]]
    assert {hook["command"].split()[-1] for hook in called} == {*events, "session-end"}
    assert all(hook["timeout"] > 0 for hook in called)


@pytest.fixture(scope="module")
def claude() -> str:
    """The pinned program."""
    return str(obtained(engines.install).program)


def isolated(folder: Path) -> dict[str, str]:
    """An environment with a home and a configuration of its own."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CLAUDE_CONFIG_DIR": str(folder / "config"),
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def ask(program: str, folder: Path, *words: str) -> str:
    """What Claude Code prints; it must succeed."""
    done = subprocess.run(
        [program, "plugin", *words],
        capture_output=True,
        text=True,
        env=isolated(folder),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_claude_code_accepts_plugin_and_marketplace(claude: str, tmp_path: Path) -> None:
    for path in (PLUGIN, marketplace()):
        ask(claude, tmp_path, "validate", str(path), "--strict")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_plugin_is_installed_from_the_local_marketplace(claude: str, tmp_path: Path) -> None:
    """Twice, which is harmless; then Claude Code knows its skills, agents, hooks and server."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "claude").symlink_to(claude)
    environment = {
        **isolated(tmp_path),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for _ in range(2):
        install = [sys.executable, "-P", "-m", "tools", "plugin", "install", "--json"]
        done = subprocess.run(install, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["plugin"] == "practicum@practicum"
    (listed,) = json.loads(ask(claude, tmp_path, "list", "--json"))
    assert listed["id"] == "practicum@practicum" and listed["enabled"]
    details = ask(claude, tmp_path, "details", "practicum")
    for name in ("run-training", "quality-reviewer", "SessionStart", "practicum"):
        assert name in details
    always_on = re.search(r"lways-on\D+([\d,]+)", details)
    assert always_on is not None and int(always_on[1].replace(",", "")) < 1500, details
