"""Tables. Rows are the truth; an event is written in the transaction that changes its row.

Every table has `org_id` (embedded: `org_local`). Times people read are ISO 8601 text in UTC;
times that are compared are seconds of the database's clock. A column that holds a contract
as JSON is `Text`, so that its bytes stay as written. `batch`, `position` and the like repeat
in child rows what their parents say, so that pages need no joins.
"""

import sqlalchemy as sa

LOCAL_ORG = "org_local"

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _org() -> sa.Column[str]:
    return sa.Column("org_id", sa.String(64), nullable=False)


def _id(name: str = "id", *, primary: bool = True, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), primary_key=primary, nullable=nullable)


def _ref(name: str, target: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(36), sa.ForeignKey(target), nullable=nullable)


def _at(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(32), nullable=nullable)


def _digest(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String(71), nullable=nullable)


def _text(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, nullable=nullable)


def _double() -> sa.Double[float]:
    return sa.Double()


def _integer(name: str, *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=nullable)


models = sa.Table(
    "models",
    metadata,
    _org(),
    _text("name"),
    _text("document"),
    sa.PrimaryKeyConstraint("org_id", "name"),
)

documents = sa.Table(
    "documents",
    metadata,
    _org(),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("name", sa.String(129), nullable=False),
    sa.Column("version", sa.String(64), nullable=False),
    _digest("digest"),
    sa.Column("content", sa.LargeBinary, nullable=False),
    _at("created_at"),
    sa.PrimaryKeyConstraint("org_id", "kind", "name", "version"),
    comment="Published datasets and profiles: immutable canonical bytes.",
)

samplers = sa.Table(
    "samplers",
    metadata,
    _id(),
    _org(),
    _text("backend"),
    _text("base_model"),
    _digest("base_digest"),
    _digest("tokenizer_digest"),
    _text("renderer"),
    _digest("adapter", nullable=True),
    _id("run_id", primary=False, nullable=True),
    comment="`run_id` is the run that saved it; base samplers have none.",
)
sa.Index("ix_samplers_run_id", samplers.c.run_id)
sa.Index(
    "uq_samplers_base",
    samplers.c.org_id,
    samplers.c.backend,
    samplers.c.base_model,
    samplers.c.base_digest,
    samplers.c.tokenizer_digest,
    samplers.c.renderer,
    unique=True,
    sqlite_where=samplers.c.adapter.is_(None),
    postgresql_where=samplers.c.adapter.is_(None),
)

runs = sa.Table(
    "runs",
    metadata,
    _id(),
    _org(),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    _text("reason", nullable=True),
    _at("created_at"),
    _at("started_at", nullable=True),
    _at("ended_at", nullable=True),
    _text("dataset", nullable=True),
    _text("actor_name"),
    _text("model"),
    sa.Column("spec", sa.LargeBinary, nullable=False),
    _text("admission"),
    _integer("planned_slots"),
    _integer("last_event"),
    _integer("last_log"),
    _integer("fence"),
    _id("claim_id", primary=False, nullable=True),
    sa.Column("lease_until", _double(), nullable=True),
    _text("extended", nullable=True),
    _text("started_by", nullable=True),
    sa.Column("delegates", sa.Boolean, nullable=False, server_default=sa.false()),
    _id("construction_id", primary=False, nullable=True),
    _integer("construction_version", nullable=True),
    sa.Column("construction_use", sa.String(16), nullable=True),
    comment="`spec` holds the canonical bytes of the pinned RunSpec.",
)
sa.Index("ix_runs_construction_id", runs.c.construction_id)
_claimable = runs.c.state.in_(("queued", "running", "cancelling"))
sa.Index(
    "ix_runs_claimable",
    runs.c.id,
    sqlite_where=_claimable,
    postgresql_where=_claimable,
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    _org(),
    sa.Column("key", sa.String(255), nullable=False),
    _digest("body_digest"),
    _ref("run_id", "runs.id"),
    _at("created_at"),
    sa.PrimaryKeyConstraint("org_id", "key"),
)

claims = sa.Table(
    "claims",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _id("worker", primary=False),
    _integer("fence"),
    sa.Column("lease_sec", _double(), nullable=False),
    _integer("sequence"),
    _at("claimed_at"),
    _at("ended_at", nullable=True),
    sa.Column("outcome", sa.String(16), nullable=True),
    sa.UniqueConstraint("run_id", "fence"),
)

