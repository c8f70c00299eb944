"""`run verify`: every recorded invariant of a run, derived again from records and objects.

A local operation: the derivation belongs to learning, and log-probabilities are computed anew by
the compute process of this stack.
"""

from typing import Annotated

from pydantic import Field

from specs.verify import VerifyReport
from tools.context import Context
from tools.fields import Input, RunRef
from tools.registry import READ_LOCAL, operation
from tools.tables import number, pairs, table


class Verify(Input):
    run: RunRef
    samples: Annotated[
        int, Field(ge=0, description="Calls whose log-probabilities are derived again; 0 = all")
    ] = 64


def _text(report: VerifyReport) -> str:
    head = pairs(
        {
            "run": report.run,
            "verdict": "every check holds" if report.ok else "VIOLATED",
            "interactions": report.interactions,
            "spans": ", ".join(f"{count} {span}" for span, count in report.spans.items()) or None,
            "log-probs derived again": report.logprobs_recomputed,
            "largest difference": None
            if report.max_logprob_difference is None
            else number(report.max_logprob_difference),
        }
    )
    rows = [
        (check.id, check.invariant, check.checked, check.violated, check.skipped or check.promise)
        for check in report.checks
    ]
    found = [f"violated {check.id}: {text}" for check in report.checks for text in check.violations]
    return "\n".join(
        [head, table(("check", "invariant", "checked", "violated", "promise"), rows), *found]
    )


@operation("run", "verify", READ_LOCAL, text=_text)
async def verify(context: Context, request: Verify) -> VerifyReport:
    """Re-derive every recorded invariant of a run; exits 1 when one is violated.

    Verdicts, advantages, datum digests and log-probabilities are made anew from the evidence and
    compared with what was recorded. The run is not changed.
    """
    from runtime.compute.client import HttpCompute
    from runtime.learning.verify import verify_run

    async with (
        context.gateway() as gateway,
        HttpCompute(context.require_local("run verify").compute_socket) as compute,
    ):
        run = await gateway.run(request.run)
        await context.progress(f"verifying {run.id}")
        return await verify_run(gateway, compute, run.id, samples=request.samples or None)
