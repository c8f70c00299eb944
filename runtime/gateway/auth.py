"""Who may call: each role has one key, compared in constant time."""

from hmac import compare_digest
from typing import Annotated

from fastapi import Depends, Request

from runtime.gateway.context import Caller, Gateway, gateway_of
from runtime.home import Role
from specs.errors import ErrorCode, ErrorObject, Forbidden


def _caller(request: Request) -> Caller:
    """The caller of any role.

    Raises:
        Forbidden: `unauthenticated`.
    """
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        shown = key.strip().encode()
        for role, known in gateway_of(request).keys.items():
            if compare_digest(shown, known.encode()):
                return Caller(role)
    raise Forbidden(
        "The request carries no key of this gateway.",
        code=ErrorCode.UNAUTHENTICATED,
        object=ErrorObject(type="credential"),
        next="Send `Authorization: Bearer` with a key from the home folder's secrets.",
    )


class _Only:
    """Dependency: a caller of one of the given roles."""

    def __init__(self, *roles: Role) -> None:
        self.roles = roles

    def __call__(self, caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        if caller.role not in self.roles:
            allowed = " or ".join(self.roles)
            raise Forbidden(
                f"The key of the {caller.role} does not open this route.",
                object=ErrorObject(type="credential", id=caller.role),
                next=f"Use the key of the {allowed}.",
            )
        return caller


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
AnyRole = Annotated[Caller, Depends(_caller)]
Operator = Annotated[Caller, Depends(_Only(Role.OPERATOR))]
Worker = Annotated[Caller, Depends(_Only(Role.WORKER))]
Proxy = Annotated[Caller, Depends(_Only(Role.PROXY))]
OperatorOrWorker = Annotated[Caller, Depends(_Only(Role.OPERATOR, Role.WORKER))]
