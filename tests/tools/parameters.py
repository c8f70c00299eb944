"""A training plan of which every field has a value that is not its default, as the contract's own
list of fields demands, and the attempts that show what each does."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args, override

from pydantic import BaseModel, JsonValue

from runtime.execution.context import RunContext
from specs.assessment import Assessment
from specs.ids import Prefix, new_id
from specs.records import Group, Trial, TrialOpen, TrialOutcome, TrialSettled
from specs.run import SamplerRef
from specs.worker_api import TrialOpened, TrialSettledWrite
from tests.runtime.learning.live import Live
from tests.runtime.learning.support import Turn, record, settled_trial

PLAN: dict[str, JsonValue] = {
    "kind": "training",
    "num_batches": 2,
    "batch": {"tasks": 2, "trials_per_task": 3},
    "order": "dataset",
    "optimizer_initialization": "resume",
    "loss": "ppo",
    "clip": {"low": 0.7, "high": 1.4},
    "learning_rate": 0.003,
    "grad_clip_norm": 0.25,
    "optimizer": {"name": "adamw", "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.01},
    "lora": {"rank": 3, "alpha": 6.0, "seed": 5},
    "checkpoints": {"state_ttl_sec": 5000.0},
    "advantages": {"normalise": "std", "per_token": "length"},
    "credit": {"discount": 0.5, "delegated": "exclude", "helpers": "train"},
    "kl": {"coefficient": 0.1, "reference": "", "discount": 0.9},
    "eligibility": {
        "overlong": "exclude",
        "missing_output": "keep",
        "parse_error": "exclude",
        "agent_failed": "exclude",
        "agent_timeout": "exclude",
    },
    "checks": {"max_logprob_difference": 0.5, "max_kl_sample_train": 0.2},
    "limits": {
        "max_calls": 7,
        "max_output_tokens": 900,
        "update": {"max_tokens": 100_001, "max_sec": 1001.0},
        "run": {"max_tokens": 200_002, "max_sec": 2002.0},
    },
    "resources": {"concurrency": 2, "cpus": 1.5, "memory_mb": 300},
    "timeouts": {"setup_sec": 31.0, "agent_sec": 32.0, "verifier_sec": 33.0, "trial_sec": 340.0},
    "seed": 11,
    "gateway": {
        "scopes": ["read", "start"],
        "max_runs": 2,
        "max_slots": 8,
        "max_updates": 3,
        "models": ["tiny"],
        "datasets": ["e2e/parity@v1"],
    },
}
"""`kl.reference` is filled in with a checkpoint that there is."""


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Every field that holds a value, by its JSON pointer, with its default."""
    for name, info in model.model_fields.items():
        pointer = f"{prefix}/{info.alias or name}"
        parts = [
            part
            for part in (info.annotation, *get_args(info.annotation))
            if isinstance(part, type) and issubclass(part, BaseModel)
        ]
        if parts:
            yield from fields(parts[0], pointer)
        else:
            yield pointer, info.get_default(call_default_factory=True)


def leaves(value: dict[str, JsonValue], prefix: str = "") -> dict[str, JsonValue]:
    """Every value of a document that is no object, by its JSON pointer."""
    found: dict[str, JsonValue] = {}
    for key, item in value.items():
        inner = leaves(item, f"{prefix}/{key}") if isinstance(item, dict) else {}
        found |= inner or {f"{prefix}/{key}": item}
    return found


def changed(plan: dict[str, JsonValue], pointer: str, value: JsonValue) -> dict[str, JsonValue]:
    """The plan with one value changed."""
    head, _, rest = pointer.removeprefix("/").partition("/")
    if not rest:
        return {**plan, head: value}
    inner = plan.get(head)
    return {**plan, head: changed(inner if isinstance(inner, dict) else {}, f"/{rest}", value)}


@dataclass(frozen=True)
class _Kind:
    """What is special about the attempt at an index of a group."""

    outcome: TrialOutcome = TrialOutcome.COMPLETED
    parse_error: str | None = None
    cut: bool = False


KINDS = (
    _Kind(),
    _Kind(),
    _Kind(outcome=TrialOutcome.AGENT_FAILED),
    _Kind(outcome=TrialOutcome.AGENT_TIMEOUT),
    _Kind(outcome=TrialOutcome.MISSING_OUTPUT),
    _Kind(parse_error="no call"),
    _Kind(cut=True),
)


@dataclass
class Varied(Live):
    """Attempts of which each has something that a rule of the plan is about.

    Every attempt: two calls of the main agent with a tool, a helper's without one, and a call of
    a delegated agent. What a sampler says to a prompt and a seed is always the same, so it is
    asked once.
    """

    said: dict[tuple[str | None, tuple[int, ...], int], Turn] = field(
        default_factory=dict[tuple[str | None, tuple[int, ...], int], Turn]
    )

    @override
    async def _sample(self, sampler: SamplerRef, prompt: list[int], seed: int) -> Turn:
        key = (sampler.adapter, tuple(prompt), seed)
        if key not in self.said:
            self.said[key] = await super()._sample(sampler, prompt, seed)
        return self.said[key]

    @override
    async def _attempt(
        self, ctx: RunContext, group: Group, sampler: SamplerRef, index: int, *, scored: bool
    ) -> Trial:
        kind = KINDS[index % len(KINDS)]
        trial = new_id(Prefix.TRIAL)
        await ctx.write(TrialOpened(trial=TrialOpen(id=trial, group=group.id, index=index)))
        turns = await self._turns(
            sampler, 1000 * group.batch + 100 * group.index + 10 * index, kind
        )
        recorded = record(turns, trial=trial, run=ctx.run, fence=ctx.claim.fence)
        await self.stack.worker.upload(recorded.data)
        settled = TrialSettled(trial=trial, outcome=kind.outcome, seal=recorded.seal)
        reward = sum(t % 97 for t in turns[0].output) / 97 + index
        assessment = Assessment(
            id=new_id(Prefix.ASSESSMENT), trial=trial, assessor="verifier", reward=reward
        )
        await ctx.write(TrialSettledWrite(settled=settled, assessment=assessment))
        return settled_trial(ctx, group, index, settled, assessment)

    async def _turns(self, sampler: SamplerRef, seed: int, kind: _Kind) -> Sequence[Turn]:
        async def said(prompt: list[int], place: int) -> Any:
            return await self._sample(sampler, prompt, seed + place)

        first = await said([5, 6, 7], 0)
        second = await said([5, 6, 7, *first.output, 9], 1)
        helper = await said([8, 8], 2)
        delegated = await said([4, 4], 3)
        common: dict[str, Any] = {"sampler": sampler.id}
        return [
            Turn([5, 6, 7], first.output, logprobs=first.logprobs, tools=("custom",), **common),
            Turn(
                [9],
                second.output,
                0,
                logprobs=second.logprobs,
                tools=("custom",),
                parse_error=kind.parse_error,
                stop="length" if kind.cut else "stop",
                **common,
            ),
            Turn([8, 8], helper.output, logprobs=helper.logprobs, tools=(), **common),
            Turn([4, 4], delegated.output, logprobs=delegated.logprobs, agent="sub", **common),
        ]
