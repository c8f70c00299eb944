"""What trials may ask of the gateway, and who started a run."""

# pyright: reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("started_by", sa.Text(), nullable=True))
    op.add_column(
        "runs", sa.Column("delegates", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.create_table(
        "grants",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("trial_id", sa.String(length=36), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=False),
        sa.Column("access", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.Column("runs_used", sa.BigInteger(), nullable=False),
        sa.Column("slots_used", sa.BigInteger(), nullable=False),
        sa.Column("updates_used", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_grants_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_grants_trial_id_trials")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_grants")),
        sa.UniqueConstraint("trial_id", "phase", name=op.f("uq_grants_trial_id_phase")),
        comment="What trials may ask of the gateway, and what of it they have used.",
    )
