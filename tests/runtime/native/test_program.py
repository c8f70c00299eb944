"""The program as a folder: all of the base install, and nothing of what workers need."""

import tomllib
from pathlib import Path

from runtime.native import program

ROOT = Path(program.__file__).parents[2]


def test_it_holds_every_package_that_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(wheel) <= set(program.PACKAGES)
    assert all((ROOT / name).is_dir() for name in wheel)


def test_invariant_13_it_is_the_base_install_alone() -> None:
    names = {dist.name.lower() for dist in program._dependencies()}  # pyright: ignore[reportPrivateUsage]
    assert {"pydantic", "httpx", "typer", "mcp", "cryptography"} <= names
    assert not names & {"torch", "harbor", "tinker", "litellm", "transformers", "practicum"}
