"""`python -P -m mcp_server --home DIR`: MCP on stdin and stdout, or with `--http` on a port.

`practicum mcp` starts it. Over stdio standard output carries the protocol alone; everything else
goes to standard error.
"""

import argparse
import logging
import signal
import sys
from pathlib import Path
from types import FrameType

import anyio
from mcp.server.stdio import stdio_server

from mcp_server.server import build_server
from runtime.home import Home
from specs.errors import PracticumError
from tools.failures import report


async def serve_stdio(home: Home) -> None:
    """Serve until stdin is closed."""
    server = build_server(home)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


async def serve(given: argparse.Namespace) -> None:
    """Serve as the command line says."""
    home = Home.at(given.home)
    if not given.http:
        await serve_stdio(home)
        return
    from mcp_server.http import serve_http

    await serve_http(home, build_server(home), given.host, given.port, given.allow_host)


def main() -> int:
    """Serve until the end of stdin or a signal; returns the exit code."""
    parser = argparse.ArgumentParser(prog="mcp_server")
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--http", action="store_true")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--allow-host", action="append", default=[])
    given = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    if given.http:
        signal.signal(signal.SIGTERM, _exit)  # uvicorn raises it again once it has drained
    try:
        anyio.run(serve, given)
    except PracticumError as error:
        return report(error.problem, as_json=False)
    except KeyboardInterrupt:
        return 130
    return 0


def _exit(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(0)


if __name__ == "__main__":
    sys.exit(main())
