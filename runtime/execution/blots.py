"""What stands where a trial's credential was, in whatever it leaves (invariant 13)."""

from collections.abc import Mapping

from specs.profile import Binding

type Blots = Mapping[str, str]
"""Each credential, and the text that replaces it."""


def blot(credential: str, binding: Binding) -> dict[str, str]:
    """The entry of one credential, which is named as profiles name it."""
    return {credential: f"[{binding}]"}


def blotted(data: bytes, blots: Blots) -> bytes:
    """Bytes without the credentials."""
    for secret, text in blots.items():
        data = data.replace(secret.encode(), text.encode())
    return data


def blotted_text(text: str, blots: Blots) -> str:
    """Text without the credentials."""
    for secret, name in blots.items():
        text = text.replace(secret, name)
    return text
