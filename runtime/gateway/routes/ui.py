"""Links by which a browser on this machine reads pages."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway.auth import GatewayDep, Operator
from runtime.gateway.wire import answer, body
from specs.operator_api import UiLinkRequest

router = APIRouter()


@router.post("/v1/ui/links")
async def link(
    gateway: GatewayDep,
    _caller: Operator,
    request: Annotated[UiLinkRequest, body(UiLinkRequest, "link")],
) -> Response:
    """A link to a page, which opens once."""
    return answer(await gateway.ui.link(request.path), 201)
