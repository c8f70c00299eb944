"""Migrations: linear, inside the package, run when the gateway starts.

On SQLite a migration is one transaction, its DDL included. A database that a newer program
has migrated is refused rather than guessed at.
"""

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from runtime.storage.database import sqlite_engine
from specs.errors import Conflict, ErrorCode, ErrorObject

HEAD = "0007"
"""The newest revision; a test keeps it equal to the newest file of `migrations/versions`."""

MIGRATIONS = Path(__file__).parent / "migrations"


def revision(connection: Connection) -> str | None:
    """The schema revision of a database; None for an empty one."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.exec_driver_sql("select version_num from alembic_version").scalar()


def upgrade(path: Path) -> None:
    """Bring the SQLite database at `path` to `HEAD`; creates it (0600) if need be.

    Raises:
        Conflict: `database_newer`; nothing was changed.
    """
    path.touch(mode=0o600, exist_ok=True)
    engine = sqlite_engine(path)
    try:
        with engine.begin() as connection:
            current = revision(connection)
            if current == HEAD:
                return
            if current is not None and not _known(current):
                raise Conflict(
                    f"The database {path.name} has revision {current}, which this program"
                    f" (revision {HEAD}) does not know: a newer program made it.",
                    code=ErrorCode.DATABASE_NEWER,
                    object=ErrorObject(type="database", id=path.name),
                    next="Upgrade Practicum, or use another home folder.",
                )
            _migrate(connection)
    finally:
        engine.dispose()


def _known(current: str) -> bool:
    return any(file.name.startswith(f"{current}_") for file in MIGRATIONS.glob("versions/*.py"))


def _migrate(connection: Connection) -> None:
    from alembic import command  # heavy, and needed only when something changes
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
