"""The Claude Code plugin: equal skills, a manifest that its own validator accepts, live tools."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools.index import SUMMARIES

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "claude"
SKILLS = ROOT / "skills"
CLAUDE = "@anthropic-ai/claude-code@2.1.197"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_plugin_carries_the_skills_as_they_are() -> None:
    assert tree(PLUGIN / "skills") == tree(SKILLS), "run: make plugin"


def test_the_server_is_started_by_the_command() -> None:
    servers = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"]
    assert servers["practicum"]["args"] == ["mcp"]
    assert "practicum" in servers["practicum"]["command"]


@pytest.mark.parametrize("skill", sorted(path.name for path in SKILLS.iterdir()))
def test_a_skill_names_itself_and_tools_that_exist(skill: str) -> None:
    text = (SKILLS / skill / "SKILL.md").read_text()
    head = text.split("---")[1]
    assert f"name: {skill}\n" in head
    description = re.search(r"description: (.*)\n", head)
    assert description is not None
    assert len(description[1]) < 1536
    nouns = "|".join({noun.replace("-", "_") for noun, _ in SUMMARIES})
    tools = {f"{noun}_{verb}".replace("-", "_") for noun, verb in SUMMARIES}
    for noun, verb in re.findall(rf"`({nouns})_([a-z]+)[` ]", text):
        assert f"{noun}_{verb}" in tools


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_claude_code_accepts_the_plugin(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = ROOT / ".tools" / "claude-code"
    claude = folder / "node_modules" / ".bin" / "claude"
    if not claude.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), CLAUDE]
        done = subprocess.run(install, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"{CLAUDE} cannot be installed: {done.stderr[-300:]}")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
        "DISABLE_AUTOUPDATER": "1",
    }
    done = subprocess.run(
        [str(claude), "plugin", "validate", str(PLUGIN), "--strict"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
