"""Harness dialects: one package per API that harnesses speak, all behind `base.Dialect`."""

from proxy.dialects.anthropic import MESSAGES
from proxy.dialects.base import Dialect
from proxy.dialects.openai import CHAT, RESPONSES

__all__ = ["CHAT", "DIALECTS", "MESSAGES", "RESPONSES", "Dialect"]

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (MESSAGES, CHAT, RESPONSES)}
"""By the name that interactions record."""
