"""`python -P -m runtime.supervisor --home DIR`: the daemon behind `practicum up`."""

import argparse
import sys
from pathlib import Path

from runtime.home import Home
from runtime.supervisor.daemon import supervise


def main() -> int:
    parser = argparse.ArgumentParser(prog="runtime.supervisor")
    parser.add_argument("--home", type=Path, required=True)
    return supervise(Home.at(parser.parse_args().home))


if __name__ == "__main__":
    sys.exit(main())
