"""Token spans that moved an update: the generated tokens of one call, with their weight.

A contribution names the calls that were packed into one sequence. The last of them holds the
whole sequence, its prompt and its output; every call's own output is a span in it. Payloads
stay where they are: a span names the evidence object, the call in it, and the place.
"""

from collections import OrderedDict
from collections.abc import Mapping

from runtime.client.reads import ReadClient
from specs import evidence
from specs.base import Contract
from specs.chat import RowOrigin
from specs.interaction import Interaction
from specs.records import Contribution, Trial, Update

KEPT = 8
"""Trials whose calls are kept, since neighbouring contributions are of one trial."""


class Span(Contract):
    """Generated tokens `start … end` of a sequence, each moving the update by `weight`; of a row
    of a file all of its target tokens."""

    run: str
    update: str
    batch: int
    group: str | None
    trial: str | None
    """None for a row of a file."""
    row: RowOrigin | None
    task: str | None
    reward: float | None
    advantage: float | None
    interaction: str | None
    call: int | None
    """Number of the call within its trial."""
    datum: str
    """Digest of the packed sequence."""
    tokens: int
    """How many are weighed."""
    start: int | None
    """Place of the first token in the sequence, prompt included; None for a row, whose turns are
    targets as its file says."""
    end: int | None
    """One past the last."""
    weight: float
    """Per token: the advantage over its divisor, or the supervised weight."""
    logprob_sum: float | None
    evidence: str | None
    """Digest of the object that holds the tokens."""


class Trials:
    """Trials and their calls, read once each while they are near. Not for concurrent use."""

    def __init__(self, reads: ReadClient) -> None:
        self._reads = reads
        self._kept: OrderedDict[str, tuple[Trial, dict[str, Interaction]]] = OrderedDict()

    async def read(self, trial: str) -> tuple[Trial, Mapping[str, Interaction]]:
        """A trial and its calls by id; none where nothing was sealed."""
        if trial not in self._kept:
            found = await self._reads.trial(trial)
            self._kept[trial] = (found, await calls_of(self._reads, found))
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(trial)
        return self._kept[trial]


async def calls_of(reads: ReadClient, trial: Trial) -> dict[str, Interaction]:
    """The calls of a trial by id, oldest first."""
    seal = trial.settled.seal if trial.settled else None
    if seal is None or seal.object is None:
        return {}
    calls = evidence.interactions(await reads.object(seal.object))
    return {call.intent.interaction: call for call in calls}


def count_spans(update: Update) -> int:
    """How many spans an update has."""
    return sum(len(one.interactions) or 1 for one in update.contributions)


async def spans(trials: Trials, update: Update, start: int, limit: int) -> list[Span]:
    """At most `limit` spans of an update from the `start`-th on, in the order of its datums."""
    places = [(one, name) for one in update.contributions for name in one.interactions or (None,)]
    return [
        _row(update, contribution)
        if contribution.trial is None or name is None
        else await _span(trials, update, contribution, contribution.trial, name)
        for contribution, name in places[start : start + limit]
    ]


def _row(update: Update, contribution: Contribution) -> Span:
    return Span(
        run=update.run,
        update=update.id,
        batch=update.batch,
        group=contribution.group,
        trial=contribution.trial,
        row=contribution.row,
        task=None,
        reward=None,
        advantage=None,
        interaction=None,
        call=None,
        datum=contribution.datum,
        tokens=contribution.trained_tokens,
        start=None,
        end=None,
        weight=contribution.weight,
        logprob_sum=None,
        evidence=None,
    )


async def _span(
    trials: Trials, update: Update, contribution: Contribution, trial_id: str, name: str
) -> Span:
    trial, calls = await trials.read(trial_id)
    call = calls[name]
    seal = trial.settled.seal if trial.settled else None
    assert seal is not None  # a trial without evidence contributes nothing
    start = len(call.prompt)
    return Span(
        run=update.run,
        update=update.id,
        batch=update.batch,
        group=contribution.group,
        trial=trial.id,
        row=None,
        task=trial.task,
        reward=trial.assessment.reward if trial.assessment else None,
        advantage=trial.advantage,
        interaction=name,
        call=call.intent.sequence,
        datum=contribution.datum,
        tokens=len(call.output),
        start=start,
        end=start + len(call.output),
        weight=contribution.weight,
        logprob_sum=None if call.logprobs is None else float(sum(call.logprobs)),
        evidence=seal.object,
    )
