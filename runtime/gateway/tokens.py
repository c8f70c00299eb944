"""Credentials of trials: Ed25519 JWTs, for the proxy, which verifies them offline, and for the
gateway itself; each is good for one of the two alone (invariant 13)."""

import base64
import hashlib
import os
import secrets
import tempfile
from pathlib import Path

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import ValidationError

from specs.grant import GrantClaims
from specs.worker_api import TrialClaims

ALGORITHM = "EdDSA"
ISSUER = "practicum"
AUDIENCE = "practicum-proxy"
GATEWAY_AUDIENCE = "practicum-gateway"


class TokenSigner:
    """Holds the private key, which never leaves the gateway."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        public = key.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        self.kid = hashlib.sha256(public).hexdigest()[:16]
        self._x = base64.urlsafe_b64encode(public).decode().rstrip("=")

    @classmethod
    def load(cls, path: Path) -> "TokenSigner":
        """The signer whose key is at `path`; a missing key is made (0600)."""
        if not path.exists():
            _create_key(path)
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError(f"{path.name} is not an Ed25519 key")
        return cls(key)

    def sign(self, claims: TrialClaims | GrantClaims) -> str:
        """A token with these claims."""
        headers = {"kid": self.kid, "typ": "at+jwt"}
        payload = claims.model_dump(mode="json", exclude_none=True)
        return jwt.encode(payload, self._key, algorithm=ALGORITHM, headers=headers)

    def grant(self, token: str) -> GrantClaims | None:
        """The claims of a grant's credential; None when it is none of ours, or has expired."""
        try:
            payload = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=[ALGORITHM],
                audience=GATEWAY_AUDIENCE,
                issuer=ISSUER,
                options={"require": ["exp", "aud", "iss"]},
            )
            return GrantClaims.model_validate(payload)
        except (jwt.InvalidTokenError, ValidationError):
            return None

    def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The public keys, as a JWK set."""
        key = {"kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": ALGORITHM}
        return {"keys": [{**key, "kid": self.kid, "x": self._x}]}


def token_id() -> str:
    """A fresh `jti`."""
    return secrets.token_urlsafe(16)


def _create_key(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    Path(name).rename(path)
