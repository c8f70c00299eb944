"""`model-spec observe`: what a harness really told its model, beside the specification."""

from collections import Counter
from typing import Annotated

from pydantic import Field

from runtime.specialist.check import Check
from runtime.specialist.findings import PARTS, Cause, Variant
from runtime.specialist.recorded import recorded_call
from runtime.specialist.render import parts
from specs import canonical, evidence
from specs.base import Contract
from specs.model_spec import Parts
from tools.context import Context
from tools.evidence import evidence_of
from tools.fields import Input, RunRef
from tools.model_spec import SpecFile, read_spec
from tools.registry import READ_LOCAL, operation
from tools.tables import pairs, short, table


class Observe(Input):
    spec: SpecFile
    run: RunRef
    answers: Annotated[bool, Field(description="Also check what the model answered")] = False
    trials: Annotated[int, Field(ge=1, le=500, description="Trials to read")] = 20
    limit: Annotated[int, Field(ge=1, le=100, description="Findings shown of each cause")] = 5


class Seen(Contract):
    """One difference, in one recorded call."""

    trial: str
    call: int
    part: str
    cause: Cause
    detail: str


class Observed(Contract):
    """A run's recorded calls beside a specification; `ok` when nothing was found."""

    ok: bool
    spec: str
    """Digest."""
    parts: Parts
    run: str
    trials: int
    """Counted trials that were read."""
    unread: int
    """Trials without sealed evidence."""
    calls: int
    silent: int
    """Calls of which no request was kept: nothing to compare."""
    variants: list[Variant]
    """What the calls carried; `rows` counts calls, and `first_row` is the first of them, from 0."""
    counts: dict[Cause, int]
    findings: list[Seen]


def _text(seen: Observed) -> str:
    head = pairs(
        {
            "run": seen.run,
            "trials": seen.trials,
            "without evidence": seen.unread or None,
            "calls": seen.calls,
            "without request": seen.silent or None,
            "spec": short(seen.spec),
            "found": seen.counts or "nothing",
        }
    )
    if seen.ok:
        return head
    rows = [(one.trial, one.call, one.part, one.cause, one.detail) for one in seen.findings]
    return f"{head}\n\n{table(('trial', 'call', 'part', 'cause', 'detail'), rows)}"


@operation("model-spec", "observe", READ_LOCAL, text=_text)
async def observe(context: Context, request: Observe) -> Observed:
    """Compare what a run's harness sent to its model with the specification.

    A harness may add to its instructions or send other tools; only its recorded calls tell."""
    spec = read_spec(request.spec)
    check = Check(spec)
    counts: Counter[Cause] = Counter()
    shown: list[Seen] = []
    read = silent = 0
    async with context.gateway() as gateway:
        run = await gateway.run(request.run)
        trials = (await gateway.trials(run.id, counted=True, limit=request.trials)).items
        for trial in trials:
            seal = trial.settled.seal if trial.settled else None
            if seal is None:
                continue
            read += 1
            calls = evidence.interactions(await evidence_of(gateway, seal))
            for index, call in enumerate(calls):
                if not call.request:
                    silent += 1
                    continue
                heard = recorded_call(call, with_answer=request.answers)
                last = index == len(calls) - 1
                for cause, _, detail in check.call(heard, check.rows, last=last):
                    counts[cause] += 1
                    if counts[cause] <= request.limit:
                        sequence, part = call.intent.sequence, PARTS[cause]
                        shown.append(
                            Seen(
                                trial=trial.id,
                                call=sequence,
                                part=part,
                                cause=cause,
                                detail=detail,
                            )
                        )
    return Observed(
        ok=not counts,
        spec=canonical.digest(spec),
        parts=parts(spec),
        run=run.id,
        trials=read,
        unread=len(trials) - read,
        calls=check.rows,
        silent=silent,
        variants=check.variants[:10],
        counts=dict(counts),
        findings=shown,
    )
