"""Groups know their place of settlement; contributions are rows of their own."""

# pyright: reportUnknownArgumentType=false

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_GROUPS = sa.table(
    "groups",
    sa.column("id", sa.String),
    sa.column("run_id", sa.String),
    sa.column("batch", sa.BigInteger),
    sa.column("position", sa.BigInteger),
    sa.column("settled_at", sa.String),
    sa.column("place", sa.BigInteger),
    sa.column("judged_at", sa.String),
)
_BATCHES = sa.table(
    "batches",
    sa.column("run_id", sa.String),
    sa.column("batch", sa.BigInteger),
    sa.column("settled_at", sa.String),
)
_UPDATES = sa.table(
    "updates", sa.column("id", sa.String), sa.column("org_id", sa.String), sa.column("prepared")
)


def upgrade() -> None:
    op.add_column("groups", sa.Column("place", sa.BigInteger(), nullable=True))
    op.add_column("groups", sa.Column("judged_at", sa.String(length=32), nullable=True))
    table = op.create_table(
        "contributions",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("update_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("trial_id", sa.String(length=36), nullable=True),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["update_id"], ["updates.id"], name=op.f("fk_contributions_update_id_updates")
        ),
        sa.PrimaryKeyConstraint("update_id", "number", name=op.f("pk_contributions")),
        comment="What an update was made of, in the order of submission; its trial may be another"
        " run's.",
    )
    op.create_index(op.f("ix_contributions_trial_id"), "contributions", ["trial_id"], unique=False)
    connection = op.get_bind()
    _place_groups(connection)
    _move_contributions(connection, table)


def _place_groups(connection: sa.Connection) -> None:
    """Settled groups get places; until now a batch was submitted in its groups' own order."""
    settled = _GROUPS.c.settled_at.is_not(None)
    query = sa.select(_GROUPS).where(settled).order_by(_GROUPS.c.run_id, _GROUPS.c.batch)
    seen: dict[tuple[str, int], int] = {}
    judged = {
        (row.run_id, row.batch): row.settled_at
        for row in connection.execute(sa.select(_BATCHES)).all()
    }
    for row in connection.execute(query.order_by(_GROUPS.c.position)).all():
        batch = (row.run_id, row.batch)
        place = seen.get(batch, 0)
        seen[batch] = place + 1
        connection.execute(
            sa.update(_GROUPS)
            .where(_GROUPS.c.id == row.id)
            .values(place=place, judged_at=judged.get(batch))
        )


def _move_contributions(connection: sa.Connection, table: sa.Table) -> None:
    query = sa.select(_UPDATES).where(_UPDATES.c.prepared.is_not(None))
    for row in connection.execute(query).all():
        prepared = json.loads(row.prepared)
        found = prepared.pop("contributions")
        prepared.pop("census")
        connection.execute(
            sa.update(_UPDATES).where(_UPDATES.c.id == row.id).values(prepared=json.dumps(prepared))
        )
        rows = [
            {
                "org_id": row.org_id,
                "update_id": row.id,
                "number": number,
                "trial_id": item["trial"],
                "document": json.dumps(item),
            }
            for number, item in enumerate(found)
        ]
        if rows:
            connection.execute(sa.insert(table), rows)
