"""Group commit: failing transactions take nothing with them, results are durable."""

import sqlite3
import threading
from functools import partial

import anyio
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError

from runtime.storage import database as storage
from runtime.storage.database import SqliteDatabase, Transaction
from runtime.storage.tables import contributions, models
from specs.errors import ErrorCode, Unavailable

pytestmark = pytest.mark.anyio


class Refused(Exception):
    """What a transaction under test raises."""


def insert(connection: Connection, name: str) -> None:
    connection.execute(sa.insert(models).values(org_id="o", name=name, document="{}"))


def names(connection: Connection) -> set[str]:
    return set(connection.execute(sa.select(models.c.name)).scalars())


def wait_for(gate: threading.Event) -> Transaction[None]:
    """A transaction that holds the writer until the gate opens."""

    def transaction(_connection: Connection) -> None:
        gate.wait(10)

    return transaction


STEPS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(["commit", "raise", "constraint", "nested"])),
    max_size=24,
)


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
async def test_a_failing_transaction_undoes_itself_alone(
    database: SqliteDatabase, steps: list[tuple[int, str]]
) -> None:
    await database.write(lambda connection: connection.execute(sa.delete(models)))
    expected: set[str] = set()
    outcomes: dict[int, str] = {}

    async def run(number: int, rows: int, kind: str) -> None:
        mine = [f"{number}-{row}" for row in range(rows + 1)]

        def transaction(connection: Connection) -> str:
            for name in mine:
                insert(connection, name)
            if kind == "raise":
                raise Refused(str(number))
            if kind == "constraint":
                insert(connection, mine[0])
            if kind == "nested":
                with pytest.raises(Refused), connection.begin_nested():
                    insert(connection, f"{number}-inner")
                    raise Refused
            return kind

        try:
            outcomes[number] = await database.write(transaction)
            expected.update(mine)
        except Refused as error:
            assert str(error) == str(number)
            outcomes[number] = "raise"
        except IntegrityError:
            outcomes[number] = "constraint"

    async with anyio.create_task_group() as group:
        for number, (rows, kind) in enumerate(steps):
            group.start_soon(run, number, rows, kind)
    assert outcomes == {number: kind for number, (_, kind) in enumerate(steps)}
    assert await database.read(names) == expected


async def test_a_result_is_delivered_only_after_the_commit(database: SqliteDatabase) -> None:
    """Another connection sees the row as soon as the writer hears of it."""
    await database.write(lambda connection: insert(connection, "a"))
    with sqlite3.connect(database.path) as other:
        assert other.execute("select name from models").fetchall() == [("a",)]
        assert other.execute("pragma journal_mode").fetchone() == ("wal",)
    synchronous = await database.write(
        lambda connection: connection.exec_driver_sql("pragma synchronous").scalar()
    )
    assert synchronous == 2  # FULL


async def test_waiting_transactions_share_a_commit(database: SqliteDatabase) -> None:
    gate = threading.Event()
    seen: list[int] = []

    def blocking(connection: Connection) -> None:
        gate.wait(10)
        insert(connection, "first")

    async def add(number: int) -> None:
        def transaction(connection: Connection) -> None:
            insert(connection, str(number))
            # nothing of this commit can be seen from elsewhere yet
            with sqlite3.connect(database.path) as elsewhere:
                seen.append(elsewhere.execute("select count(*) from models").fetchone()[0])

        await database.write(transaction)

    async with anyio.create_task_group() as group:
        group.start_soon(database.write, blocking)
        await anyio.sleep(0.05)
        for number in range(10):
            group.start_soon(add, number)
        await anyio.sleep(0.05)
        gate.set()
    assert seen == [1] * 10
    assert len(await database.read(names)) == 11


async def test_a_cancelled_transaction_that_has_not_begun_never_happens(
    database: SqliteDatabase,
) -> None:
    gate = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(database.write, wait_for(gate))
        await anyio.sleep(0.05)
        with anyio.move_on_after(0.05) as scope:
            await database.write(lambda connection: insert(connection, "never"))
        assert scope.cancelled_caught
        gate.set()
    await database.write(lambda connection: insert(connection, "later"))
    assert await database.read(names) == {"later"}


