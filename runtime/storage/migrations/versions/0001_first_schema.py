"""First schema."""

# pyright: reportUnknownArgumentType=false

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _documents()
    _models()
    _objects()
    _runs()
    _samplers()
    _uploads()
    _batches()
    _claims()
    _events()
    _groups()
    _idempotency_keys()
    _logs()
    _object_references()
    _updates()
    _checkpoints()
    _claim_writes()
    _trials()
    _evidence()


def _documents() -> None:
    op.create_table(
        "documents",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(length=129), nullable=False),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "kind", "name", "version", name=op.f("pk_documents")),
        comment="Published datasets and profiles: immutable canonical bytes.",
    )


def _models() -> None:
    op.create_table(
        "models",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "name", name=op.f("pk_models")),
    )


def _objects() -> None:
    op.create_table(
        "objects",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("org_id", "digest", name=op.f("pk_objects")),
        comment="Objects that the store holds, verified.",
    )


def _runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.Column("started_at", sa.String(length=32), nullable=True),
        sa.Column("ended_at", sa.String(length=32), nullable=True),
        sa.Column("dataset", sa.Text(), nullable=True),
        sa.Column("actor_name", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("spec", sa.LargeBinary(), nullable=False),
        sa.Column("admission", sa.Text(), nullable=False),
        sa.Column("planned_slots", sa.BigInteger(), nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.Column("last_log", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("claim_id", sa.String(length=36), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        comment="`spec` holds the canonical bytes of the pinned RunSpec.",
    )
    op.create_index(
        "ix_runs_claimable",
        "runs",
        ["id"],
        unique=False,
        sqlite_where=sa.text("state IN ('queued', 'running', 'cancelling')"),
        postgresql_where=sa.text("state IN ('queued', 'running', 'cancelling')"),
    )


def _samplers() -> None:
    op.create_table(
        "samplers",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("backend", sa.Text(), nullable=False),
        sa.Column("base_model", sa.Text(), nullable=False),
        sa.Column("base_digest", sa.String(length=71), nullable=False),
        sa.Column("tokenizer_digest", sa.String(length=71), nullable=False),
        sa.Column("renderer", sa.Text(), nullable=False),
        sa.Column("adapter", sa.String(length=71), nullable=True),
        sa.Column("run_id", sa.String(length=36), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_samplers")),
        comment="`run_id` is the run that saved it; base samplers have none.",
    )
    op.create_index("ix_samplers_run_id", "samplers", ["run_id"], unique=False)
    op.create_index(
        "uq_samplers_base",
        "samplers",
        ["org_id", "backend", "base_model", "base_digest", "tokenizer_digest", "renderer"],
        unique=True,
        sqlite_where=sa.text("adapter IS NULL"),
        postgresql_where=sa.text("adapter IS NULL"),
    )


def _uploads() -> None:
    op.create_table(
        "uploads",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("granted_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_uploads")),
        comment="Intents: an object may come into being under each of these.",
    )


def _batches() -> None:
    op.create_table(
        "batches",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("sampler_id", sa.String(length=36), nullable=False),
        sa.Column("tasks", sa.Text(), nullable=False),
        sa.Column("census", sa.Text(), nullable=False),
        sa.Column("started_at", sa.String(length=32), nullable=False),
        sa.Column("settled_at", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_batches_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_batches_sampler_id_samplers")
        ),
        sa.PrimaryKeyConstraint("run_id", "batch", name=op.f("pk_batches")),
    )


def _claims() -> None:
    op.create_table(
        "claims",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("worker", sa.String(length=36), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("lease_sec", sa.Double(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("claimed_at", sa.String(length=32), nullable=False),
        sa.Column("ended_at", sa.String(length=32), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_claims_run_id_runs")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_claims")),
        sa.UniqueConstraint("run_id", "fence", name=op.f("uq_claims_run_id_fence")),
    )


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("data", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_events")),
    )


def _groups() -> None:
    op.create_table(
        "groups",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("task_digest", sa.String(length=71), nullable=False),
        sa.Column("sampler_id", sa.String(length=36), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("census", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.String(length=32), nullable=False),
        sa.Column("settled_at", sa.String(length=32), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_groups_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_groups_sampler_id_samplers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_groups")),
        sa.UniqueConstraint(
            "run_id", "batch", "position", name=op.f("uq_groups_run_id_batch_position")
        ),
    )


def _idempotency_keys() -> None:
    op.create_table(
        "idempotency_keys",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_digest", sa.String(length=71), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_idempotency_keys_run_id_runs")
        ),
        sa.PrimaryKeyConstraint("org_id", "key", name=op.f("pk_idempotency_keys")),
    )


def _logs() -> None:
    op.create_table(
        "logs",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("trial_id", sa.String(length=36), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_logs_run_id_runs")),
        sa.PrimaryKeyConstraint("run_id", "seq", name=op.f("pk_logs")),
    )


def _object_references() -> None:
    op.create_table(
        "object_references",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=71), nullable=False),
        sa.Column("holder", sa.String(length=220), nullable=False),
        sa.ForeignKeyConstraint(
            ["org_id", "digest"],
            ["objects.org_id", "objects.digest"],
            name=op.f("fk_object_references_org_id_digest_objects"),
        ),
        sa.PrimaryKeyConstraint("org_id", "digest", "holder", name=op.f("pk_object_references")),
        comment="Read authority, and what keeps an object from being collected.",
    )


def _updates() -> None:
    op.create_table(
        "updates",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("prepared", sa.Text(), nullable=True),
        sa.Column("sampler_id", sa.String(length=36), nullable=True),
        sa.Column("census", sa.Text(), nullable=False),
        sa.Column("metrics", sa.Text(), nullable=False),
        sa.Column("state_digest", sa.String(length=71), nullable=True),
        sa.Column("sampler_after", sa.String(length=36), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("resolution", sa.String(length=16), nullable=True),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("history", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_updates_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["sampler_after"], ["samplers.id"], name=op.f("fk_updates_sampler_after_samplers")
        ),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_updates_sampler_id_samplers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_updates")),
    )
    op.create_index(
        "uq_updates_standing",
        "updates",
        ["run_id", "batch"],
        unique=True,
        sqlite_where=sa.text("state IN ('prepared', 'unresolved', 'acknowledged', 'skipped')"),
        postgresql_where=sa.text("state IN ('prepared', 'unresolved', 'acknowledged', 'skipped')"),
    )


def _checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("update_id", sa.String(length=36), nullable=False),
        sa.Column("sampler_id", sa.String(length=36), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_checkpoints_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_checkpoints_sampler_id_samplers")
        ),
        sa.ForeignKeyConstraint(
            ["update_id"], ["updates.id"], name=op.f("fk_checkpoints_update_id_updates")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_checkpoints")),
    )
    op.create_index("ix_checkpoints_run_id", "checkpoints", ["run_id"], unique=False)


def _claim_writes() -> None:
    op.create_table(
        "claim_writes",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("claim_id", sa.String(length=36), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("body_digest", sa.String(length=71), nullable=False),
        sa.Column("last_event", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["claim_id"], ["claims.id"], name=op.f("fk_claim_writes_claim_id_claims")
        ),
        sa.PrimaryKeyConstraint("claim_id", "sequence", name=op.f("pk_claim_writes")),
        comment="What each numbered write request returned, to answer its repetition.",
    )


def _trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("group_id", sa.String(length=36), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("group_position", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("task", sa.Text(), nullable=False),
        sa.Column("sampler_id", sa.String(length=36), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("counted", sa.Boolean(), nullable=False),
        sa.Column("opened_at", sa.String(length=32), nullable=False),
        sa.Column("settled_at", sa.String(length=32), nullable=True),
        sa.Column("settled", sa.Text(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("assessment", sa.Text(), nullable=True),
        sa.Column("reward", sa.Double(), nullable=True),
        sa.Column("eligible", sa.Boolean(), nullable=True),
        sa.Column("ineligible_reason", sa.Text(), nullable=True),
        sa.Column("advantage", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["group_id"], ["groups.id"], name=op.f("fk_trials_group_id_groups")
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_trials_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["sampler_id"], ["samplers.id"], name=op.f("fk_trials_sampler_id_samplers")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trials")),
    )
    op.create_index("ix_trials_slot", "trials", ["run_id", "batch", "group_position"], unique=False)
    op.create_index(
        "uq_trials_counted",
        "trials",
        ["group_id", "position"],
        unique=True,
        sqlite_where=sa.text("counted IS 1"),
        postgresql_where=sa.text("counted IS 1"),
    )
    op.create_index(
        "uq_trials_open",
        "trials",
        ["group_id", "position"],
        unique=True,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )


def _evidence() -> None:
    op.create_table(
        "evidence",
        sa.Column("org_id", sa.String(length=64), nullable=False),
        sa.Column("trial_id", sa.String(length=36), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=36), nullable=False),
        sa.Column("seal", sa.Text(), nullable=False),
        sa.Column("current", sa.Boolean(), nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_evidence_run_id_runs")),
        sa.ForeignKeyConstraint(
            ["trial_id"], ["trials.id"], name=op.f("fk_evidence_trial_id_trials")
        ),
        sa.PrimaryKeyConstraint("trial_id", "fence", name=op.f("pk_evidence")),
        comment="Seals; one of a superseded fence is kept and never counted.",
    )
