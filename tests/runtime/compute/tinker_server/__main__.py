"""A loopback service that speaks Tinker's wire protocol; its numbers are our torch backend's.

    python -P -m tests.runtime.compute.tinker_server --port N --folder DIR

Real HTTP, a process of its own, one model: `tiny`, offered as `local/tiny`. Checkpoints survive
a restart; sessions, models and requests do not, as at any service.
"""

import argparse
from pathlib import Path

import uvicorn

from tests.runtime.compute.tinker_server.app import create_app


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    arguments = parser.parse_args()
    app = create_app(arguments.folder)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="critical")


if __name__ == "__main__":
    main()
