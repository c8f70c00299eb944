"""Datasets and profiles: publish, list, read."""

from typing import Annotated

from fastapi import APIRouter, Response

from runtime.gateway import published
from runtime.gateway.auth import AnyRole, GatewayDep, Publisher
from runtime.gateway.routes.parameters import LIMIT, Cursor, Limit
from runtime.gateway.wire import answer, body, document
from specs import canonical
from specs.dataset import Dataset
from specs.launch import validate_profile
from specs.operator_api import ProfilePublish
from specs.profile import Profile

router = APIRouter()


@router.post("/v1/datasets")
async def publish_dataset(
    gateway: GatewayDep, caller: Publisher, dataset: Annotated[Dataset, body(Dataset, "dataset")]
) -> Response:
    """Publish a dataset whose packages have been uploaded: 201, or 200 when it is there."""
    result, new = await gateway.database.write(
        lambda c: published.publish_dataset(c, caller.org, dataset)
    )
    return answer(result, 201 if new else 200)


@router.get("/v1/datasets")
async def datasets(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Published datasets, newest first."""
    return answer(
        await gateway.database.read(
            lambda c: published.listed(c, caller.org, "dataset", cursor, limit)
        )
    )


@router.get("/v1/datasets/{org}/{name}/{version}")
async def dataset(
    gateway: GatewayDep, caller: AnyRole, org: str, name: str, version: str
) -> Response:
    """Canonical bytes and their digest."""
    content, digest = await gateway.database.read(
        lambda c: published.read(c, caller.org, "dataset", f"{org}/{name}", version)
    )
    return document(content, digest)


@router.post("/v1/profiles")
async def publish_profile(
    gateway: GatewayDep,
    caller: Publisher,
    request: Annotated[ProfilePublish, body(ProfilePublish, "profile publication")],
) -> Response:
    """Publish a profile that stands alone and can be launched: 201, or 200 when it is there."""
    profile = canonical.validate(Profile, request.profile, what="profile")
    published.require_embedded(profile)
    validate_profile(profile)
    result, new = await gateway.database.write(
        lambda c: published.publish_profile(c, caller.org, request.version, profile)
    )
    return answer(result, 201 if new else 200)


@router.get("/v1/profiles")
async def profiles(
    gateway: GatewayDep, caller: AnyRole, limit: Limit = LIMIT, cursor: Cursor = None
) -> Response:
    """Published profiles, newest first."""
    return answer(
        await gateway.database.read(
            lambda c: published.listed(c, caller.org, "profile", cursor, limit)
        )
    )


@router.get("/v1/profiles/{org}/{name}/{version}")
async def profile(
    gateway: GatewayDep, caller: AnyRole, org: str, name: str, version: str
) -> Response:
    """Canonical bytes and their digest."""
    content, digest = await gateway.database.read(
        lambda c: published.read(c, caller.org, "profile", f"{org}/{name}", version)
    )
    return document(content, digest)