claim_writes = sa.Table(
    "claim_writes",
    metadata,
    _org(),
    _ref("claim_id", "claims.id"),
    _integer("sequence"),
    _digest("body_digest"),
    _integer("last_event"),
    sa.PrimaryKeyConstraint("claim_id", "sequence"),
    comment="What each numbered write request returned, to answer its repetition.",
)

events = sa.Table(
    "events",
    metadata,
    _org(),
    _ref("run_id", "runs.id"),
    _integer("seq"),
    _at("at"),
    sa.Column("type", sa.String(32), nullable=False),
    _text("data"),
    sa.PrimaryKeyConstraint("run_id", "seq"),
)

logs = sa.Table(
    "logs",
    metadata,
    _org(),
    _ref("run_id", "runs.id"),
    _integer("seq"),
    _at("at"),
    sa.Column("source", sa.String(16), nullable=False),
    _id("trial_id", primary=False, nullable=True),
    _text("text"),
    sa.PrimaryKeyConstraint("run_id", "seq"),
)

batches = sa.Table(
    "batches",
    metadata,
    _org(),
    _ref("run_id", "runs.id"),
    _integer("batch"),
    _ref("sampler_id", "samplers.id"),
    _text("tasks"),
    _text("census"),
    _at("started_at"),
    _at("settled_at", nullable=True),
    sa.PrimaryKeyConstraint("run_id", "batch"),
)

groups = sa.Table(
    "groups",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _integer("batch"),
    _integer("position"),
    _text("task"),
    _digest("task_digest"),
    _ref("sampler_id", "samplers.id"),
    _integer("size"),
    _text("census"),
    _at("opened_at"),
    _at("settled_at", nullable=True),
    _integer("place", nullable=True),
    _at("judged_at", nullable=True),
    sa.UniqueConstraint("run_id", "batch", "position"),
)

trials = sa.Table(
    "trials",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _ref("group_id", "groups.id"),
    _integer("batch"),
    _integer("group_position"),
    _integer("position"),
    _text("task"),
    _ref("sampler_id", "samplers.id"),
    _integer("fence"),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("counted", sa.Boolean(), nullable=False),
    _at("opened_at"),
    _at("settled_at", nullable=True),
    _text("settled", nullable=True),
    sa.Column("outcome", sa.String(16), nullable=True),
    _text("assessment", nullable=True),
    sa.Column("reward", _double(), nullable=True),
    sa.Column("eligible", sa.Boolean(), nullable=True),
    _text("ineligible_reason", nullable=True),
    sa.Column("advantage", _double(), nullable=True),
)
sa.Index("ix_trials_slot", trials.c.run_id, trials.c.batch, trials.c.group_position)
_counted = trials.c.counted.is_(True)
sa.Index(
    "uq_trials_counted",
    trials.c.group_id,
    trials.c.position,
    unique=True,
    sqlite_where=_counted,
    postgresql_where=_counted,
)
_open = trials.c.state == "open"
sa.Index(
    "uq_trials_open",
    trials.c.group_id,
    trials.c.position,
    unique=True,
    sqlite_where=_open,
    postgresql_where=_open,
)

evidence = sa.Table(
    "evidence",
    metadata,
    _org(),
    _ref("trial_id", "trials.id"),
    _integer("fence"),
    _ref("run_id", "runs.id"),
    _text("seal"),
    sa.Column("current", sa.Boolean(), nullable=False),
    _at("at"),
    sa.PrimaryKeyConstraint("trial_id", "fence"),
    comment="Seals; one of a superseded fence is kept and never counted.",
)

updates = sa.Table(
    "updates",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _integer("batch"),
    sa.Column("state", sa.String(16), nullable=False),
    _text("prepared", nullable=True),
    _ref("sampler_id", "samplers.id", nullable=True),
    _text("census"),
    _text("metrics"),
    _digest("state_digest", nullable=True),
    _ref("sampler_after", "samplers.id", nullable=True),
    _text("reason", nullable=True),
    sa.Column("resolution", sa.String(16), nullable=True),
    _at("at"),
    _text("history"),
)
_standing = updates.c.state.in_(("prepared", "unresolved", "acknowledged", "skipped"))
sa.Index(
    "uq_updates_standing",
    updates.c.run_id,
    updates.c.batch,
    unique=True,
    sqlite_where=_standing,
    postgresql_where=_standing,
)

