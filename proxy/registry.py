"""The trials of this proxy: opened at their first call, closed when they are sealed."""

import anyio
import anyio.to_thread

from proxy.leases import Leases
from proxy.spool import MAX_SEGMENT_BYTES, Key, Spool
from proxy.trials import Trial, open_trial
from specs.errors import Conflict, ErrorCode, ErrorObject, Forbidden, Unavailable
from specs.worker_api import TrialClaims


class Registry:
    """Trials by (trial, fence)."""

    def __init__(self, spool: Spool, leases: Leases) -> None:
        self.spool = spool
        self.leases = leases
        self.sealed: set[Key] = set()
        """Trials whose end is recorded; no call of theirs is accepted."""
        self._trials: dict[Key, Trial] = {}
        self._lock = anyio.Lock()

    def __len__(self) -> int:
        return len(self._trials)

    async def trial(self, claims: TrialClaims) -> Trial:
        """The trial that a token opens; its segment is read back if there is one.

        Raises:
            Forbidden: it is sealed, not renewed, or another run's.
            Unavailable: its segment cannot be opened.
        """
        key = Key(claims.trial, claims.fence)
        if key in self.sealed:
            raise _sealed(key)
        self.leases.check(key)
        trial = self._trials.get(key)
        if trial is None:
            async with self._lock:
                trial = self._trials.get(key) or await self._open(key, claims.run)
        if trial.run != claims.run:
            raise Forbidden(
                "The token names another run than the trial's.",
                object=ErrorObject(type="trial", id=key.trial),
            )
        self.check_open(trial)
        return trial

    async def end(self, key: Key, run: str) -> Trial | None:
        """Accept no call of a trial from now on; the trial, if it is open here.

        An opening that is under way is waited for, so that nobody writes to a segment that
        is being sealed.

        Raises:
            Conflict: the trial belongs to another run.
        """
        async with self._lock:
            trial = self._trials.get(key)
            if trial is not None and trial.run != run:
                raise other_run(key, trial.run)
            self.sealed.add(key)
            return trial

    def check_open(self, trial: Trial) -> None:
        """Refuse calls of a trial that ends, or while there is no room for what they leave.

        Raises:
            Forbidden: the trial ends, or has filled its share of the disk.
            Unavailable: too much waits for publication.
        """
        if trial.sealing:
            raise _sealed(trial.key)
        self.spool.check_room()
        if trial.segment.size > MAX_SEGMENT_BYTES:
            raise Forbidden(
                f"The trial's evidence has reached {MAX_SEGMENT_BYTES} bytes.",
                object=ErrorObject(type="trial", id=trial.key.trial, pointer="/limits/evidence"),
                next="End the work; the trial can make no more calls.",
            )

    def close(self, trial: Trial) -> None:
        """Forget a sealed trial."""
        trial.closed = True
        trial.segment.close()
        self._trials.pop(trial.key, None)
        self.sealed.add(trial.key)
        self.leases.forget(trial.key)

    async def _open(self, key: Key, run: str) -> Trial:
        if key in self.sealed:
            raise _sealed(key)
        try:
            trial = await anyio.to_thread.run_sync(open_trial, key, run, self.spool)
        except OSError as error:
            raise Unavailable(
                f"The evidence of the trial cannot be opened: {error}.",
                code=ErrorCode.STORE_UNAVAILABLE,
                object=ErrorObject(type="trial", id=key.trial),
                next="Free space in the home folder.",
            ) from error
        self._trials[key] = trial
        return trial


def other_run(key: Key, run: str) -> Conflict:
    """A seal was asked for under the wrong run."""
    return Conflict(
        f"The trial belongs to run {run}.",
        object=ErrorObject(type="trial", id=key.trial),
        next="Name the run that the trial belongs to.",
    )


def _sealed(key: Key) -> Forbidden:
    return Forbidden(
        "The trial has ended and is sealed.",
        code=ErrorCode.TRIAL_NOT_RENEWED,
        object=ErrorObject(type="trial", id=key.trial),
        next="The trial is over; start another one.",
    )
