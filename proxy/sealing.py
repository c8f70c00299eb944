"""The end of a trial's evidence.

A seal stops further calls, waits briefly for those under way (then they are lost), counts
what the segment holds, and is itself durable before anything leaves: from then on the same
seal is returned for ever. The segment is uploaded as one object, the reference committed, and
only then is the file removed. Whatever a crash interrupts is taken up again at the next start,
and so are segments of trials that are over without a seal (invariant 12). What fails meanwhile,
the disk included, fails for one trial and is tried again (invariant 16).
"""

import logging
import os
import time
from collections import Counter

import anyio
import anyio.to_thread

from proxy.gateway import Gateway
from proxy.registry import Registry, other_run
from proxy.spool import Key, Spool
from proxy.trials import Trial
from specs import canonical, evidence
from specs.base import Contract
from specs.errors import (
    ErrorCode,
    ErrorObject,
    InvalidInput,
    NotFound,
    PracticumError,
    Unavailable,
)
from specs.ids import Prefix, is_id
from specs.interaction import (
    Answer,
    CallState,
    Delivered,
    Failure,
    Intent,
    Refusal,
    Seal,
    Superseded,
)

GRACE_SEC = 2.0
RETRY_SEC = 5.0
PUBLISHERS = 4
"""Trials whose evidence is uploaded at one time; each is streamed from its file."""
KEEP_SEC = 2 * 86400.0
"""How long a committed seal is remembered: no credential lives longer than a day."""
_log = logging.getLogger(__name__)


class SealRecord(Contract):
    """A seal as it lies beside the segment."""

    seal: Seal
    committed: bool = False