contributions = sa.Table(
    "contributions",
    metadata,
    _org(),
    _ref("update_id", "updates.id"),
    _integer("number"),
    _id("trial_id", primary=False, nullable=True),
    _text("document"),
    sa.PrimaryKeyConstraint("update_id", "number"),
    comment="What an update was made of, in the order of submission; its trial may be another"
    " run's.",
)
sa.Index("ix_contributions_trial_id", contributions.c.trial_id)

checkpoints = sa.Table(
    "checkpoints",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _ref("update_id", "updates.id"),
    _ref("sampler_id", "samplers.id"),
    _integer("batch"),
    _text("document"),
    _at("created_at"),
)
sa.Index("ix_checkpoints_run_id", checkpoints.c.run_id)

grants = sa.Table(
    "grants",
    metadata,
    _id(),
    _org(),
    _ref("run_id", "runs.id"),
    _ref("trial_id", "trials.id"),
    _integer("fence"),
    sa.Column("phase", sa.String(16), nullable=False),
    _text("access"),
    _at("created_at"),
    sa.Column("expires_at", _double(), nullable=False),
    _integer("runs_used"),
    _integer("slots_used"),
    _integer("updates_used"),
    sa.UniqueConstraint("trial_id", "phase"),
    comment="What trials may ask of the gateway, and what of it they have used.",
)

sessions = sa.Table(
    "sessions",
    metadata,
    _id(),
    _org(),
    _text("model"),
    _ref("sampler_id", "samplers.id"),
    sa.Column("purpose", sa.String(16), nullable=False),
    _at("created_at"),
    sa.Column("expires_at", _double(), nullable=False),
    _at("ended_at", nullable=True),
    _text("seal", nullable=True),
    comment="Model calls outside of runs: captured and owned, never evidence.",
)

comparisons = sa.Table(
    "comparisons",
    metadata,
    _id(),
    _org(),
    _ref("baseline_run", "runs.id"),
    _ref("candidate_run", "runs.id"),
    _digest("dataset_digest", nullable=True),
    _digest("digest"),
    _integer("earlier"),
    _text("document"),
    _at("created_at"),
    sa.UniqueConstraint("org_id", "digest"),
    comment="Looks at a dataset: each recorded comparison of two evaluations.",
)
sa.Index("ix_comparisons_org_id_dataset_digest", comparisons.c.org_id, comparisons.c.dataset_digest)

constructions = sa.Table(
    "constructions",
    metadata,
    _id(),
    _org(),
    sa.Column("name", sa.String(129), nullable=False),
    _integer("version"),
    sa.Column("state", sa.String(16), nullable=False),
    _text("plan"),
    _digest("plan_digest"),
    _at("created_at"),
    _at("updated_at"),
    comment="Construction plans: the present version, and its state.",
)

construction_steps = sa.Table(
    "construction_steps",
    metadata,
    _org(),
    _ref("construction_id", "constructions.id"),
    _integer("seq"),
    _integer("version"),
    _at("at"),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("by", sa.String(220), nullable=False),
    _digest("digest"),
    _text("document"),
    _text("found"),
    sa.PrimaryKeyConstraint("construction_id", "seq"),
    comment="Append-only: what moved a construction, as it was sent, and what was found then.",
)

objects = sa.Table(
    "objects",
    metadata,
    _org(),
    _digest("digest"),
    _integer("size"),
    sa.Column("stored_at", _double(), nullable=False),
    sa.PrimaryKeyConstraint("org_id", "digest"),
    comment="Objects that the store holds, verified.",
)

object_references = sa.Table(
    "object_references",
    metadata,
    _org(),
    _digest("digest"),
    sa.Column("holder", sa.String(220), nullable=False),
    sa.PrimaryKeyConstraint("org_id", "digest", "holder"),
    sa.ForeignKeyConstraint(["org_id", "digest"], ["objects.org_id", "objects.digest"]),
    comment="Read authority, and what keeps an object from being collected.",
)

uploads = sa.Table(
    "uploads",
    metadata,
    _id(),
    _org(),
    _digest("digest"),
    _integer("size"),
    sa.Column("granted_at", _double(), nullable=False),
    comment="Intents: an object may come into being under each of these.",
)
