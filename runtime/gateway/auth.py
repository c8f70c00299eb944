"""Who may call: each role has one key, compared in constant time; a grant has a credential, and
opens only routes that say so by naming a scope (invariant 13)."""

from hmac import compare_digest
from typing import Annotated

from fastapi import Depends, Request

from runtime.gateway import grants
from runtime.gateway.context import Caller, Gateway, gateway_of
from runtime.home import Role
from specs.errors import ErrorCode, ErrorObject, Forbidden
from specs.grant import Scope


async def _caller(request: Request) -> Caller:
    """The caller of any role, or of a grant that is alive.

    Raises:
        Forbidden: `unauthenticated` or `grant_ended`.
    """
    gateway = gateway_of(request)
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        shown = key.strip().encode()
        for role, known in gateway.keys.items():
            if compare_digest(shown, known.encode()):
                return Caller(role)
        claims = gateway.signer.grant(key.strip())
        if claims is not None:
            granted = await gateway.database.read(lambda c: grants.alive(c, claims))
            return Caller(None, claims.org, granted)
    raise Forbidden(
        "The request carries no key of this gateway.",
        code=ErrorCode.UNAUTHENTICATED,
        object=ErrorObject(type="credential"),
        next="Send `Authorization: Bearer` with a key from the home folder's secrets.",
    )


class _Only:
    """Dependency: a caller of one of the given roles, or a grant with the given scope."""

    def __init__(self, *roles: Role, scope: Scope | None = None) -> None:
        self.roles = roles
        self.scope = scope

    async def __call__(self, caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        if caller.grant is not None:
            if self.scope is None or self.scope not in caller.grant.access.scopes:
                raise Forbidden(
                    "The grant does not open this route.",
                    object=ErrorObject(type="grant", id=caller.grant.id),
                    next=f"It opens: {', '.join(caller.grant.access.scopes)}."
                    " What else is needed is the operator's to do.",
                )
            return caller
        if caller.role not in self.roles:
            allowed = " or ".join(self.roles)
            raise Forbidden(
                f"The key of the {caller.role} does not open this route.",
                object=ErrorObject(type="credential", id=caller.role),
                next=f"Use the key of the {allowed}.",
            )
        return caller


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
AnyRole = Annotated[Caller, Depends(_Only(*Role, scope=Scope.READ))]
"""Whoever may read."""
Uploader = Annotated[Caller, Depends(_Only(*Role, scope=Scope.PUBLISH))]
Publisher = Annotated[Caller, Depends(_Only(Role.OPERATOR, scope=Scope.PUBLISH))]
Starter = Annotated[Caller, Depends(_Only(Role.OPERATOR, scope=Scope.START))]
Constructor = Annotated[Caller, Depends(_Only(Role.OPERATOR, scope=Scope.CONSTRUCT))]
Approver = Annotated[Caller, Depends(_Only(Role.OPERATOR, scope=Scope.APPROVE))]
Operator = Annotated[Caller, Depends(_Only(Role.OPERATOR))]
Worker = Annotated[Caller, Depends(_Only(Role.WORKER))]
Proxy = Annotated[Caller, Depends(_Only(Role.PROXY))]
OperatorOrWorker = Annotated[Caller, Depends(_Only(Role.OPERATOR, Role.WORKER))]
