"""Versions of installed packages, which results depend on."""

import importlib.metadata


def installed(package: str) -> str | None:
    """Version of a package; None when it is not installed (a part that this host lacks, or a
    source tree)."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
