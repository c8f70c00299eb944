"""Migrations: from nothing to the tables as declared; a newer database is refused."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.schema import CreateIndex

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


def test_keys_and_conditions_are_made_as_they_are_declared(tmp_path: Path) -> None:
    """What Alembic's comparison passes over: primary keys, and the conditions of indexes."""
    path = tmp_path / "a.db"
    schema.upgrade(path)
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        found = sa.inspect(connection)
        keys = {
            name: found.get_pk_constraint(name)["constrained_columns"]
            for name in found.get_table_names()
            if name != "alembic_version"
        }
        made = {
            row[0]: _words(row[1])
            for row in connection.exec_driver_sql(
                "select name, sql from sqlite_master where type = 'index' and sql is not null"
            )
        }
    engine.dispose()
    tables = metadata.sorted_tables
    assert keys == {table.name: [one.name for one in table.primary_key] for table in tables}
    assert made == {
        index.name: _words(str(CreateIndex(index).compile(dialect=engine.dialect)))
        for table in tables
        for index in table.indexes
    }


def _words(sql: str) -> list[str]:
    return sql.replace('"', "").replace("(", " ( ").replace(")", " ) ").split()


@pytest.mark.parametrize("table", metadata.sorted_tables, ids=lambda table: table.name)
def test_both_databases_are_asked_for_the_same_conditions(table: sa.Table) -> None:
    for index in table.indexes:
        here, there = (index.dialect_options[name]["where"] for name in ("sqlite", "postgresql"))
        assert str(here) == str(there)


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


def test_contributions_of_an_older_database_become_rows_and_its_groups_get_places(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(schema.MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
    engine.dispose()
    prepared = json.dumps(
        {"id": "u", "census": {}, "contributions": [{"trial": "b"}, {"trial": "a"}]}
    )
    with closing(sqlite3.connect(path)) as database, database:  # rows without their parents
        for place, settled in ((0, "t2"), (1, "t1"), (2, None)):
            database.execute(
                "insert into groups (id, org_id, run_id, batch, position, task, task_digest,"
                " sampler_id, size, census, opened_at, settled_at)"
                " values (?, 'o', 'r', 0, ?, 't', 'd', 's', 2, '{}', 't0', ?)",
                (f"g{place}", place, settled),
            )
        database.execute(
            "insert into updates (id, org_id, run_id, batch, state, prepared, census, metrics,"
            " at, history) values ('u', 'o', 'r', 0, 'prepared', ?, '{}', '{}', 't', '{}')",
            (prepared,),
        )
    schema.upgrade(path)
    with closing(sqlite3.connect(path)) as database:
        groups = database.execute("select id, place from groups order by id").fetchall()
        rows = database.execute(
            "select update_id, number, trial_id, document from contributions order by number"
        ).fetchall()
        ((kept,),) = database.execute("select prepared from updates").fetchall()
    assert groups == [("g0", 0), ("g1", 1), ("g2", None)]
    assert [row[:3] for row in rows] == [("u", 0, "b"), ("u", 1, "a")]
    assert [json.loads(row[3]) for row in rows] == [{"trial": "b"}, {"trial": "a"}]
    assert json.loads(kept) == {"id": "u"}


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


def test_an_older_database_that_is_known_is_brought_to_head(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        assert schema.revision(connection) is None
        config = Config()
        config.set_main_option("script_location", str(schema.MIGRATIONS))
        config.attributes["connection"] = connection
        command.upgrade(config, "0004")
        assert schema.revision(connection) == "0004"
    engine.dispose()
    schema.upgrade(path)
    engine = sqlite_engine(path)
    with engine.begin() as connection:
        assert schema.revision(connection) == schema.HEAD
    engine.dispose()
