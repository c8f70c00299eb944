"""`python -P -m runtime.gateway --home DIR`: serve one home on its Unix socket (0600).

A lock keeps a second gateway away from the same database. SIGTERM ends streams and long
polls first, then drains what was begun.
"""

import argparse
import logging
import signal
import sys
from pathlib import Path
from types import FrameType

import uvicorn

from runtime.exclusive import acquire, listen
from runtime.gateway.app import create_app
from runtime.gateway.context import Wakeups
from runtime.home import Home
from specs.construction_records import ApprovalRules

DRAIN_SEC = 10
BACKLOG = 128


class _Server(uvicorn.Server):
    """Uvicorn, told to wake whoever waits before it drains."""

    def __init__(self, config: uvicorn.Config, wakeups: Wakeups) -> None:
        super().__init__(config)
        self.wakeups = wakeups

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.wakeups.stop()


def main() -> None:
    """Parse the command line and serve until a signal."""
    parser = argparse.ArgumentParser(prog="runtime.gateway", description="The control plane.")
    parser.add_argument("--home", type=Path, default=None, help="home folder of the stack")
    parser.add_argument(
        "--approval",
        type=ApprovalRules.model_validate_json,
        default=ApprovalRules(),
        metavar="JSON",
        help="what it approves by itself",
    )
    arguments = parser.parse_args()
    home = Home.at(arguments.home)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    signal.signal(signal.SIGTERM, _exit)  # uvicorn raises it again once it has drained
    home.create()
    lock = acquire(home.run / "gateway.lock", patience=0)
    if lock is None:
        sys.exit(f"another gateway serves {home.root}")
    with lock:
        _serve(home, arguments.approval)


def _serve(home: Home, rules: ApprovalRules) -> None:
    wakeups = Wakeups()
    config = uvicorn.Config(
        create_app(home, wakeups, rules),
        lifespan="on",
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=DRAIN_SEC,
        timeout_keep_alive=75,
    )
    listener = listen(home.gateway_socket)
    try:
        _Server(config, wakeups).run(sockets=[listener])
    finally:
        listener.close()
        home.gateway_socket.unlink(missing_ok=True)


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    main()
