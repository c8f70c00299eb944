"""Scripted models: replies from a scenario, played through the real tokenizer.

Demonstrations recorded this way pass through the same proxy, harness and environments as a
model's own attempts. There is no distribution behind them, so they carry no log-probabilities
and their provenance is `scripted`.
"""

from functools import cache
from typing import Any, cast

import anyio.to_thread
import numpy as np
from tokenizers import Tokenizer

from runtime.compute import models
from runtime.compute.protocol import SampleContext, Sampled, SamplingParams
from specs.errors import Conflict, ErrorCode, ErrorObject
from specs.model import ModelInfo


class ScriptedCompute:
    """Sampling from the models with backend `scripted`."""

    async def models(self) -> list[ModelInfo]:
        """Every registered scenario."""
        return [info for info in models.list_models() if info.backend == "scripted"]

    async def sample(
        self,
        model: str,
        params: SamplingParams,
        *,
        num_samples: int,
        context: SampleContext,
    ) -> list[Sampled]:
        """The reply to call `context.call` of task `context.task`, the same for every sample.

        It ends with the model's stop token unless `max_tokens` cuts it off.

        Raises:
            Conflict: `scenario_exhausted`: the scenario has no such reply.
        """
        sampled = await anyio.to_thread.run_sync(_reply, model, context, params.max_tokens)
        return [sampled] * num_samples


def _reply(model: str, context: SampleContext, max_tokens: int) -> Sampled:
    scenario = models.scenario(model)
    replies = scenario.replies.get(context.task, [])
    if context.call >= len(replies):
        raise Conflict(
            f"Model {model} has {len(replies)} replies for task {context.task!r}, "
            f"and call {context.call} (from 0) needs one more.",
            code=ErrorCode.SCENARIO_EXHAUSTED,
            object=ErrorObject(type="model", id=model, pointer=f"/replies/{context.task}"),
            next="Add the reply to the scenario and register it again.",
        )
    info = models.model_info(scenario.tokenizer)
    tokenizer = _tokenizer(scenario.tokenizer)
    encoded: Any = cast(Any, tokenizer).encode(replies[context.call], add_special_tokens=False)
    tokens = [*cast(list[int], encoded.ids), info.stop_tokens[0]]
    kept = np.array(tokens[:max_tokens], np.int32)
    reason = "stop" if len(tokens) <= max_tokens else "length"
    return Sampled(kept, None, reason, "scripted")


@cache
def _tokenizer(model: str) -> Tokenizer:
    """A model's tokenizer, which is pinned and so loaded once."""
    return cast(Tokenizer, Tokenizer.from_str(models.tokenizer_bytes(model).decode()))
