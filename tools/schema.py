"""The JSON Schemas of the contracts, for editors and other programs."""

from pathlib import Path
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from specs.base import Contract
from specs.export import FOLDER, export
from tools.context import Context
from tools.fields import Input
from tools.registry import Traits, operation


class Export(Input):
    to: Annotated[str | None, Field(description="Folder to write to [the package's own]")] = None


class Exported(Contract):
    """Files that were written."""

    files: list[str]


def _text(exported: Exported) -> str:
    return "\n".join(exported.files)


@operation("schema", "export", Traits(idempotent=True, local=True, agent=False), text=_text)
async def export_schemas(_: Context, request: Export) -> Exported:
    """Write one JSON Schema file for each contract: profile, plan, dataset, event, error, …"""
    folder = FOLDER if request.to is None else Path(request.to)
    written = await anyio.to_thread.run_sync(export, folder)
    return Exported(files=[str(path) for path in written])
