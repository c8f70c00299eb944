"""The tool folder: a pinned program is installed once, whole or not at all.

npm is the paid edge here (a quarter of a gigabyte per install), so a small program of ours
stands in its place on PATH; `test_claude_code.py` uses what the real one installs.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runtime.native import engines
from specs.claude_code import PINNED_VERSION
from specs.errors import Unavailable

_NPM = """\
#!{python}
import json, os, sys, pathlib
calls = pathlib.Path({calls!r})
with calls.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + chr(10))
if os.environ.get("NPM_FAILS"):
    sys.exit("npm error 404 no such version")
folder = pathlib.Path(sys.argv[sys.argv.index("--prefix") + 1]) / "node_modules"
package, _, version = sys.argv[-1].rpartition("@")
native = os.environ.get("NPM_NATIVE", package + "-linux-x64")
(folder / native).mkdir(parents=True)
(folder / native / "claude").write_text("#!/bin/sh\\necho " + version + "\\n")
lock = {{"packages": {{"node_modules/" + native: {{
    "version": version, "integrity": os.environ.get("NPM_INTEGRITY", "sha512-any")}}}}}}
(folder / ".package-lock.json").write_text(json.dumps(lock))
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tool folder and an npm of its own; the file lists how npm was called."""
    path = tmp_path / "calls"
    program = tmp_path / "bin" / "npm"
    program.parent.mkdir()
    program.write_text(_NPM.format(python=sys.executable, calls=str(path)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PRACTICUM_TOOLS", str(tmp_path / "tools"))
    return path


def test_a_program_is_installed_once_by_exact_name_and_found_afterwards(calls: Path) -> None:
    assert engines.find("9.8.7") is None
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(engines.install, ["9.8.7"] * 4))
    assert len({one.manifest.digest for one in made}) == 1
    (call,) = calls.read_text().splitlines()
    assert json.loads(call)[-1] == "@anthropic-ai/claude-code@9.8.7"
    assert "--ignore-scripts" in json.loads(call)
    ran = subprocess.run([made[0].program], capture_output=True, text=True, check=True)
    assert ran.stdout == "9.8.7\n"
    left = {path.name for path in engines.tools_folder().iterdir()}
    assert left == {"claude-code-9.8.7", ".claude-code-9.8.7.lock"}


def test_a_changed_program_is_not_used_and_is_installed_again(calls: Path) -> None:
    first = engines.install("9.8.7")
    first.program.write_text("changed")
    assert engines.find("9.8.7") is None
    assert engines.install("9.8.7").manifest.digest == first.manifest.digest


def test_a_package_that_is_not_the_pinned_one_is_refused(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unavailable) as caught:
        engines.install(PINNED_VERSION)
    assert caught.value.problem.code == "digest_mismatch"
    assert engines.find(PINNED_VERSION) is None
    pinned = engines.PINS[PINNED_VERSION][f"{engines.PACKAGE}-linux-x64"]
    monkeypatch.setenv("NPM_INTEGRITY", pinned)
    assert engines.install(PINNED_VERSION).manifest.integrity == pinned


def test_a_missing_or_failing_npm_is_said_clearly_and_leaves_nothing(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_FAILS", "1")
    with pytest.raises(Unavailable, match="404 no such version"):
        engines.install("9.8.7")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="npm is not on PATH") as caught:
        engines.install("9.8.7")
    assert "Node.js" in (caught.value.problem.next or "")
    assert [path.name for path in engines.tools_folder().iterdir()] == [".claude-code-9.8.7.lock"]


def test_a_machine_without_a_program_of_its_own_is_told(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NPM_NATIVE", "some-other-package")
    with pytest.raises(Unavailable, match="no program for this operating system"):
        engines.install("9.8.7")
