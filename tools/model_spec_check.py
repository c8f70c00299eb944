"""`model-spec check`: training rows beside the deployment that they are to prepare for."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import anyio.to_thread
from pydantic import Field

from runtime.specialist.check import Check
from runtime.specialist.findings import Cause, Finding, Variant
from runtime.specialist.leaks import read_held_out
from runtime.specialist.render import parts
from specs import canonical
from specs.base import Contract
from specs.model_spec import Parts
from tools.context import Context
from tools.fields import Cli, Input
from tools.model_spec import SpecFile, read_spec
from tools.registry import READ_LOCAL, operation
from tools.tables import pairs, short, table
from tools.task_folders import task_folders
from tools.training_files import read_rows


class CheckRows(Input):
    spec: SpecFile
    rows: Annotated[str, Field(description="Chat rows, a JSONL file"), Cli(positional=True)]
    held_out: Annotated[
        str | None, Field(description="Folder of tasks that no row may contain")
    ] = None
    limit: Annotated[int, Field(ge=1, le=100, description="Findings shown of each cause")] = 5


class CheckResult(Contract):
    """Rows beside a specification; `ok` when nothing was found."""

    ok: bool
    spec: str
    """Digest."""
    parts: Parts
    file: str
    digest: str
    """Of the file's bytes."""
    rows: int
    rows_found: int
    """Rows with at least one finding."""
    variants: list[Variant]
    """Instructions and tools that the rows carry; at most ten."""
    counts: dict[Cause, int]
    findings: list[Finding]
    """The first of each cause."""
    held_out: int | None
    """Tasks compared with, if a folder was given."""


def _text(result: CheckResult) -> str:
    head = pairs(
        {
            "rows": result.rows,
            "fit": "every row" if result.ok else result.rows - result.rows_found,
            "file": f"{result.file}  {short(result.digest)}",
            "spec": short(result.spec),
            "held-out tasks": result.held_out,
            "found": result.counts or None,
        }
    )
    if result.ok:
        return head
    rows = [
        (one.row, one.id, one.message, one.part, one.cause, one.detail) for one in result.findings
    ]
    return f"{head}\n\n{table(('row', 'id', 'message', 'part', 'cause', 'detail'), rows)}"


@operation("model-spec", "check", READ_LOCAL, text=_text)
async def check(_: Context, request: CheckRows) -> CheckResult:
    """Compare rows with the deployment: instructions, tools, output, and what they name.

    Findings carry row, part and cause; none of them leaves `ok` true."""
    return await anyio.to_thread.run_sync(_check, request)


def _check(request: CheckRows) -> CheckResult:
    spec = read_spec(request.spec)
    file = read_rows(request.rows)
    held_out = None
    if request.held_out is not None:
        held_out = tuple(read_held_out(task_folders(request.held_out)))
    comparison = Check(spec, held_out or ())
    counts: Counter[Cause] = Counter()
    shown: list[Finding] = []
    touched: set[int] = set()
    for finding in comparison.findings(file.rows()):
        counts[finding.cause] += 1
        touched.add(finding.row)
        if counts[finding.cause] <= request.limit:
            shown.append(finding)
    return CheckResult(
        ok=not touched,
        spec=canonical.digest(spec),
        parts=parts(spec),
        file=str(Path(request.rows)),
        digest=file.digest,
        rows=comparison.rows,
        rows_found=len(touched),
        variants=comparison.variants[:10],
        counts=dict(counts),
        findings=shown,
        held_out=None if held_out is None else len(held_out),
    )
