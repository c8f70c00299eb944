"""`python -P -m runtime.compute --home DIR`: serves `<home>/run/compute.sock`."""

import argparse
from pathlib import Path

from runtime.compute.router import LocalCompute
from runtime.compute.server import serve
from runtime.home import Home
from specs import canonical
from specs.tinker import TinkerSettings
from specs.upstream import Upstream


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="compute", description=__doc__)
    parser.add_argument("--home", type=Path, default=None, help="home folder of the stack")
    parser.add_argument(
        "--threads",
        type=int,
        default=None,
        help="of torch, for both kinds of work; else see `threads`",
    )
    parser.add_argument(
        "--prefix-bytes",
        type=int,
        default=None,
        help="that cached prefixes of prompts may take; 0 keeps none",
    )
    parser.add_argument("--upstream", action="append", default=[], help="a specs.upstream, as JSON")
    parser.add_argument("--tinker", default="{}", help="a specs.tinker.TinkerSettings, as JSON")
    arguments = parser.parse_args()
    upstreams = [canonical.read(Upstream, text, what="upstream") for text in arguments.upstream]
    tinker = canonical.read(TinkerSettings, arguments.tinker, what="training service")
    home = Home.at(arguments.home)
    home.create()
    compute = LocalCompute(
        home.compute,
        threads=arguments.threads,
        prefix_bytes=arguments.prefix_bytes,
        upstreams=upstreams,
        tinker=tinker,
    )
    serve(home.compute_socket, compute)


if __name__ == "__main__":
    main()
