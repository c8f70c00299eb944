"""Comparisons: every look at a dataset that was recorded."""

# pyright: reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "comparisons",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("baseline_run", sa.String(length=36), nullable=False),
        sa.Column("candidate_run", sa.String(length=36), nullable=False),
        sa.Column("dataset_digest", sa.String(length=71), nullable=True),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("earlier", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["baseline_run"], ["runs.id"], name=op.f("fk_comparisons_baseline_run_runs")
        ),
        sa.ForeignKeyConstraint(
            ["candidate_run"], ["runs.id"], name=op.f("fk_comparisons_candidate_run_runs")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_comparisons")),
        sa.UniqueConstraint("org_id", "digest", name=op.f("uq_comparisons_org_id_digest")),
        comment="Looks at a dataset: each recorded comparison of two evaluations.",
    )
    op.create_index(
        "ix_comparisons_org_id_dataset_digest", "comparisons", ["org_id", "dataset_digest"]
    )
