"""Harness dialects: one package per API that harnesses speak, all behind `base.Dialect`."""

from proxy.dialects.anthropic import MESSAGES
from proxy.dialects.base import Dialect

__all__ = ["DIALECTS", "MESSAGES", "Dialect"]

DIALECTS: dict[str, Dialect] = {MESSAGES.name: MESSAGES}
"""By the name that interactions record."""
