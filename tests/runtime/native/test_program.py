"""The program as a folder: what commands need, and nothing of what servers and workers need."""

import tomllib
from pathlib import Path

from runtime.native import program

ROOT = Path(program.__file__).parents[2]


def test_it_holds_every_package_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(wheel) <= set(program.PACKAGES)
    assert all((ROOT / name).is_dir() for name in wheel)


def test_it_is_what_commands_need_alone() -> None:
    names = {dist.name.lower() for dist in program._dependencies()}  # pyright: ignore[reportPrivateUsage]
    assert {"pydantic", "httpx", "typer", "mcp", "cryptography"} <= names
    assert not names & {"torch", "harbor", "tinker", "litellm", "sqlalchemy", "practicum"}
