"""Profiles: checking one, publishing it, and seeing where two differ."""

import json
from typing import Annotated

from pydantic import Field, JsonValue

from specs import canonical
from specs.base import Contract
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.launch import LaunchPlan, validate_profile
from specs.operator_api import ProfilePublish, Published, PublishedPage
from specs.profile import Profile
from tools.context import Context
from tools.differences import Difference, differences
from tools.documents import Read, profile_document, read_document, reference
from tools.fields import Cli, Cursor, Input, Limit
from tools.registry import PUBLISH, READ, READ_LOCAL, operation
from tools.tables import cell, pairs, short, size, table

ProfileFile = Annotated[
    dict[str, JsonValue] | str,
    Field(description="The profile itself, or a file (@file.json or its path)"),
    Cli(positional=True, metavar="PROFILE"),
]
ProfileSide = Annotated[
    dict[str, JsonValue] | str,
    Field(description="org/name@version, @file.json, or the profile itself"),
    Cli(positional=True),
]


class Validate(Input):
    profile: ProfileFile


class Publish(Input):
    profile: ProfileFile
    version: Annotated[str, Field(description="Version to publish it as, such as v1")]


class ListProfiles(Input):
    limit: Limit = 50
    cursor: Cursor = None


class Show(Input):
    profile: Annotated[
        str, Field(description="org/name@version"), Cli(positional=True, metavar="PROFILE")
    ]


class Diff(Input):
    left: ProfileSide
    right: ProfileSide


class Validated(Contract):
    """A profile that can be launched."""

    name: str
    model: str
    engine: str
    digest: str
    """Of the canonical bytes, `source` files embedded."""
    size: int
    files: list[str]
    launch: LaunchPlan
    """What runs, with each binding's name for its value."""


class ProfileView(Contract):
    """A published profile, its bytes checked against their digest."""

    reference: str
    digest: str
    profile: dict[str, JsonValue]


class ProfileDiff(Contract):
    """Every place in which two profiles differ."""

    left: str
    """Digest."""
    right: str
    differences: list[Difference]
    only_model: bool
    """They are the same recipe: nothing differs but name and model."""


def _validated_text(valid: Validated) -> str:
    return pairs(
        {
            "profile": valid.name,
            "digest": valid.digest,
            "size": size(valid.size),
            "model": valid.model,
            "engine": valid.engine,
            "files": valid.files or None,
            "runs": " ".join(valid.launch.argv),
            "in": valid.launch.workdir,
        }
    )


def _published_text(published: Published) -> str:
    return f"{published.reference}  {published.digest}"


def _page_text(page: PublishedPage) -> str:
    return table(
        ("reference", "digest", "size", "published"),
        [(p.reference, short(p.digest), size(p.size), p.created_at) for p in page.items],
        more=page.next,
    )


def _view_text(view: ProfileView) -> str:
    head = pairs({"profile": view.reference, "digest": view.digest})
    return f"{head}\n{json.dumps(view.profile, indent=2, ensure_ascii=False)}"


def _diff_text(diff: ProfileDiff) -> str:
    if not diff.differences:
        return "The profiles are the same."
    rows = [(d.pointer, _clip(d.left), _clip(d.right)) for d in diff.differences]
    note = "\nSame recipe: only name or model differ." if diff.only_model else ""
    return table(("place", "left", "right"), rows) + note


def _clip(value: JsonValue) -> str:
    text = cell(value).replace("\n", "\\n")
    return text if len(text) <= 60 else text[:57] + "..."


@operation("profile", "validate", READ_LOCAL, text=_validated_text)
async def validate(context: Context, request: Validate) -> Validated:
    """Check a profile as a launch would: schema, bindings, routing, sources. Needs no stack."""
    profile = read_profile(request.profile)
    launch = validate_profile(profile)
    data = canonical.canonical_bytes(profile)
    await context.progress(f"{profile.name} can be launched")
    return Validated(
        name=profile.name,
        model=profile.agent.model,
        engine=f"{profile.agent.engine.name} {profile.agent.engine.version}",
        digest=canonical.digest_bytes(data),
        size=len(data),
        files=[file.path for file in profile.agent.files],
        launch=launch.model_copy(update={"files": ()}),
    )


@operation("profile", "publish", PUBLISH, text=_published_text)
async def publish(context: Context, request: Publish) -> Published:
    """Publish a profile under its own name and a version, which is immutable from then on."""
    profile = read_profile(request.profile)
    validate_profile(profile)
    document = canonical.document(profile)
    body: dict[str, JsonValue] = {"version": request.version, "profile": document}
    async with context.gateway() as gateway:
        return await gateway.publish_profile(
            canonical.validate(ProfilePublish, body, what="profile")
        )


@operation("profile", "list", READ, text=_page_text)
async def list_profiles(context: Context, request: ListProfiles) -> PublishedPage:
    """List published profile versions, newest first."""
    async with context.gateway() as gateway:
        return await gateway.profiles(limit=request.limit, cursor=request.cursor)


@operation("profile", "show", READ, text=_view_text)
async def show(context: Context, request: Show) -> ProfileView:
    """Show a published profile. Bytes that do not have their digest are refused."""
    async with context.gateway() as gateway:
        found = await gateway.profile(reference(request.profile, "profile"))
    return ProfileView(
        reference=request.profile,
        digest=found.digest,
        profile=canonical.document(found.value),
    )


@operation("profile", "diff", READ, text=_diff_text)
async def diff(context: Context, request: Diff) -> ProfileDiff:
    """Show every place in which two profiles differ, and whether only the model does."""
    left, right = [await _side(context, side) for side in (request.left, request.right)]
    found = differences(canonical.document(left), canonical.document(right))
    return ProfileDiff(
        left=canonical.digest(left),
        right=canonical.digest(right),
        differences=found,
        only_model=all(d.pointer in ("/name", "/agent/model") for d in found),
    )


async def _side(context: Context, value: dict[str, JsonValue] | str) -> Profile:
    read = read_document(value, "profile")
    if isinstance(read, Read):
        return profile_document(read)
    async with context.gateway() as gateway:
        return (await gateway.profile(read)).value


def read_profile(value: dict[str, JsonValue] | str) -> Profile:
    """The profile behind an argument that must be a document, its sources embedded."""
    if isinstance(value, str) and not value.startswith("@"):
        value = f"@{value}"
    read = read_document(value, "profile")
    if isinstance(read, str):
        raise InvalidInput(
            f"{read} is published already.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="profile", id=read),
            next="Name a file.",
        )
    return profile_document(read)
