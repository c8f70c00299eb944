"""`python -P -m tools`: the command `practicum` without its console script."""

from tools.cli import run

if __name__ == "__main__":
    run()
