"""Transactions as plain functions of a SQLAlchemy Core connection.

`Database` is what the gateway works with; PostgreSQL will implement it with `run_sync`.
`SqliteDatabase` has one writer thread with group commit: whatever waits is run in one
transaction, each function in a SAVEPOINT of its own, and no result is delivered before the
commit is durable (WAL, synchronous FULL). One fsync and one wake-up of the event loop thus serve
many waiters, and a failing function takes nothing with it but itself. Reads run in threads of
their own, each in one snapshot.
"""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import anyio
import anyio.to_thread
import sqlalchemy as sa
from sqlalchemy import Connection, event
from sqlalchemy.exc import DBAPIError

from specs.errors import ErrorCode, ErrorObject, Unavailable

type Transaction[T] = Callable[[Connection], T]

GROUP_LIMIT = 256
"""Transactions of one commit at most."""
READERS = 4


class Database(Protocol):
    """Durable transactions."""

    async def write[T](self, transaction: Transaction[T]) -> T:
        """Run and commit `transaction`; its effects are durable when this returns.

        An exception from it is raised here and undoes it alone. On cancel a transaction that
        has not begun never happens; one that has begun may still be committed.
        """
        ...

    async def read[T](self, transaction: Transaction[T]) -> T:
        """Run `transaction` on one consistent snapshot. On cancel its result is dropped."""
        ...

    async def close(self) -> None:
        """Finish what was begun and let go of the database."""
        ...


@dataclass(slots=True)
class _Job:
    """One waiting transaction, and its outcome until the commit decides on it."""

    transaction: Transaction[Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None

    def deliver(self) -> None:
        """In the loop of the future; a waiter that was cancelled gets nothing."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class SqliteDatabase:
    """See the module; create with a path whose schema is current (`schema.upgrade`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closed = False
        self._reader = sqlite_engine(path, readonly=True)
        self._slots = anyio.CapacityLimiter(READERS)
        self._writer = threading.Thread(target=self._work, name="database-writer", daemon=True)
        self._writer.start()

    async def write[T](self, transaction: Transaction[T]) -> T:
        if self._closed:
            raise _unavailable("it is closed", self.path)
        job = _Job(transaction, asyncio.get_running_loop().create_future())
        self._jobs.put(job)
        return await job.future

    async def read[T](self, transaction: Transaction[T]) -> T:
        def run() -> T:
            with self._reader.begin() as connection:
                return transaction(connection)

        return await anyio.to_thread.run_sync(run, limiter=self._slots, abandon_on_cancel=True)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._jobs.put(None)
        await anyio.to_thread.run_sync(self._writer.join)
        self._reader.dispose()

    def _work(self) -> None:
        engine = sqlite_engine(self.path)
        try:
            with engine.connect() as connection:
                while (group := self._next_group()) is not None:
                    _commit(connection, group, self.path)
        finally:
            engine.dispose()

    def _next_group(self) -> list[_Job] | None:
        """Everything that waits, up to the limit; None once closed and empty."""
        first = self._jobs.get()
        if first is None:
            return None
        group = [first]
        while len(group) < GROUP_LIMIT:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            group.append(job)
        return [job for job in group if not job.future.cancelled()]


def _commit(connection: Connection, group: list[_Job], path: Path) -> None:
    """Run a group in one transaction and then deliver; if it cannot be committed, all fail."""
    if not group:
        return
    try:
        with connection.begin():
            if len(group) == 1:
                _run_alone(connection, group[0])
            else:
                for job in group:
                    _run_nested(connection, job)
    except _RolledBack:
        pass  # the only job failed and carries its error
    except (DBAPIError, sqlite3.Error) as error:
        for job in group:
            job.error = _unavailable(str(getattr(error, "orig", error)), path)
    except BaseException as error:  # noqa: BLE001 - the waiters get it; the writer must go on
        for job in group:
            job.error = error
    _deliver(group)


def _deliver(group: Sequence[_Job]) -> None:
    """Wake each event loop once, however many of its waiters are done."""
    waiting: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in group:
        waiting.setdefault(job.future.get_loop(), []).append(job)
    for loop, jobs in waiting.items():
        with suppress(RuntimeError):  # a closed loop has no waiters left
            loop.call_soon_threadsafe(_settle, jobs)


def _settle(jobs: Sequence[_Job]) -> None:
    for job in jobs:
        job.deliver()


class _RolledBack(Exception):
    """Ends the transaction of a lone job that failed."""


def _run_alone(connection: Connection, job: _Job) -> None:
    try:
        job.result = job.transaction(connection)
    except BaseException as error:
        job.error = error
        raise _RolledBack from error


def _run_nested(connection: Connection, job: _Job) -> None:
    """Run one job in a SAVEPOINT; only the failure of the SAVEPOINT itself ends the group.

    The SAVEPOINT goes straight to the driver: SQLAlchemy's own costs more than an append does,
    for objects that plain functions of a connection have no use for.
    """
    driver: Any = connection.connection.driver_connection
    driver.execute("SAVEPOINT job")
    try:
        job.result = job.transaction(connection)
    except BaseException as error:  # noqa: BLE001 - delivered to its waiter
        driver.execute("ROLLBACK TO job")
        job.error = error
    driver.execute("RELEASE job")


def sqlite_engine(path: Path, *, readonly: bool = False) -> sa.Engine:
    """An engine whose transactions are explicit: writers BEGIN IMMEDIATE, readers deferred.

    A deferred writer would fail with "database is locked" when it upgrades, however long the
    busy timeout is.
    """
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(path)),
        pool_size=READERS if readonly else 1,
        max_overflow=0,
        connect_args={"timeout": 30, "check_same_thread": False},
    )
    begin = "BEGIN" if readonly else "BEGIN IMMEDIATE"

    def on_connect(dbapi: Any, _record: Any) -> None:
        dbapi.isolation_level = None  # the driver must not emit a BEGIN of its own
        cursor = dbapi.cursor()
        pragmas = ["journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"]
        for pragma in [*pragmas, "query_only=ON"] if readonly else pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    def on_begin(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        driver.execute(begin)

    event.listen(engine, "connect", on_connect)
    event.listen(engine, "begin", on_begin)
    return engine


def _unavailable(cause: str, path: Path) -> Unavailable:
    return Unavailable(
        f"The database cannot be used: {cause}.",
        code=ErrorCode.STORE_UNAVAILABLE,
        object=ErrorObject(type="database", id=path.name),
        next="Check the free space of the home folder and the gateway's log, then try again.",
    )
