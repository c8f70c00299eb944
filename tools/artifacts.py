"""Files that a trial left: listed, read in bounded pieces, or copied to a folder of one's own.

Their names come from inside a sandbox. A copy stays within its folder, follows no link, and
replaces nothing.
"""

from functools import partial
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from specs.base import Contract
from specs.errors import Conflict, ErrorObject, InvalidInput, NotFound
from specs.paths import user_path
from specs.profile import safe_path
from specs.records import Artifact
from tools.context import Context
from tools.evidence import TrialRef, find_trial
from tools.excerpts import ByteLimit, Excerpt, excerpt, excerpt_text
from tools.fields import Cursor, Input, Limit, RunRef
from tools.paging import cut
from tools.registry import Traits, operation
from tools.tables import short, size, table


class Artifacts(Input):
    run: RunRef
    trial: TrialRef
    file: Annotated[str | None, Field(description="Of this file: its text")] = None
    to: Annotated[str | None, Field(description="Folder to copy to, instead")] = None
    byte_limit: ByteLimit = 6000
    limit: Limit = 50
    cursor: Cursor = None


class ArtifactPage(Contract):
    """Files of a trial; a piece of one; or the paths of copies."""

    run: str
    trial: str
    items: list[Artifact]
    text: Excerpt | None = None
    written: list[str] = Field(default_factory=list[str])
    next: str | None = None


def _text(page: ArtifactPage) -> str:
    if page.text is not None:
        return excerpt_text(page.text)
    rows = [(a.path, size(a.size), short(a.digest), a.truncated) for a in page.items]
    listed = table(("file", "size", "digest", "cut"), rows, more=page.next)
    return "\n".join([listed, *page.written])


@operation("run", "artifacts", Traits(idempotent=True, local=True), text=_text)
async def artifacts(context: Context, request: Artifacts) -> ArtifactPage:
    """List the files that a trial left; with `file` read its text, with `to` copy files there."""
    async with context.gateway() as gateway:
        trial = await find_trial(gateway, request.run, request.trial)
        kept = () if trial.settled is None else trial.settled.artifacts
        found = [one for one in kept if request.file in (None, one.path)]
        if request.file is not None and not found:
            raise NotFound(
                f"Trial {trial.id} left no file {request.file!r}.",
                object=ErrorObject(type="artifact", id=request.file),
                next=f"See: practicum run artifacts {trial.run} --trial {trial.id}",
            )
        reading = request.file is not None and request.to is None
        page, following = cut(found, request.limit, None if reading else request.cursor)
        text, written = None, list[str]()
        if reading:
            data = await gateway.object(page[0].digest)
            text = excerpt(page[0].path, data, request.byte_limit, request.cursor)
            following = text.next
        elif request.to is not None:
            for one in page:
                data = await gateway.object(one.digest)
                copy = partial(_copy, request.to, one.path, data)
                written.append(str(await anyio.to_thread.run_sync(copy)))
    return ArtifactPage(
        run=trial.run, trial=trial.id, items=page, text=text, written=written, next=following
    )


def _copy(to: str, name: str, data: bytes) -> Path:
    """Write a file that is not there yet; one that has these very bytes already is left."""
    folder = user_path(to)
    target = folder / safe_path(name).lstrip("/")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            raise _unwritable(name, folder, "a link leads out of the folder")
        with target.open("xb") as file:  # follows no link: it creates, or fails
            file.write(data)
    except FileExistsError:
        if not target.is_symlink() and target.is_file() and target.read_bytes() == data:
            return target
        raise Conflict(
            f"{target} exists already, with other content.",
            object=ErrorObject(type="file", id=str(target)),
            next="Name an empty folder.",
        ) from None
    except OSError as error:
        raise _unwritable(name, folder, error.strerror or str(error)) from None
    return target


def _unwritable(name: str, folder: Path, cause: str) -> InvalidInput:
    return InvalidInput(
        f"{name!r} cannot be written to {folder}: {cause}.",
        object=ErrorObject(type="folder", id=str(folder), pointer="/to"),
        next="Name a folder that you may write to.",
    )
