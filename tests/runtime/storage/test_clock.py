"""One clock for every worker, and times whose text order is their order."""

import time
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import pytest
from sqlalchemy import Connection

from runtime.storage import clock
from runtime.storage.database import SqliteDatabase


class Postgres:
    """A connection to a server whose clock is its own."""

    dialect = SimpleNamespace(name="postgresql")

    def __init__(self) -> None:
        self.asked: list[str] = []

    def exec_driver_sql(self, statement: str) -> Any:
        self.asked.append(statement)
        return SimpleNamespace(scalar_one=lambda: Decimal("12.5"))


@pytest.mark.anyio
async def test_the_clock_is_the_databases_own(database: SqliteDatabase) -> None:
    before = time.time()
    assert before <= await database.read(clock.now) <= time.time()
    server = Postgres()
    found = clock.now(cast(Connection, server))
    assert (found, type(found)) == (12.5, float)
    assert len(server.asked) == 1


def test_a_timestamp_is_utc_with_microseconds() -> None:
    assert clock.timestamp(0) == "1970-01-01T00:00:00.000000Z"
    assert clock.timestamp(86400.25) == "1970-01-02T00:00:00.250000Z"
    before = clock.timestamp(time.time() - 1)
    assert before < clock.timestamp() < clock.timestamp(time.time() + 1)
