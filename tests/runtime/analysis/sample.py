"""A report made by hand: two batches of two groups, a checkpoint, transcripts; every free text
may be chosen, so that a hostile one can stand wherever a run can put text."""

from typing import Any

from runtime.analysis.report import Report
from specs.ids import Prefix, new_id

SHA = "sha256:" + "ab" * 32
AT = "2026-01-01T00:00:00+00:00"


def sample(text: str = "a plain text", *, tokens: list[str] | None = None) -> Report:
    """A training run's report with `text` in every place for free text."""
    run, checkpoint, sampler = new_id(Prefix.RUN), new_id(Prefix.CHECKPOINT), new_id(Prefix.SAMPLER)
    updates = [new_id(Prefix.UPDATE) for _ in range(2)]
    trials: list[dict[str, Any]] = []
    groups: list[dict[str, Any]] = []
    for batch in range(2):
        for place in range(2):
            group = new_id(Prefix.GROUP)
            members = [_trial(group, batch, index, place, text) for index in range(3)]
            trials += members
            groups.append(
                {
                    "group": group,
                    "batch": batch,
                    "index": place,
                    "task": f"acme/task-{place}",
                    "sampler": sampler,
                    "kind": "learnable" if place == 0 else "zero_variance",
                    "trials": [one["trial"] for one in members],
                }
            )
    interval = {"estimate": 0.5, "low": 0.2, "high": 0.8, "n": 6, "clusters": 2}
    value = {
        "run": run,
        "kind": "training",
        "state": "completed",
        "reason": text,
        "next": f"practicum {text}",
        "created_at": AT,
        "started_at": AT,
        "ended_at": "2026-01-01T00:01:00+00:00",
        "dataset": text,
        "actor_name": text,
        "model": text,
        "spec": _spec(sampler, text),
        "result": _result(run, checkpoint),
        "success": interval,
        "batches": [
            {
                "batch": batch,
                "trials": 6,
                "scored": 6,
                "reward": {**interval, "estimate": 0.4 + batch / 5},
            }
            for batch in range(2)
        ],
        "updates": [
            {
                "update": update,
                "batch": batch,
                "state": "acknowledged",
                "reason": None,
                "checkpoint": checkpoint if batch else None,
                "trials": 3,
                "trained_tokens": 36,
                "census": {"groups": 2},
                "metrics": {"loss": -0.01 - batch, "grad_norm": 0.5, "clip_fraction": 0.1 * batch},
            }
            for batch, update in enumerate(updates)
        ],
        "groups": groups,
        "trials": trials,
        "trials_total": len(trials),
        "bars": _bars(trials, updates, text),
        "attributes": [{"attribute": "family", "value": text, "success": interval}],
        "lineage": _lineage(run, checkpoint, updates, sampler, text, trials),
        "transcripts": [_transcript(trials[0]["trial"], updates[0], sampler, text, tokens)],
    }
    return Report.model_validate(value)


def _spec(sampler: str, text: str) -> dict[str, Any]:
    return {
        "actor": SHA,
        "plan": {"note": text},
        "plan_digest": SHA,
        "fingerprints": {"engine": text},
        "sampler": {
            "id": sampler,
            "base_model": text,
            "base_digest": SHA,
            "renderer": "chatml/1",
            "backend": "torch",
        },
    }


def _trial(group: str, batch: int, index: int, place: int, text: str) -> dict[str, Any]:
    learnt = place == 0
    return {
        "trial": new_id(Prefix.TRIAL),
        "group": group,
        "batch": batch,
        "index": index,
        "task": f"acme/task-{place}",
        "outcome": "completed",
        "reward": index / 2 if learnt else 1.0,
        "reason": None,
        "eligible": True,
        "ineligible_reason": text if index == 2 else None,
        "advantage": index / 2 - 0.5 if learnt else 0.0,
        "weight": (index - 1) / 12 if learnt else None,
        "calls": 2,
        "output_tokens": 12,
        "seconds": {"agent": 4.0},
        "shown": batch == place == index == 0,
    }


