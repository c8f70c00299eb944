"""`run verify`: derive every recorded invariant of a run again, from its records and objects.

Nothing here trusts a stored conclusion: verdicts, advantages, datum digests and log-probs are
made anew from the evidence and compared. The run itself is never changed. What a run has none
of (updates in an evaluation, say) is a check with nothing checked, not a failure.
"""

from runtime.compute.protocol import Compute
from runtime.learning.snapshot import RunReads, Snapshot, take_snapshot
from runtime.learning.verify_evidence import EvidenceChecks, LogprobCheck, count_interactions
from runtime.learning.verify_learning import check_learning, check_objects
from runtime.learning.verify_records import check_records
from specs.verify import VerifyReport

SAMPLES = 64
"""Interactions whose log-probs are derived again, unless told otherwise."""


async def verify_run(
    client: RunReads, compute: Compute | None, run_id: str, *, samples: int | None = SAMPLES
) -> VerifyReport:
    """Check one run; `samples=None` derives the log-probs of every interaction.

    On cancel nothing is left behind but an adapter or two in compute.

    Raises:
        NotFound: no such run.
        Unavailable: gateway, store or compute went away; nothing can be said.
    """
    return await verify_snapshot(
        await take_snapshot(client, run_id), client, compute, samples=samples
    )


async def verify_snapshot(
    snapshot: Snapshot, reads: RunReads, compute: Compute | None, *, samples: int | None = SAMPLES
) -> VerifyReport:
    """Check records that have been read, against the objects behind them."""
    evidence = EvidenceChecks()
    logprobs = LogprobCheck(compute, reads, snapshot, samples)
    total = count_interactions(snapshot.counted)
    for trial in snapshot.counted:
        calls = await evidence.look(reads, trial)
        await logprobs.look(total, calls)
    findings = [
        *check_records(snapshot),
        *evidence.results(),
        *await check_objects(reads, snapshot, compute),
        *await check_learning(reads, snapshot, compute),
        logprobs.finding,
    ]
    checks = tuple(finding.result() for finding in findings)
    return VerifyReport(
        run=snapshot.run.id,
        ok=not any(check.violated for check in checks),
        checks=checks,
        interactions=evidence.interactions,
        spans=dict(sorted(evidence.spans.items())),
        logprobs_recomputed=logprobs.recomputed,
        max_logprob_difference=logprobs.largest,
    )
