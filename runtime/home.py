"""The home folder of a local stack: where everything of it lives, and its secrets.

<home>/config.toml      settings (flag > environment > this file > default)
<home>/practicum.db     the gateway's database
<home>/objects/         content-addressed objects (gateway)
<home>/spool/           evidence not yet sealed (proxy)
<home>/compute/         adapters and trainer states (compute)
<home>/work/            sandboxes and trial folders (worker)
<home>/sessions/        what `agent run` and `practicum claude` keep of each session
<home>/journals/        journals that are named, not placed, by their owner
<home>/logs/            one log per process
<home>/run/             sockets, pid files, the lock (elsewhere if the path is too long)
<home>/secrets/         role keys and the trial signing key, 0600
"""

import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from specs.paths import user_path

MAX_SOCKET_PATH = 100
"""Linux allows 107 bytes for a Unix socket's path."""


class Role(StrEnum):
    """Who may call the gateway; each role has a key of its own."""

    OPERATOR = "operator"
    WORKER = "worker"
    PROXY = "proxy"


def default_home() -> Path:
    """`PRACTICUM_HOME`, else `~/.practicum`."""
    chosen = os.environ.get("PRACTICUM_HOME")
    return Path(chosen) if chosen else Path.home() / ".practicum"


@dataclass(frozen=True, slots=True)
class Home:
    """Paths below one home folder."""

    root: Path

    @classmethod
    def at(cls, path: Path | None = None) -> "Home":
        """The home at `path` (default: `default_home()`), made absolute.

        Raises:
            InvalidInput: `invalid_reference`; `~name` of a user that there is not.
        """
        return cls(user_path(path or default_home()).absolute())

    def create(self) -> None:
        """Make the folder (0700), its parts and its secrets; harmless when they exist."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (
            self.objects,
            self.spool,
            self.compute,
            self.work,
            self.logs,
            self.run,
            self.secrets,
        ):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for role in Role:
            _write_once(self.secrets / f"{role}.key", secrets.token_urlsafe(32))

    @property
    def config(self) -> Path:
        return self.root / "config.toml"

    @property
    def database(self) -> Path:
        return self.root / "practicum.db"

    @property
    def objects(self) -> Path:
        return self.root / "objects"

    @property
    def spool(self) -> Path:
        return self.root / "spool"

    @property
    def compute(self) -> Path:
        return self.root / "compute"

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def journals(self) -> Path:
        return self.root / "journals"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def secrets(self) -> Path:
        return self.root / "secrets"

    @property
    def run(self) -> Path:
        """Folder of sockets: in the home, or a private short one for a long home path."""
        inside = self.root / "run"
        if len(os.fsencode(inside / "compute.sock")) <= MAX_SOCKET_PATH:
            return inside
        name = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"practicum-{os.getuid()}-{name}"

    @property
    def gateway_socket(self) -> Path:
        return self.run / "gateway.sock"

    @property
    def proxy_socket(self) -> Path:
        return self.run / "proxy.sock"

    @property
    def compute_socket(self) -> Path:
        return self.run / "compute.sock"

    @property
    def signing_key(self) -> Path:
        """Private Ed25519 key (PEM) of trial tokens; made by the gateway."""
        return self.secrets / "trial-signing.pem"

    @property
    def mcp_key_file(self) -> Path:
        """Bearer key of MCP over HTTP."""
        return self.secrets / "mcp.key"

    def mcp_key(self) -> str:
        """The bearer key of MCP over HTTP; made (0600) when it is first asked for."""
        self.create()
        _write_once(self.mcp_key_file, secrets.token_urlsafe(32))
        return self.mcp_key_file.read_text().strip()

    def key(self, role: Role) -> str:
        """The bearer key of a role."""
        return (self.secrets / f"{role}.key").read_text().strip()


def _write_once(path: Path, text: str) -> None:
    """Create a 0600 file; an existing one is kept, a half-written one cannot be seen."""
    if path.exists():
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(name, path)
    except FileExistsError:
        return
    finally:
        Path(name).unlink()
