"""The pipeline of one batch: each group that settles is judged and handed to the trainer.

    sampling   ├ group 0 ─┤├ group 2 ───────────┤
               ├ group 1 ───────────────────────────────────┤
    learning              ├ judge 0, submit 0 ┤ ├ 2 ┤        ├ 1 ┤ step

Groups are submitted in the order in which they settled, which is on record before anything
is submitted: made again after a crash, an update adds up the same gradients in the same order.
Verdicts, advantages and weights are local to the group, or planned constants (design,
"Normalisers"), so nothing of an early group depends on a late one. The records of a group are
written in this order: settled (with its last trial), judged, contributed, accumulated.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from runtime.compute.losses import Loss
from runtime.execution.context import RunContext
from runtime.execution.groups import SettledGroup
from runtime.learning.ledger import Ledger
from runtime.learning.session import Learning
from runtime.learning.settlement import Settlement, Tally, judge, settle
from runtime.learning.work import Part, Summary, Terms
from specs.plans import TrainingPlan
from specs.worker_api import BatchSettled, GroupJudged


class BatchWork:
    """The work of a batch whose groups are still coming in."""

    def __init__(
        self, ctx: RunContext, session: Learning, batch: int, plan: TrainingPlan, ledger: Ledger
    ) -> None:
        self.batch = batch
        self.loss = Loss(plan.loss)
        self.terms = Terms.of(plan)
        self.final = session.final(batch)
        self._ctx = ctx
        self._evidence = session.evidence
        self._sampler = session.policy.sampler.id
        self._plan = plan
        self._ledger = ledger
        self._settled = session.judged(batch)
        self._judged: set[str] = set()
        self._tally = Tally()

    async def parts(self) -> AsyncGenerator[Part]:
        """Judge each group as it settles, record the verdicts once, and give what it teaches;
        then record the batch as settled.

        Raises:
            RunStopped, PracticumError: what ended the sampling.
        """
        self._tally = Tally()
        async with aclosing(self._ledger.read()) as groups:
            async for group in groups:
                settlement = await self._settle(group)
                self._tally.add(settlement)
                yield Part(group.group.id, settlement.rows, self._sampling)
        if not self._settled:
            await self._ctx.write(BatchSettled(batch=self.batch, census=self._tally.census))
            self._settled = True

    def _sampling(self) -> bool:
        return not self._ledger.complete

    def summary(self) -> Summary:
        """Of all groups."""
        return Summary(self._tally.census, self._tally.measures)

    async def _settle(self, settled: SettledGroup) -> Settlement:
        """Verdicts and advantages of a group, recorded once (invariant 5)."""
        judged = [
            judge(trial, await self._evidence.read(trial), sampler=self._sampler, plan=self._plan)
            for trial in settled.trials
        ]
        settlement = settle(judged, self._plan)
        group = settled.group
        if not group.judged and group.id not in self._judged:
            await self._ctx.write(
                GroupJudged(group=group.id, verdicts=settlement.verdicts, census=settlement.census)
            )
            self._judged.add(group.id)
        return settlement
