"""Rows at the driver's speed: in the named columns, or not at all."""

import pytest
import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.storage.bulk import insert_rows
from runtime.storage.database import SqliteDatabase
from runtime.storage.tables import models

pytestmark = pytest.mark.anyio

COLUMNS = ("org_id", "name", "document")


def stored(connection: Connection) -> list[tuple[str, ...]]:
    rows = connection.execute(sa.select(models.c.org_id, models.c.name, models.c.document))
    return [tuple(row) for row in rows]


async def test_values_arrive_in_the_columns_that_are_named(database: SqliteDatabase) -> None:
    rows = [("o", "one", "{}"), ("o", "two", "[]")]
    await database.write(lambda c: insert_rows(c, models, COLUMNS, rows))
    assert sorted(await database.read(stored)) == rows


async def test_columns_in_another_order_than_the_tables_are_refused(
    database: SqliteDatabase,
) -> None:
    swapped = (COLUMNS[1], COLUMNS[0], COLUMNS[2])
    with pytest.raises(ValueError, match="in the order"):
        await database.write(lambda c: insert_rows(c, models, swapped, [("a", "b", "{}")]))
    assert await database.read(stored) == []


async def test_without_rows_nothing_is_asked_of_the_driver(database: SqliteDatabase) -> None:
    swapped = (COLUMNS[1], COLUMNS[0], COLUMNS[2])
    await database.write(lambda c: insert_rows(c, models, swapped, []))
    assert await database.read(stored) == []
