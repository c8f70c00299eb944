"""Contracts: the values that cross a boundary between parts of Practicum.

Nothing here imports another package of ours. Values are frozen pydantic models that refuse
unknown keys; documents have one canonical form (RFC 8785) and one digest.
"""
