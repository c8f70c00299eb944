"""The protocol as others check it: the MCP conformance suite, and the inspector's command line.

The suite speaks HTTP and asks for fixed names, which `everything.py` has; the inspector speaks
HTTP and stdio with Practicum's own tools.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcp_server.resources import VIEWS
from runtime.home import Home
from tests.mcp_server.node_tools import NodeTools, node_tools
from tools.registry import operations

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PRACTICUM_NO_AUTOSTART": "1"}
LIMIT_SEC = 600

SCENARIOS = 32
"""Server scenarios of the pinned suite, pending ones among them."""


@dataclass(frozen=True)
class Served:
    url: str
    home: Home


@pytest.fixture(scope="module")
def tools() -> NodeTools:
    return node_tools()


@pytest.fixture(scope="module")
def everything() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        home = Path(folder) / "home"
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.mcp_server.everything", "--home", str(home)],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+/mcp", line)
        assert found, line + process.stderr.read()
        yield Served(found[0], Home.at(home))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SEC,
        check=False,
    )


def test_the_conformance_suite_passes(tools: NodeTools, everything: Served, tmp_path: Path) -> None:
    words = ("server", "--url", everything.url, "--suite", "all", "-o", str(tmp_path / "out"))
    done = run(tools.conformance(*words), tmp_path)
    told = (done.stdout + done.stderr)[-6000:]
    reports = list((tmp_path / "out").rglob("checks.json"))
    failed = [
        f"{report.parent.name}: {check['id']}: {check.get('errorMessage')}"
        for report in reports
        for check in json.loads(report.read_bytes())
        if check["status"] == "FAILURE"
    ]
    assert failed == [], told
    assert done.returncode == 0, told
    assert len(reports) == SCENARIOS, told


def reached(served: Served, transport: str, folder: Path) -> list[str]:
    """How the inspector reaches a server of Practicum.

    A file says it, since a server on stdio gets none of the inspector's environment and would
    run whatever code is installed, and since only there is patience with an answer stated.
    """
    told: dict[str, Any] = {
        "type": "streamable-http",
        "url": served.url,
        "headers": {"Authorization": f"Bearer {served.home.mcp_key_file.read_text()}"},
    }
    if transport == "stdio":
        arguments = ["-P", "-m", "tools", "mcp", "--home", str(served.home.root)]
        own = {name: ENVIRONMENT[name] for name in ("PYTHONPATH", "PRACTICUM_NO_AUTOSTART")}
        told = {"command": sys.executable, "args": arguments, "env": own}
    patience = {"connectionTimeout": 0, "requestTimeout": LIMIT_SEC * 1000}
    config = folder / "inspector.json"
    config.write_text(json.dumps({"mcpServers": {"practicum": told | patience}}))
    return ["--config", str(config), "--server", "practicum"]


def ask(tools: NodeTools, target: list[str], folder: Path, method: str, *words: str) -> Any:
    """What the inspector prints as the result of a method."""
    done = run(tools.inspector("--method", method, *words, *target), folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_the_inspector_finds_no_fault_in_the_tools_and_calls_one(
    tools: NodeTools, everything: Served, tmp_path: Path, transport: str
) -> None:
    target = reached(everything, transport, tmp_path)
    listed = ask(tools, target, tmp_path, "tools/list", "--strict")["tools"]
    offered = {one.name for one in operations() if one.traits.agent}
    assert offered <= {tool["name"] for tool in listed}
    called = ask(tools, target, tmp_path, "tools/call", "--tool-name", "stack_status")
    assert called["structuredContent"]["running"] is False


def test_the_inspector_reads_resources_and_prompts(
    tools: NodeTools, everything: Served, tmp_path: Path
) -> None:
    target = reached(everything, "http", tmp_path)
    fixed = {view.address for view in VIEWS if "{" not in view.address}
    listed = ask(tools, target, tmp_path, "resources/list")["resources"]
    assert fixed <= {one["uri"] for one in listed}
    schema = ("--uri", "practicum://schemas/run_start")
    read = ask(tools, target, tmp_path, "resources/read", *schema)
    assert "dry_run" in read["contents"][0]["text"]
    wanted = ("--prompt-name", "read_result", "--prompt-args", "run=run_7")
    prompt = ask(tools, target, tmp_path, "prompts/get", *wanted)
    assert "run_7" in prompt["messages"][0]["content"]["text"]
