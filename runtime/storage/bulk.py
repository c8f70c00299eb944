"""Inserting many rows at the driver's speed.

SQLAlchemy compiles the statement for the dialect once; the rows go to the driver as tuples,
without a dictionary per row. Only for columns whose values the driver takes as they are.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Dialect


def insert_rows(
    connection: Connection,
    table: sa.Table,
    columns: tuple[str, ...],
    rows: Sequence[tuple[Any, ...]],
) -> None:
    """Insert rows whose values are in the order of `columns`."""
    if rows:
        statement = _compiled(table, columns, connection.dialect)
        connection.exec_driver_sql(statement, list(rows))


@cache
def _compiled(table: sa.Table, columns: tuple[str, ...], dialect: Dialect) -> str:
    values: dict[str, Any] = {column: sa.bindparam(column) for column in columns}
    compiled = sa.insert(table).values(values).compile(dialect=dialect)
    order = getattr(compiled, "positiontup", None)
    if order is None or tuple(order) != columns:
        raise ValueError(f"name the columns of {table.name} in the order {order}")
    return str(compiled)
