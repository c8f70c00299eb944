"""The compute protocol: what every backend offers and every carrier transports.

One `Compute` serves sampling and training of many models. It has three carriers: in process
(tests), HTTP over a Unix socket with binary arrays (`client`, `server`), and Tinker. One
conformance suite runs against each.

State that must outlive the process is named by content or by the caller:

* a *sampler* is (base model, adapter digest or none); adapters are safetensors, held by
  digest and loaded on demand, so a restart changes nothing. An adapter that is not here is
  `adapter_missing`: the caller puts the bytes and repeats the call.
* a *trainer* lives in memory, within one `incarnation` of the backend. Its state is saved
  under a name that the caller chooses (the update's id), durably and at most once, so
  "does a state of that name exist?" answers whether the step behind it was applied.

Operations on one trainer run in the order of their arrival. Cancelling a call abandons its
result; a trainer operation that has begun still completes.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig
from specs.model import LoraSpec, ModelInfo

type IntArray = npt.NDArray[np.int32]
type FloatArray = npt.NDArray[np.float32]

type Provenance = Literal["sampled", "scripted", "upstream"]
type StopReason = Literal["stop", "length"]
type WaitState = Literal["active", "slow", "rate_limited", "no_capacity", "paused"]


@dataclass(frozen=True, slots=True)
class SamplerSpec:
    """What to sample from: a base model, optionally with an adapter (digest of its bytes)."""

    base_model: str
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Sampling parameters. `stop` ids end a sequence and are kept in it; empty = never."""

    max_tokens: int
    stop: tuple[int, ...]
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class SampleContext:
    """Where in a trial a call happens; only a scripted model looks at it.

    `call` counts the trial's answered calls before this one, from 0. The rest tells agents
    apart where the harness does: `order` is 0 for the main agent and n for the n-th other one
    that called, `agent_call` counts the agent's own answered calls, `opening` is the text of
    the first turn of its user and `request` the text of the last turn. `begun` is what of the
    answer the prompt has already, spelled; None where the model begins by itself.
    """

    task: str = ""
    call: int = 0
    trial: str = ""
    agent: str = ""
    order: int = 0
    agent_call: int | None = None
    opening: str = ""
    request: str = ""
    begun: str | None = None


NO_CONTEXT = SampleContext()


