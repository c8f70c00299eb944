"""Trial tokens: verified offline with the gateway's public keys (invariant 13).

A token opens the calls of its own trial and fence and nothing else. Keys are fetched once and
again when a token names a key that is not known, at most once a second. A request without a
token is 401; a token that opens nothing (wrong, expired, not renewed) is 403, since a harness
repeats 401 in vain.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Mapping

import anyio
import jwt

from proxy.gateway import Gateway
from specs import canonical
from specs.errors import ErrorCode, Forbidden, InvalidInput
from specs.worker_api import TrialClaims

AUDIENCE, ISSUER, ALGORITHM = "practicum-proxy", "practicum", "EdDSA"

_LEEWAY_SEC = 5.0
_REFRESH_SEC = 1.0
_REMEMBERED = 4096
_SEND = "Send the trial's token as `Authorization: Bearer` or `x-api-key`."


class Verifier:
    """Turns a credential into claims."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched = -_REFRESH_SEC
        self._lock = anyio.Lock()
        self._seen: OrderedDict[bytes, TrialClaims] = OrderedDict()

    async def claims(self, headers: Mapping[str, str]) -> TrialClaims:
        """The claims of the token in `Authorization: Bearer` or `x-api-key`.

        Raises:
            Forbidden: `unauthenticated` (no token) or `forbidden` (not one of ours, or expired).
            Unavailable: the keys cannot be fetched.
        """
        token = bearer(headers)
        if not token:
            raise Forbidden("No trial token was sent.", code=ErrorCode.UNAUTHENTICATED, next=_SEND)
        name = hashlib.sha256(token.encode(errors="replace")).digest()
        claims = self._seen.get(name)
        if claims is None:
            claims = await self._verify(token)
            self._seen[name] = claims
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        if claims.exp <= time.time():
            raise expired()
        return claims

    async def _verify(self, token: str) -> TrialClaims:
        try:
            kid = str(jwt.get_unverified_header(token).get("kid", ""))
            key = await self._key(kid)
            payload = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                issuer=ISSUER,
                leeway=_LEEWAY_SEC,
                options={"require": ["exp", "iat", "aud", "iss", "jti"], "verify_exp": False},
            )
            return canonical.validate(TrialClaims, payload, what="trial token")
        except jwt.PyJWTError as error:
            raise _refused(f"The trial token is not valid: {error}.") from None
        except InvalidInput as error:
            raise _refused(error.problem.detail) from None

    async def _key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys:
            async with self._lock:
                if kid not in self._keys and self._stale():
                    found = jwt.PyJWKSet.from_dict(await self._gateway.jwks())
                    self._fetched = time.monotonic()
                    self._keys = {key.key_id or "": key for key in found.keys}
        if kid not in self._keys:
            raise _refused("The trial token names a key that the gateway does not have.")
        return self._keys[kid]

    def _stale(self) -> bool:
        return time.monotonic() - self._fetched >= _REFRESH_SEC


def bearer(headers: Mapping[str, str]) -> str:
    """The credential of a request; a harness that sends both means `Authorization`."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key", "").strip()


def expired() -> Forbidden:
    """The credential's hard end has come."""
    return Forbidden(
        "The trial's credential has expired.", next="The trial is over; start another one."
    )


def _refused(detail: str) -> Forbidden:
    return Forbidden(detail, next=_SEND)