async def test_a_read_sees_one_snapshot_and_cannot_write(database: SqliteDatabase) -> None:
    started, go_on = threading.Event(), threading.Event()

    def look(connection: Connection) -> tuple[set[str], set[str]]:
        before = names(connection)
        started.set()
        go_on.wait(10)
        return before, names(connection)

    found: list[tuple[set[str], set[str]]] = []

    async def read() -> None:
        found.append(await database.read(look))

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        await anyio.to_thread.run_sync(started.wait)
        await database.write(lambda connection: insert(connection, "a"))
        go_on.set()
    assert found == [(set(), set())]
    with pytest.raises(OperationalError, match="readonly"):
        await database.read(lambda connection: insert(connection, "b"))


async def test_a_lost_commit_fails_every_waiter_and_the_writer_goes_on(
    database: SqliteDatabase,
) -> None:
    """The transaction vanishes under the group, as after a full disk."""

    def sabotage(connection: Connection) -> None:
        insert(connection, "lost")
        connection.exec_driver_sql("ROLLBACK")

    def before(connection: Connection) -> None:
        insert(connection, "before")

    gate = threading.Event()
    outcomes: list[ErrorCode] = []

    async def expect(transaction: Transaction[None]) -> None:
        with pytest.raises(Unavailable) as failed:
            await database.write(transaction)
        outcomes.append(failed.value.problem.code)

    async with anyio.create_task_group() as group:
        group.start_soon(database.write, wait_for(gate))
        await anyio.sleep(0.05)
        group.start_soon(expect, before)
        group.start_soon(expect, sabotage)
        await anyio.sleep(0.05)
        gate.set()
    assert outcomes == [ErrorCode.STORE_UNAVAILABLE] * 2
    assert await database.read(names) == set()
    await database.write(lambda connection: insert(connection, "after"))
    assert await database.read(names) == {"after"}


async def test_a_closed_database_says_so(database: SqliteDatabase) -> None:
    await database.close()
    with pytest.raises(Unavailable):
        await database.write(names)
    await database.close()


async def test_a_commit_takes_as_many_as_allowed_and_no_more(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "GROUP_LIMIT", 3)
    gate = threading.Event()
    seen: list[int] = []

    async def add(number: int) -> None:
        def transaction(connection: Connection) -> None:
            insert(connection, str(number))
            with sqlite3.connect(database.path) as elsewhere:
                seen.append(elsewhere.execute("select count(*) from models").fetchone()[0])

        await database.write(transaction)

    async with anyio.create_task_group() as group:
        group.start_soon(database.write, wait_for(gate))
        await anyio.sleep(0.05)
        for number in range(7):
            group.start_soon(add, number)
        await anyio.sleep(0.05)
        gate.set()
    assert seen == [0, 0, 0, 3, 3, 3, 6]


async def test_what_waits_when_it_is_closed_is_still_done(database: SqliteDatabase) -> None:
    gate = threading.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(database.write, wait_for(gate))
        await anyio.sleep(0.05)
        for name in ("a", "b"):
            group.start_soon(database.write, partial(insert, name=name))
        await anyio.sleep(0.05)
        group.start_soon(database.close)
        await anyio.sleep(0.05)
        with pytest.raises(Unavailable, match="it is closed") as refused:
            await database.write(lambda c: insert(c, "c"))
        assert refused.value.problem.code == ErrorCode.STORE_UNAVAILABLE
        assert refused.value.problem.object is not None
        assert refused.value.problem.object.id == database.path.name
        gate.set()
    with sqlite3.connect(database.path) as other:
        assert sorted(other.execute("select name from models")) == [("a",), ("b",)]


async def test_as_many_read_at_once_as_there_are_readers(database: SqliteDatabase) -> None:
    together = threading.Barrier(storage.READERS)

    def look(connection: Connection) -> set[str]:
        together.wait(20)
        return names(connection)

    async with anyio.create_task_group() as group:
        for _ in range(storage.READERS):
            group.start_soon(database.read, look)


async def test_a_row_without_its_parent_is_refused(database: SqliteDatabase) -> None:
    def orphan(connection: Connection) -> None:
        connection.execute(
            sa.insert(contributions).values(
                org_id="o", update_id="none", number=0, trial_id=None, document="{}"
            )
        )

    with pytest.raises(IntegrityError, match="FOREIGN KEY"):
        await database.write(orphan)


async def test_even_an_interrupt_of_one_is_delivered_and_leaves_the_writer_at_work(
    database: SqliteDatabase,
) -> None:
    class Interrupt(BaseException):
        pass

    def interrupted(connection: Connection) -> None:
        insert(connection, "never")
        raise Interrupt

    with pytest.raises(Interrupt):
        await database.write(interrupted)
    await database.write(lambda connection: insert(connection, "later"))
    assert await database.read(names) == {"later"}