@dataclass(frozen=True, slots=True)
class Sampled:
    """One sampled sequence: ids [n], and their untempered log-probabilities [n] in nats.

    `logprobs` is None where the backend has none (`provenance` is then not `sampled`).
    """

    tokens: IntArray
    logprobs: FloatArray | None
    stop_reason: StopReason
    provenance: Provenance = "sampled"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens of one sequence in the order of their sampling, with log-probs as in `Sampled`.

    `stop_reason` is set on the last chunk and on no other; any chunk may be empty.
    """

    tokens: IntArray
    logprobs: FloatArray | None
    provenance: Provenance = "sampled"
    stop_reason: StopReason | None = None


type Stream = AbstractAsyncContextManager[AsyncIterator[Chunk]]


@dataclass(frozen=True, slots=True)
class Datum:
    """One training sequence; every array has the same length n.

    `tokens` [n] int32 are the inputs and `targets` [n] int32 the tokens to predict (inputs
    shifted left by one). `inputs` holds the float32 [n] arrays that the loss reads (`LOSS_INPUTS`):
    `weights`, or `logprobs` and `advantages`.
    """

    tokens: IntArray
    targets: IntArray
    inputs: Mapping[str, FloatArray]


@dataclass(frozen=True, slots=True)
class AdamParams:
    """One AdamW step; `grad_clip_norm` 0 means no clipping."""

    learning_rate: float
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


@dataclass(frozen=True, slots=True)
class ForwardResult:
    """`logprobs` of the targets, one [n] array per datum; `loss_sum` over all tokens."""

    logprobs: Sequence[FloatArray]
    loss_sum: float


@dataclass(frozen=True, slots=True)
class TrainerInfo:
    """A trainer: `incarnation` is the backend process it lives (or lived) in.

    `kept_sec`: how long its backend keeps what it saves; None: until it is told to forget.
    """

    id: str
    incarnation: str
    base_model: str
    lora: LoraSpec
    steps: int
    kept_sec: float | None = None


@dataclass(frozen=True, slots=True)
class TrainerInit:
    """How a trainer begins.

    Fresh adapter when both are None; `adapter` (digest) starts from saved sampler weights
    with a fresh optimizer; `state` (name) continues a saved trainer state, its optimizer
    included where `with_optimizer`.
    """

    base_model: str
    lora: LoraSpec = field(default_factory=LoraSpec)
    adapter: str | None = None
    state: str | None = None
    with_optimizer: bool = True


@dataclass(frozen=True, slots=True)
class SavedBytes:
    """A saved adapter or state: digest and size of its bytes."""

    digest: str
    size: int


@dataclass(frozen=True, slots=True)
class Wait:
    """An operation that a training service keeps waiting, and what it says about that.

    `seconds` since it began; `trainer` is None where it samples.
    """

    operation: str
    model: str
    trainer: str | None
    state: WaitState
    reason: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Health:
    """`incarnation` is new for every process; `trainers` lists the live ones."""

    incarnation: str
    backend: str
    threads: int
    trainers: tuple[str, ...]
    trainers_created: int
    """How many trainers this incarnation ever opened; evaluation must leave it unchanged."""
    waits: tuple[Wait, ...] = ()
    """Operations that a remote service keeps waiting."""


class Compute(Protocol):
    """The operations of a backend. Errors are `specs.errors` (codes in each docstring)."""

    async def health(self) -> Health: ...

    async def models(self) -> list[ModelInfo]:
        """Every known model, present or not."""
        ...

    async def model(self, name: str) -> ModelInfo:
        """One model; `model_unknown` when there is none of that name."""
        ...

    async def tokenizer(self, name: str) -> bytes:
        """`tokenizer.json` of a model, as the `tokenizers` library reads it."""
        ...

    async def sample(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        num_samples: int = 1,
        context: SampleContext = NO_CONTEXT,
    ) -> list[Sampled]:
        """Sample; `adapter_missing`, `model_unknown`, `prompt_too_long`, `scenario_exhausted`.

        `overloaded`: the backend takes no more now, and nothing of the call was sampled.
        Cancelling frees the sequences' place in the batch.
        """
        ...

    def stream(
        self,
        sampler: SamplerSpec,
        prompt: IntArray,
        params: SamplingParams,
        *,
        context: SampleContext = NO_CONTEXT,
    ) -> Stream:
        """Sample one sequence and see it grow: `async with compute.stream(...) as chunks`.

        `chunks.fold` of all chunks is what `sample` returns. Errors are those of `sample`,
        raised on entering or while reading. Leaving the block before the last chunk, or
        cancelling, frees the sequence's place in the batch.
        """
        ...

    async def logprobs(self, sampler: SamplerSpec, tokens: IntArray) -> FloatArray:
        """Log-probability of each token given those before it; the first is NaN."""
        ...

    async def has_adapter(self, digest: str) -> bool: ...

    async def put_adapter(self, digest: str, data: bytes) -> None:
        """Store an adapter; `digest_mismatch` if the bytes are others."""
        ...

    async def get_adapter(self, digest: str) -> bytes: ...

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        """Open trainer `trainer` (an id the caller minted); repeating it returns the same."""
        ...

    async def trainer(self, trainer: str) -> TrainerInfo | None:
        """A live trainer, or None if this incarnation has none of that id."""
        ...

    async def close_trainer(self, trainer: str) -> None:
        """End a trainer after its running operation; queued ones fail. Idempotent.

        When this returns, nothing submitted before can still be applied.
        """
        ...

    async def forward(
        self,
        trainer: str,
        data: Sequence[Datum],
        loss: Loss,
        *,
        backward: bool,
        config: LossConfig = NO_CONFIG,
    ) -> ForwardResult:
        """Forward, and with `backward` add to the accumulated gradient.

        `loss` and `config` are Tinker's `loss_fn` and `loss_fn_config`; see `losses`. A failing
        call changes no gradient and fails alone. `trainer_missing`.
        """
        ...

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradient; metrics: `grad_norm`, `step`."""
        ...

    async def save_state(self, trainer: str, name: str) -> SavedBytes:
        """Save adapter + optimizer state as `name`, durable on return; a second save of a
        name is `state_conflict`."""
        ...

    async def find_state(self, name: str) -> SavedBytes | None: ...

    async def get_state(self, name: str) -> bytes: ...

    async def put_state(self, name: str, data: bytes) -> SavedBytes:
        """Bring back a state kept elsewhere; an equal one is fine, another is `state_conflict`."""
        ...

    async def drop_state(self, name: str) -> None:
        """Forget a saved state (its bytes are kept elsewhere or no longer wanted)."""
        ...

    async def save_adapter(self, trainer: str) -> SavedBytes:
        """Save the current adapter by content; it can be sampled from at once."""
        ...
