"""What is recorded of a saved model."""

from datetime import UTC, datetime, timedelta
from typing import Any

from runtime.compute.protocol import TrainerInfo
from runtime.learning.checkpoints import Saved, checkpoint_of, expiry
from runtime.learning.resolution import Pending
from specs.canonical import digest_bytes
from specs.model import LoraSpec
from specs.plans import CheckpointRules, SupervisedPlan
from specs.records import Checkpoint
from specs.run import RunSpec
from specs.sources import FileSource, RunSource
from tests.runtime.learning.told import (
    CHECKPOINTS,
    FIRST,
    RUN,
    SAMPLERS,
    TASK,
    name,
    sampler,
    spec_of,
    training_plan,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_state_expires_when_the_first_who_keeps_it_forgets_it() -> None:
    assert expiry(NOW, None, None) is None
    assert expiry(NOW, 3600, None) == expiry(NOW, None, 3600) == "2026-01-01T01:00:00+00:00"
    assert expiry(NOW, 60, 3600) == expiry(NOW, 3600, 60) == "2026-01-01T00:01:00+00:00"
    assert expiry(NOW, 0, None) == NOW.isoformat()


def made(spec: RunSpec, measures: dict[str, float] | None = None, **trainer: Any) -> Checkpoint:
    info = TrainerInfo(name("trn", 0), "one", "tiny", LoraSpec(rank=2), 7, **trainer)
    saved = Saved(digest_bytes(b"weights"), 5, digest_bytes(b"state"), 6)
    pending = Pending(FIRST, 3, info.id, "one")
    return checkpoint_of(spec, pending, sampler(1), saved, info, measures or {}, final=True)


def test_a_checkpoint_names_its_objects_its_update_and_where_the_run_stood() -> None:
    named = {"dataset": "acme/set@1", "dataset_digest": TASK, "initial_checkpoint": CHECKPOINTS[0]}
    spec = spec_of(training_plan(), **named)
    found = made(spec)
    assert (found.run, found.update, found.batch, found.final) == (RUN, FIRST, 3, True)
    assert (found.adapter, found.adapter_size) == (digest_bytes(b"weights"), 5)
    assert (found.state, found.state_size) == (digest_bytes(b"state"), 6)
    assert (found.sampler, found.base_model, found.parent) == (
        SAMPLERS[1],
        "tiny",
        CHECKPOINTS[0],
    )
    assert (found.profile, found.lora["rank"]) == (spec.actor, 2)
    assert found.state_expires_at is None
    context = found.context
    assert context is not None
    assert (context.steps, context.batches, context.examples, context.file) == (7, 4, None, None)
    assert (context.plan, context.dataset, context.dataset_digest) == (
        spec.plan_digest,
        "acme/set@1",
        TASK,
    )
    assert (context.backend, context.base_digest) == ("torch", sampler(1).base_digest)


def test_a_supervised_checkpoint_names_its_file_and_counts_its_examples() -> None:
    file = FileSource(file="rows.jsonl", digest=TASK, size=1, rows=1)
    of_file = made(spec_of(SupervisedPlan(source=file, batch_size=1)), {"examples_processed": 5.0})
    assert of_file.context is not None
    assert (of_file.context.file, of_file.context.examples) == (TASK, 5)
    source = RunSource(run=name("run", 5))
    of_run = made(spec_of(SupervisedPlan(source=source, batch_size=1)))
    assert of_run.context is not None
    assert of_run.context.file is None


def test_a_state_expires_with_the_plan_or_with_its_backend() -> None:
    rules = CheckpointRules(state_ttl_sec=3600)
    for found in (
        made(spec_of(training_plan(checkpoints=rules))),
        made(spec_of(training_plan()), kept_sec=3600.0),
        made(spec_of(training_plan(checkpoints=rules)), kept_sec=9999.0),
    ):
        assert found.state_expires_at is not None
        created = datetime.fromisoformat(found.created_at)
        assert datetime.fromisoformat(found.state_expires_at) - created == timedelta(hours=1)