def _transcript(
    trial: str, update: str, sampler: str, text: str, tokens: list[str] | None
) -> dict[str, Any]:
    output = tokens or ["Hello", " wor", "ld", ".\n", text]
    return {
        "trial": trial,
        "spelled": True,
        "problem": None,
        "calls": [
            {
                "interaction": new_id(Prefix.INTERACTION),
                "call": call,
                "agent": text,
                "span": "root" if call == 0 else "exact",
                "state": "answered",
                "stop": "stop",
                "at": AT,
                "sampler": sampler,
                "prompt_tokens": 3,
                "new_from": 0,
                "prompt": ["You are", " asked: ", text],
                "omitted": 0,
                "output": output,
                "output_tokens": len(output),
                "logprobs": [-0.1 * place for place in range(len(output))],
                "weight": -1 / 12 if call == 0 else None,
                "update": update if call == 0 else None,
                "content": [{"type": "text", "text": text}],
            }
            for call in range(2)
        ],
    }


def _bars(trials: list[dict[str, Any]], updates: list[str], text: str) -> list[dict[str, Any]]:
    sampling = [
        {
            "lane": "sampling",
            "name": text,
            "kind": "trial",
            "batch": one["batch"],
            "start": one["batch"] * 30 + one["index"] * 4,
            "end": one["batch"] * 30 + one["index"] * 4 + 12,
            "trial": one["trial"],
        }
        for one in trials
    ]
    training = [
        {
            "lane": "training",
            "name": update,
            "kind": "forward and backward",
            "batch": batch,
            "start": batch * 30 + 15,
            "end": batch * 30 + 25,
        }
        for batch, update in enumerate(updates)
    ]
    mark = {"lane": "platform", "name": text, "kind": "checkpoint.saved", "batch": 0}
    return [*sampling, *training, {**mark, "start": 26, "end": 26}]


def _span(run: str, update: str, trial: str) -> dict[str, Any]:
    return {
        "run": run,
        "update": update,
        "batch": 1,
        "group": None,
        "trial": trial,
        "task": "acme/task-0",
        "reward": 0.0,
        "advantage": -0.5,
        "interaction": new_id(Prefix.INTERACTION),
        "call": 0,
        "row": None,
        "datum": SHA,
        "tokens": 5,
        "start": 3,
        "end": 8,
        "weight": -1 / 12,
        "logprob_sum": -1.0,
        "evidence": SHA,
    }


def _lineage(
    run: str,
    checkpoint: str,
    updates: list[str],
    sampler: str,
    text: str,
    trials: list[dict[str, Any]],
) -> dict[str, Any]:
    node = {
        "run": run,
        "kind": "training",
        "state": "completed",
        "dataset": text,
        "dataset_digest": SHA,
        "actor_name": text,
        "profile": SHA,
        "model": text,
        "plan_digest": SHA,
        "sampler": sampler,
        "started_from": None,
        "learns_from": None,
        "through_batch": None,
    }
    step = {
        "run": run,
        "loss": "importance_sampling",
        "learning_rate": 0.1,
        "sampled_from": sampler,
        "sampler_after": sampler,
        "groups": 1,
        "trials": 3,
        "rows": 0,
        "spans": 6,
        "trained_tokens": 36,
        "value": -0.01,
    }
    later = {
        "run": new_id(Prefix.RUN),
        "kind": "evaluation",
        "state": "completed",
        "model": checkpoint,
        "learns_from": None,
        "dataset": text,
        "actor_name": text,
        "created_at": AT,
    }
    return {
        "subject": run,
        "checkpoint": None,
        "show": "overview",
        "ancestors": [node],
        "cut": False,
        "updates": [
            {**step, "update": updates[1], "batch": 1, "checkpoint": checkpoint},
            {**step, "update": updates[0], "batch": 0, "checkpoint": None},
        ],
        "spans": [_span(run, updates[1], trials[0]["trial"])],
        "runs": [later],
        "groups": [],
        "updates_total": 2,
        "spans_total": 12,
    }


def _result(run: str, checkpoint: str) -> dict[str, Any]:
    return {
        "run": run,
        "kind": "training",
        "state": "completed",
        "planned_slots": 12,
        "trials_started": 12,
        "trials_settled": 12,
        "trials_scored": 12,
        "trials_eligible": 12,
        "trials_abandoned": 0,
        "launch_failed": 0,
        "distinct_tasks": 2,
        "batches": 2,
        "updates": {"acknowledged": 2},
        "checkpoints": [checkpoint],
        "reward_mean": 0.5,
        "success": 0.5,
        "by_task": {},
        "by_family": {},
        "environment_versions": [],
        "prompt_tokens": 100,
        "output_tokens": 144,
        "seconds": 60.0,
    }
