"""Reads that are open to every role."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import BaseModel

from runtime.client.objects import ObjectClient, checked
from runtime.client.segment import segment
from specs import canonical
from specs.comparison import ComparisonPage
from specs.construction_records import Construction, ConstructionPage
from specs.dataset import Dataset
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.events import Event, EventPage
from specs.ids import Prefix
from specs.interaction import Seal
from specs.operator_api import (
    CheckpointPage,
    CheckpointUses,
    GroupPage,
    LogPage,
    ModelList,
    PublishedPage,
    RecordedGroupPage,
    RunPage,
    StackHealth,
    TrialPage,
    UpdatePage,
)
from specs.profile import Profile
from specs.records import Checkpoint, Trial, Update
from specs.run import Run, RunResult, SamplerRef

LONGEST_WAIT = 25.0
"""Seconds that the gateway holds an answer back at most, so that no middlebox ends it."""


@dataclass(frozen=True, slots=True)
class Verified[M]:
    """A published document whose bytes have the digest they were published under."""

    value: M
    digest: str
    content: bytes


class ReadClient(ObjectClient):
    """Typed reads; every page method takes the opaque `cursor` of the page before."""

    async def health(self) -> StackHealth:
        """What the gateway says of itself; needs no key."""
        return await self.transport.call("GET", "/healthz", StackHealth)

    async def models(self) -> ModelList:
        """Models that a profile can name."""
        return await self.transport.call("GET", "/v1/models", ModelList)

    async def datasets(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> PublishedPage:
        """Published datasets, newest first."""
        return await self._page("/v1/datasets", PublishedPage, limit, cursor)

    async def dataset(self, reference: str, *, expected: str | None = None) -> Verified[Dataset]:
        """A dataset `org/name@version`, its bytes checked against their digest.

        Raises:
            InvalidInput: `digest_mismatch`, also where `expected` is another digest.
        """
        return await self._document("datasets", reference, Dataset, expected)

    async def profiles(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> PublishedPage:
        """Published profiles, newest first."""
        return await self._page("/v1/profiles", PublishedPage, limit, cursor)

    async def profile(self, reference: str, *, expected: str | None = None) -> Verified[Profile]:
        """A profile `org/name@version`, its bytes checked against their digest.

        Raises:
            InvalidInput: `digest_mismatch`: a tampered profile is not used.
        """
        return await self._document("profiles", reference, Profile, expected)

    async def runs(self, *, limit: int | None = None, cursor: str | None = None) -> RunPage:
        """Runs, newest first."""
        return await self._page("/v1/runs", RunPage, limit, cursor)

    async def run(self, run: str) -> Run:
        """One run; a short id will do where it is unambiguous."""
        return await self.transport.call("GET", f"/v1/runs/{segment(run)}", Run)

    async def result(self, run: str) -> RunResult:
        """Counts and scores of a run so far."""
        return await self.transport.call("GET", f"/v1/runs/{segment(run)}/result", RunResult)

    async def events(
        self, run: str, *, after: int = 0, limit: int | None = None, wait: float = 0.0
    ) -> EventPage:
        """Events after a cursor; with none there, waits up to `wait` seconds for one."""
        wait = min(wait, LONGEST_WAIT)
        params = {"after": after, "limit": limit, "wait": wait or None}
        return await self.transport.call(
            "GET", f"/v1/runs/{segment(run)}/events", EventPage, params=params, wait=wait
        )

    async def follow(self, run: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event after `after` until the run's last one; resumes from the same cursor
        where a connection breaks, so none is missed or repeated. On cancel it just stops."""
        while True:
            page = await self.events(run, after=after, wait=LONGEST_WAIT)
            for event in page.events:
                yield event
            if page.terminal:
                return
            after = page.next

    async def trials(
        self,
        run: str,
        *,
        batch: int | None = None,
        group: str | None = None,
        counted: bool | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> TrialPage:
        """Trials of a run, in slot order."""
        return await self._page(
            f"/v1/runs/{segment(run)}/trials",
            TrialPage,
            limit,
            cursor,
            batch=batch,
            group=group,
            counted=None if counted is None else str(counted).lower(),
        )

    async def trial(self, trial: str) -> Trial:
        """One trial."""
        return await self.transport.call("GET", f"/v1/trials/{segment(trial)}", Trial)

    async def trial_seal(self, trial: str) -> Seal:
        """The seal of a trial's evidence.

        Raises:
            NotFound: no such trial, or its harness is still at work.
        """
        return await self.transport.call("GET", f"/v1/trials/{segment(trial)}/seal", Seal)

    async def groups(
        self, run: str, *, limit: int | None = None, cursor: str | None = None
    ) -> GroupPage:
        """Sampling groups of a run, in order."""
        return await self._page(f"/v1/runs/{segment(run)}/groups", GroupPage, limit, cursor)

    async def updates(
        self, run: str, *, limit: int | None = None, cursor: str | None = None
    ) -> UpdatePage:
        """Updates of a run, in order."""
        return await self._page(f"/v1/runs/{segment(run)}/updates", UpdatePage, limit, cursor)

    async def checkpoints(
        self, run: str | None = None, *, limit: int | None = None, cursor: str | None = None
    ) -> CheckpointPage:
        """Checkpoints of one run in order, or all of them, newest first."""
        path = "/v1/checkpoints" if run is None else f"/v1/runs/{segment(run)}/checkpoints"
        return await self._page(path, CheckpointPage, limit, cursor)

    async def checkpoint(self, checkpoint: str) -> Checkpoint:
        """One checkpoint."""
        return await self.transport.call(
            "GET", f"/v1/checkpoints/{segment(checkpoint)}", Checkpoint
        )

    async def checkpoint_uses(self, checkpoint: str) -> CheckpointUses:
        """What refers to a checkpoint, and so protects it from deletion."""
        return await self.transport.call(
            "GET", f"/v1/checkpoints/{segment(checkpoint)}/uses", CheckpointUses
        )

    async def update(self, update: str) -> Update:
        """One update, whichever run it is of."""
        return await self.transport.call("GET", f"/v1/updates/{segment(update)}", Update)

    async def runs_using(
        self, record: str, *, limit: int | None = None, cursor: str | None = None
    ) -> RunPage:
        """Runs that start from a checkpoint, or from any of a run's, or learn from its trials."""
        return await self._page(f"{_used_by(record)}/runs", RunPage, limit, cursor)

    async def groups_using(
        self, record: str, *, limit: int | None = None, cursor: str | None = None
    ) -> RecordedGroupPage:
        """Groups of every run that sampled from a checkpoint, or from any of a run's."""
        return await self._page(f"{_used_by(record)}/groups", RecordedGroupPage, limit, cursor)

    async def comparisons(
        self, *, dataset: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> ComparisonPage:
        """Recorded comparisons, newest first; `dataset` is a digest."""
        return await self._page("/v1/comparisons", ComparisonPage, limit, cursor, dataset=dataset)

    async def constructions(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> ConstructionPage:
        """Construction plans, newest first."""
        return await self._page("/v1/constructions", ConstructionPage, limit, cursor)

    async def construction(self, construction: str) -> Construction:
        """One construction plan with all that was recorded of it."""
        return await self.transport.call(
            "GET", f"/v1/constructions/{segment(construction)}", Construction
        )

    async def logs(
        self,
        run: str,
        *,
        source: str | None = None,
        trial: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> LogPage:
        """Pieces of a run's logs, oldest first."""
        return await self._page(
            f"/v1/runs/{segment(run)}/logs", LogPage, limit, cursor, source=source, trial=trial
        )

    async def sampler(self, sampler: str) -> SamplerRef:
        """What a sampler id stands for."""
        return await self.transport.call("GET", f"/v1/samplers/{segment(sampler)}", SamplerRef)

    async def _page[M: BaseModel](
        self,
        path: str,
        page: type[M],
        limit: int | None,
        cursor: str | None,
        **filters: str | int | None,
    ) -> M:
        params = {"limit": limit, "cursor": cursor, **filters}
        return await self.transport.call("GET", path, page, params=params)

    async def _document[M: BaseModel](
        self, collection: str, reference: str, model: type[M], expected: str | None
    ) -> Verified[M]:
        name, _, version = reference.partition("@")
        kind = collection.removesuffix("s")
        if name.count("/") != 1 or not version:
            raise InvalidInput(
                f"{reference!r} does not name a {kind} version.",
                code=ErrorCode.INVALID_REFERENCE,
                object=ErrorObject(type=kind, id=reference),
                next="Write it as org/name@version.",
            )
        response = await self.transport.send("GET", f"/v1/{collection}/{name}/{version}")
        stated = response.headers.get("digest", "")
        content = checked(response.content, expected or stated, kind, reference)
        return Verified(
            canonical.read(model, content, what=kind), canonical.digest_bytes(content), content
        )


def _used_by(record: str) -> str:
    """The routes that tell what came of a checkpoint or of a run."""
    if record.startswith(Prefix.CHECKPOINT):
        return f"/v1/checkpoints/{segment(record)}"
    return f"/v1/runs/{segment(record)}/used-by"
