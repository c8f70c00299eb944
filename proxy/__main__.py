"""`python -P -m proxy --home DIR`: serves the proxy on `<home>/run/proxy.sock`."""

import argparse
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import anyio

from proxy.app import Settings
from proxy.log import configure
from proxy.server import LOCK_WAIT_SEC, Server
from proxy.spool import STAGE_BYTES
from runtime.client import ProxyClient
from runtime.compute.client import HttpCompute
from runtime.exclusive import acquire, listen
from runtime.home import Home, Role
from specs import canonical
from specs.upstream import Upstream


def main() -> int:
    """Run until SIGTERM or SIGINT.

    Exit code 1: another proxy serves this home, or the parts of this one have failed; its log
    says which.
    """
    parser = argparse.ArgumentParser(prog="proxy", description="The proxy of a local stack.")
    parser.add_argument("--home", type=Path, default=None, help="home folder of the stack")
    parser.add_argument(
        "--stage-bytes",
        type=int,
        default=STAGE_BYTES,
        help="evidence that may wait for publication before calls are refused",
    )
    parser.add_argument("--upstream", action="append", default=[], help="a specs.upstream, as JSON")
    arguments = parser.parse_args()
    home = Home.at(arguments.home)
    upstreams = [canonical.read(Upstream, text, what="upstream") for text in arguments.upstream]
    configure()
    home.create()
    lock = acquire(home.spool / ".lock", LOCK_WAIT_SEC)
    if lock is None:
        sys.stderr.write(f"Another proxy writes to {home.spool}.\n")
        return 1
    signal.signal(signal.SIGTERM, _exit)  # uvicorn raises it again once it has drained
    with lock, listen(home.proxy_socket) as listener:
        served = anyio.run(_serve, home, listener, upstreams, arguments.stage_bytes)
    return 0 if served else 1


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


async def _serve(
    home: Home, listener: socket.socket, upstreams: Sequence[Upstream], stage: int
) -> bool:
    """Whether the parts held until the end."""
    async with ProxyClient.at(home) as gateway, HttpCompute(home.compute_socket) as compute:
        settings = Settings(
            home.spool, compute, gateway, home.key(Role.WORKER), upstreams=upstreams, stage=stage
        )
        web = Server(settings)
        await web.serve(sockets=[listener])
    return not web.failed


if __name__ == "__main__":
    sys.exit(main())
