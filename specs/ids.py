"""Identifiers: `<prefix>_<32 hex>`, a UUIDv7 minted by the record's owner before the effect.

UUIDv7 (RFC 9562) sorts by creation time, so an index on ids keeps insertion order.
"""

import hashlib
import re
import secrets
import time
from enum import StrEnum
from typing import Annotated

from pydantic import StringConstraints

ID_PATTERN = r"^[a-z]{3}_[0-9a-f]{32}$"
_ID = re.compile(ID_PATTERN)

Id = Annotated[str, StringConstraints(pattern=ID_PATTERN)]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}$")
]
"""`org/name`."""
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
VersionedName = Annotated[
    str,
    StringConstraints(
        pattern=r"^[a-z0-9][a-z0-9._-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}@[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
    ),
]
"""`org/name@version`."""


class Prefix(StrEnum):
    """Kinds of record that have an id."""

    RUN = "run"
    CLAIM = "clm"
    GROUP = "grp"
    TRIAL = "trl"
    ASSESSMENT = "asm"
    INTERACTION = "int"
    SAMPLER = "smp"
    TRAINER = "trn"
    UPDATE = "upd"
    CHECKPOINT = "ckp"
    EVIDENCE = "evd"
    WORKER = "wrk"
    UPLOAD = "upl"
    SESSION = "ses"
    COMPARISON = "cmp"
    JOURNAL_ENTRY = "jrn"
    GRANT = "gra"
    CONSTRUCTION = "con"


def new_id(prefix: Prefix) -> str:
    """A fresh id: 48 bits of milliseconds, then 74 random bits, as UUIDv7."""
    milliseconds = time.time_ns() // 1_000_000
    value = (milliseconds & ((1 << 48) - 1)) << 80
    value |= 0x7 << 76 | secrets.randbits(12) << 64
    value |= 0b10 << 62 | secrets.randbits(62)
    return f"{prefix}_{value:032x}"


def derived_id(prefix: Prefix, source: str) -> str:
    """The one id of `prefix` that follows from `source`, for whoever must know it unasked."""
    return f"{prefix}_{hashlib.sha256(source.encode()).hexdigest()[:32]}"


def is_id(text: str, prefix: Prefix | None = None) -> bool:
    """Whether `text` is a whole id, of kind `prefix` if one is given."""
    return bool(_ID.match(text)) and (prefix is None or text.startswith(f"{prefix}_"))
