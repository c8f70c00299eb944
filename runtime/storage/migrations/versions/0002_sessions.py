"""Sessions: model calls outside of runs."""

# pyright: reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("sampler_id", sa.String(length=36), nullable=False),
        sa.Column("purpose", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.String(length=32), nullable=True),
        sa.Column("seal", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_sessions_sampler_id_samplers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        comment="Model calls outside of runs: captured and owned, never evidence.",
    )