class Sealer:
    """Seals trials and hands their evidence over."""

    def __init__(
        self, spool: Spool, registry: Registry, gateway: Gateway, *, grace: float = GRACE_SEC
    ) -> None:
        self._spool = spool
        self._registry = registry
        self._gateway = gateway
        self._grace = grace
        self._publishers = anyio.CapacityLimiter(PUBLISHERS)
        self._locks: dict[Key, anyio.Lock] = {}
        self._orphans: set[Key] = set()
        self._news = anyio.Event()

    async def seal(self, key: Key, run: str) -> Seal:
        """End a trial; its evidence is with the gateway when this returns.

        Repeating it returns the same. On cancel, or when the gateway is away or the disk fails,
        the seal stays as far as it got and is completed by a repetition or in the background.

        Raises:
            Conflict: the trial belongs to another run.
            Unavailable: the evidence could not be handed over yet.
        """
        try:
            return await self._sealed(key, run)
        except OSError as error:
            self._enqueue(key)
            raise _not_published(key, error) from error

    async def _sealed(self, key: Key, run: str) -> Seal:
        """What `seal` promises, but for an error of the disk."""
        async with self._locks.setdefault(key, anyio.Lock()):
            record = await anyio.to_thread.run_sync(self._recorded, key)
            if record is None:
                record = await self._make(key, run)
            if record.seal.run != run:
                raise other_run(key, record.seal.run)
            if not record.committed:
                self._enqueue(key)
                await self._publish(key, record)
            elif key in self._orphans:  # its file could not be removed, or its seal not be read
                await anyio.to_thread.run_sync(self._remove, key, record)
            self._orphans.discard(key)
        self._locks.pop(key, None)
        return record.seal

    async def adopt(self, key: Key) -> None:
        """Seal a trial that is over and that nobody sealed; done in the background."""
        if key not in self._registry.sealed:
            self._enqueue(key)

    async def start(self) -> None:
        """Take up what an earlier process left: before the first request is served.

        Segments without a seal are watched, so that the gateway says whether their trials
        are over; seals that were not handed over are; old ones are forgotten.
        """
        for key, is_seal in await anyio.to_thread.run_sync(lambda: list(self._spool.keys())):
            if is_seal:
                self._registry.sealed.add(key)
                await self._take_up(key)
            elif not self._spool.seal_path(key).exists():
                self._registry.leases.watch(key)

    async def _take_up(self, key: Key) -> None:
        """Hand over or forget a seal; one that cannot be read is tried again later."""
        try:
            record = await anyio.to_thread.run_sync(self._recorded, key)
            if record is None or not record.committed:
                self._enqueue(key)
            else:
                await anyio.to_thread.run_sync(self._forget_old, key)
        except (OSError, InvalidInput) as error:
            _log.warning("seal not read", extra={"trial": key.trial, "cause": str(error)})
            self._enqueue(key)

    async def run(self) -> None:
        """Complete seals in the background, for ever. On cancel nothing is half done."""
        while True:
            with anyio.move_on_after(RETRY_SEC if self._orphans else None):
                await self._news.wait()
            self._news = anyio.Event()
            async with anyio.create_task_group() as tasks:  # one slow upload delays no other
                for key in list(self._orphans):
                    tasks.start_soon(self._complete, key)

    def _enqueue(self, key: Key) -> None:
        """Complete this seal in the background, should nobody else."""
        if key not in self._orphans:
            self._orphans.add(key)
            self._news.set()

    async def _complete(self, key: Key) -> None:
        """Seal a trial or leave it for the next time, whatever happens: others go on."""
        try:
            try:
                record = await anyio.to_thread.run_sync(self._recorded, key)
                run = record.seal.run if record else await self._run_of(key)
                await self.seal(key, run)
            except NotFound as error:
                _log.warning(
                    "evidence of no known trial removed",
                    extra={"trial": key.trial, "cause": str(error)},
                )
                await self._discard(key)
        except (PracticumError, OSError) as error:
            _log.warning("seal not complete", extra={"trial": key.trial, "cause": str(error)})
        except Exception:  # noqa: BLE001 - the boundary of a trial; logged
            _log.exception("seal not complete", extra={"trial": key.trial})

    async def _run_of(self, key: Key) -> str:
        """The run of a trial; a session is its own."""
        if is_id(key.trial, Prefix.SESSION):
            return key.trial
        return (await self._gateway.trial(key.trial)).run

    async def _make(self, key: Key, run: str) -> SealRecord:
        """Stop the trial's calls, count, and make the seal durable."""
        trial = await self._registry.end(key, run)
        if trial is not None:
            await self._quiesce(trial)
        record = await anyio.to_thread.run_sync(self._count, key, run)
        if trial is not None:
            self._registry.close(trial)
        self._registry.leases.forget(key)
        return record

    async def _quiesce(self, trial: Trial) -> None:
        """No call is under way and no record is still to be written when this returns.

        A segment whose disk failed takes no more; its calls have ended without their records, and
        what it holds is all there is to count.
        """
        trial.sealing = True
        async with trial.lock:  # whoever was being admitted has been
            calls = list(trial.under_way)
        with anyio.move_on_after(self._grace):
            for call in calls:
                await call.done.wait()
        with anyio.CancelScope(shield=True):
            for call in calls:
                call.stop()
            for call in calls:
                await call.done.wait()
            # First closed, then flushed: a client that leaves now must not add to what is counted.
            trial.closed = True
            try:
                await trial.spool.submit(trial.segment, b"").wait()
            except Unavailable as error:
                if trial.segment.broken is None:
                    raise
                _log.warning(
                    "sealed as far as it was written",
                    extra={"trial": trial.key.trial, "cause": str(error)},
                )

    def _count(self, key: Key, run: str) -> SealRecord:
        path = self._spool.segment_path(key)
        data = path.read_bytes() if path.exists() else b""
        seal = seal_of(data, key, run)
        if seal.size < len(data):
            os.truncate(path, seal.size)  # what is torn off is no part of the object
        record = SealRecord(seal=seal)
        self._write(key, record)
        return record

    async def _publish(self, key: Key, record: SealRecord) -> None:
        """Upload, commit, remember, remove: each step is harmless to repeat.

        Only so many trials do it at once. On cancel the rest is done later.
        """
        async with self._publishers:
            try:
                await self._hand_over(key, record)
            except Unavailable:
                raise
            except PracticumError as error:
                if error.problem.status < 500:
                    raise
                raise _not_published(key, error) from error

    async def _hand_over(self, key: Key, record: SealRecord) -> None:
        seal = record.seal
        if seal.object is not None:
            path = self._spool.segment_path(key)
            await self._gateway.upload_file(path, digest=seal.object)
        if is_id(key.trial, Prefix.SESSION):
            await self._gateway.commit_session(seal)
        else:
            await self._gateway.commit_evidence(seal)
        await anyio.to_thread.run_sync(self._remove, key, record)
        _log.info(
            "sealed",
            extra={
                "trial": key.trial,
                "interactions": seal.interactions,
                "complete": seal.complete,
            },
        )

    def _remove(self, key: Key, record: SealRecord) -> None:
        if not record.committed:
            self._write(key, record.model_copy(update={"committed": True}))
        self._spool.remove(key)
        self._spool.sync_folder()

    async def _discard(self, key: Key) -> None:
        self._registry.sealed.add(key)
        self._registry.leases.forget(key)
        await anyio.to_thread.run_sync(self._unlink, key)
        self._orphans.discard(key)

    def _unlink(self, key: Key) -> None:
        self._spool.remove(key)
        self._spool.seal_path(key).unlink(missing_ok=True)
        self._spool.sync_folder()

    def _forget_old(self, key: Key) -> None:
        path = self._spool.seal_path(key)
        self._spool.remove(key)
        if time.time() - path.stat().st_mtime > KEEP_SEC:
            path.unlink()
            self._registry.sealed.discard(key)

    def _recorded(self, key: Key) -> SealRecord | None:
        path = self._spool.seal_path(key)
        if not path.exists():
            return None
        return canonical.read(SealRecord, path.read_bytes(), what="seal")

    def _write(self, key: Key, record: SealRecord) -> None:
        self._spool.write_file(self._spool.seal_path(key), record.model_dump_json().encode())


