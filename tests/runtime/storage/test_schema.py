"""Migrations: from nothing to the tables as declared; a newer database is refused."""

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from runtime.storage import schema
from runtime.storage.database import sqlite_engine
from runtime.storage.tables import metadata
from specs.errors import Conflict, ErrorCode


def test_migrations_make_the_tables_that_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    schema.upgrade(path)
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        options: dict[str, Any] = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        assert schema.revision(connection) == schema.HEAD
        made = {
            row[0]: row[1]
            for row in connection.exec_driver_sql(
                "select name, sql from sqlite_master where type = 'index' and sql is not null"
            )
        }
    engine.dispose()
    declared = {index.name for table in metadata.sorted_tables for index in table.indexes}
    assert declared == made.keys()
    partial = {name for name, sql in made.items() if " WHERE " in sql}
    assert partial == {
        index.name
        for table in metadata.sorted_tables
        for index in table.indexes
        if index.dialect_options["sqlite"]["where"] is not None
    }
    assert path.stat().st_mode & 0o777 == 0o600


def test_migrations_are_linear_and_end_at_head() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [schema.HEAD]
    assert all(not revision.is_branch_point for revision in script.walk_revisions())


def test_every_table_belongs_to_an_org() -> None:
    for table in metadata.sorted_tables:
        assert not table.c.org_id.nullable, table.name


def test_upgrading_again_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    schema.upgrade(path)
    before = path.read_bytes()
    schema.upgrade(path)
    assert path.read_bytes() == before


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    schema.upgrade(path)
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        connection.exec_driver_sql("update alembic_version set version_num = '9999'")
    engine.dispose()
    with pytest.raises(Conflict) as refused:
        schema.upgrade(path)
    assert refused.value.problem.code == ErrorCode.DATABASE_NEWER
    assert "Upgrade" in (refused.value.problem.next or "")
