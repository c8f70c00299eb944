"""`python -P -m mcp_server --home DIR`: MCP on stdin and stdout; `practicum mcp` starts it.

Standard output carries the protocol alone; everything else goes to standard error.
"""

import argparse
import logging
import sys
from pathlib import Path

import anyio
from mcp.server.stdio import stdio_server

from mcp_server.server import build_server
from runtime.home import Home


async def serve(home: Home) -> None:
    """Serve until stdin is closed."""
    server = build_server(home)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def main() -> int:
    parser = argparse.ArgumentParser(prog="mcp_server")
    parser.add_argument("--home", type=Path, default=None)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    anyio.run(serve, Home.at(parser.parse_args().home))
    return 0


if __name__ == "__main__":
    sys.exit(main())
