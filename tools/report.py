"""`run report`, at the top level `report`: a run as one page to look at."""

from typing import Annotated

import anyio.to_thread
from pydantic import Field

from runtime.analysis.page import render
from runtime.analysis.report import TRANSCRIPTS, report
from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput
from specs.paths import user_path
from tools.context import Context
from tools.fields import Cli, Input, RunRef
from tools.registry import Traits, operation
from tools.tables import pairs, size


class Report(Input):
    run: RunRef
    out: Annotated[
        str | None,
        Field(description="File to write; else report-RUN.html here"),
        Cli(metavar="FILE"),
    ] = None
    transcripts: Annotated[
        int, Field(ge=0, le=200, description="Trials whose transcripts are on the page")
    ] = TRANSCRIPTS
    trial: Annotated[str | None, Field(description="The transcript of this trial alone")] = None
    link: Annotated[
        bool,
        Field(description="Write nothing: give a link at which a browser reads it here, once"),
    ] = False


class Reported(Contract):
    """A page that was written, or the link to it."""

    run: str
    file: str | None = None
    bytes: int | None = None
    digest: str | None = None
    url: str | None = None
    """Opens once, on this machine."""
    expires_in_sec: float | None = None


def _text(result: Reported) -> str:
    return pairs(
        {
            "run": result.run,
            "file": result.file,
            "size": None if result.bytes is None else size(result.bytes),
            "link": result.url,
            "opens once, within": None
            if result.expires_in_sec is None
            else f"{result.expires_in_sec:.0f} s",
        }
    )


@operation("run", "report", Traits(idempotent=True, local=True), text=_text)
async def report_run(context: Context, request: Report) -> Reported:
    """Write a run as one self-contained HTML page, or give a link to the same page.

    Curves with intervals, what became of each group, what overlapped in time, the lineage, and
    transcripts whose tokens are coloured by their weight. The page loads nothing. With `link`, the
    gateway serves it on a loopback port; the link holds a token that opens once.
    """
    async with context.gateway() as gateway:
        if request.link:
            run = await gateway.run(request.run)
            suffix = "" if request.trial is None else f"?trial={request.trial}"
            link = await gateway.ui_link(f"/ui/runs/{run.id}{suffix}")
            return Reported(run=run.id, url=link.url, expires_in_sec=link.expires_in_sec)
        found = await report(
            gateway, request.run, transcripts=request.transcripts, trial=request.trial
        )
    page = render(found)
    path = await anyio.to_thread.run_sync(_write, request.out or f"report-{found.run}.html", page)
    return Reported(run=found.run, file=path, bytes=len(page), digest=canonical.digest_bytes(page))


def _write(name: str, page: bytes) -> str:
    path = user_path(name)
    try:
        path.write_bytes(page)
    except OSError as error:
        raise InvalidInput(
            f"The report cannot be written to {path}: {error.strerror or error}.",
            object=ErrorObject(type="arguments", id=str(path), pointer="/out"),
            next="Name a file in a folder that exists: --out FILE",
        ) from None
    return str(path.resolve())
