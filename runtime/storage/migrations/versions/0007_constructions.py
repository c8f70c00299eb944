"""Construction plans, their steps, and the runs that were admitted under them."""

# pyright: reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "constructions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=129), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_digest", sa.String(length=71), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("updated_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_constructions")),
        comment="Construction plans: the present version, and its state.",
    )
    op.create_table(
        "construction_steps",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("construction_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("by", sa.String(length=220), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("found", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["construction_id"],
            ["constructions.id"],
            name=op.f("fk_construction_steps_construction_id_constructions"),
        ),
        sa.PrimaryKeyConstraint("construction_id", "seq", name=op.f("pk_construction_steps")),
        comment="Append-only: what moved a construction, as it was sent, and what was found then.",
    )
    op.add_column("runs", sa.Column("construction_id", sa.String(length=36), nullable=True))
    op.add_column("runs", sa.Column("construction_version", sa.BigInteger(), nullable=True))
    op.add_column("runs", sa.Column("construction_use", sa.String(length=16), nullable=True))
    op.create_index(op.f("ix_runs_construction_id"), "runs", ["construction_id"])