def _not_published(key: Key, error: Exception) -> Unavailable:
    return Unavailable(
        f"The evidence of the trial could not be handed over: {error}.",
        code=ErrorCode.STORE_UNAVAILABLE,
        object=ErrorObject(type="trial", id=key.trial),
        next="Seal the trial again; nothing of it is lost.",
    )


def seal_of(data: bytes, key: Key, run: str) -> Seal:
    """Count a segment. A torn tail is not part of the object; damage makes it incomplete."""
    intents: dict[str, Intent] = {}
    answers: dict[str, int] = {}
    gone: set[str] = set()
    count: Counter[CallState] = Counter(dict.fromkeys(CallState, 0))
    end, damaged = 0, False
    try:
        for frame, end in evidence.frames(data):  # noqa: B007
            match frame.record:
                case Intent():
                    intents[frame.record.interaction] = frame.record
                case Answer():
                    answers[frame.record.interaction] = len(frame.arrays["output"])
                    if frame.record.superseded:
                        gone.add(frame.record.interaction)
                case Superseded():
                    gone.add(frame.record.interaction)
                case Refusal():
                    count[CallState.REFUSED] += 1
                case Delivered():
                    pass
                case Failure():
                    damaged = damaged or frame.record.interaction not in intents
                    count[CallState.REFUSED] += _refused(frame.record, intents)
    except InvalidInput as error:
        _log.error("segment damaged", extra={"trial": key.trial, "cause": str(error)})
        damaged = True
    for name in intents:
        if name not in answers:
            count[CallState.LOST] += 1
        else:
            count[CallState.SUPERSEDED if name in gone else CallState.ANSWERED] += 1
    return Seal(
        trial=key.trial,
        run=run,
        fence=key.fence,
        interactions=len(intents),
        states=dict(count),
        object=canonical.digest_bytes(data[:end]) if end else None,
        size=end,
        complete=not damaged and not count[CallState.LOST],
        prompt_tokens=sum(intent.prompt_tokens for intent in intents.values()),
        output_tokens=sum(answers.values()),
    )


def _refused(failure: Failure, intents: dict[str, Intent]) -> bool:
    """Take a call out of which nothing was sampled: it counts as refused."""
    return not failure.sampled and intents.pop(failure.interaction, None) is not None
