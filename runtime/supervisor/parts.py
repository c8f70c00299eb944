"""The four processes of a stack: their modules, sockets, and the environment they may see."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import runtime
from runtime.home import Home, Role
from runtime.supervisor.settings import Settings

_EVERYWHERE = (
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "OMP_NUM_THREADS",
    "PATH",
    "SSL_CERT_FILE",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
)
_PROVIDER = ("HTTPS_PROXY", "NO_PROXY")
_COMMANDS = frozenset({"PRACTICUM_HOME", "PRACTICUM_GATEWAY", "PRACTICUM_TOKEN"})
"""For commands alone; the last one is a credential."""


@dataclass(frozen=True, slots=True)
class Part:
    """One process. `provider` parts alone reach providers, each with its own keys alone
    (invariant 13)."""

    name: str
    module: str
    provider: bool = False
    key: Role | None = None
    """Whose key its `/healthz` asks for."""

    def socket(self, home: Home) -> Path | None:
        """Where it answers `/healthz`; None for the worker, which listens nowhere."""
        return {
            "gateway": home.gateway_socket,
            "proxy": home.proxy_socket,
            "compute": home.compute_socket,
        }.get(self.name)

    def log(self, home: Home) -> Path:
        return home.logs / f"{self.name}.log"

    def command(self, home: Home, settings: Settings) -> list[str]:
        start = [sys.executable, "-P", "-m", self.module, "--home", str(home.root)]
        return start + settings.arguments(self.name)

    def environment(self, source: Mapping[str, str], settings: Settings) -> dict[str, str]:
        """The variables that this process is given, and no others."""
        names = {*_EVERYWHERE, *settings.keys(self.name), *(_PROVIDER if self.provider else ())}
        chosen = {name: source[name] for name in names if name in source}
        chosen |= {
            name: value
            for name, value in source.items()
            if name.startswith("PRACTICUM_") and name not in _COMMANDS
        }
        return chosen | {"PYTHONPATH": code_folder(), "PYTHONUNBUFFERED": "1"}


PARTS = (
    Part("gateway", "runtime.gateway"),
    Part("compute", "runtime.compute", provider=True),
    Part("proxy", "proxy", provider=True, key=Role.WORKER),
    Part("worker", "runtime.worker"),
)
"""In the order of starting; they stop in the reverse order, so that nobody loses its server."""


def code_folder() -> str:
    """The folder that holds our packages; children run with `-P`, away from any checkout."""
    return str(Path(os.fspath(runtime.__path__[0])).resolve().parent)
