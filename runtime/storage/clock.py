"""The database's clock, by which leases are judged: one clock for every worker."""

import time
from datetime import UTC, datetime

from sqlalchemy import Connection


def now(connection: Connection) -> float:
    """Seconds since 1970. SQLite lives in the gateway's process and has its clock."""
    if connection.dialect.name == "sqlite":
        return time.time()
    return float(
        connection.exec_driver_sql("select extract(epoch from clock_timestamp())").scalar_one()
    )


def timestamp(seconds: float | None = None) -> str:
    """ISO 8601 in UTC with microseconds, so that text order is time order."""
    moment = datetime.now(UTC) if seconds is None else datetime.fromtimestamp(seconds, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
