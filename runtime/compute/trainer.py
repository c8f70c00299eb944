"""One trainer: adapter parameters, AdamW, accumulated gradient. Synchronous; one thread.

A call that fails changes nothing: gradients are computed apart and added only when all are
finite, and an optimizer step checks them before it touches a parameter.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from runtime.compute.llama import Llama
from runtime.compute.lora import (
    ADAPTER_SCHEMA,
    STATE_SCHEMA,
    Layout,
    Lora,
    adapter_bytes,
    parse_file,
    state_bytes,
)
from runtime.compute.losses import (
    LOSS_INPUTS,
    NO_CONFIG,
    ClipRange,
    Loss,
    LossConfig,
    clip_range,
    gradient_input,
)
from runtime.compute.objective import token_loss
from runtime.compute.packing import Pack, pack
from runtime.compute.protocol import AdamParams, Datum, FloatArray, ForwardResult
from runtime.compute.scoring import pack_logprobs
from runtime.compute.tensors import split
from specs.canonical import holds
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.model import LoraSpec

PACK_TOKENS = 512
"""Tokens of one forward and backward pass; about 1.7 MB of activations each for 135M."""


@dataclass(slots=True)
class Optimizer:
    """AdamW moments over the flat parameter vector, and how many steps were taken."""

    first: torch.Tensor
    second: torch.Tensor
    step: int = 0


class Trainer:
    """Training state of one adapter on one base model."""

    def __init__(
        self,
        model: Llama,
        base_model: str,
        lora: LoraSpec,
        parameters: torch.Tensor | None = None,
        optimizer: Optimizer | None = None,
    ) -> None:
        self.base_model = base_model
        self.lora = lora
        self._model = model
        self._layout = Layout(model.fused(), lora.rank)
        if parameters is None:
            parameters = self._layout.initial(lora.seed)
        self._parameters: torch.Tensor = parameters.requires_grad_()
        self._optimizer = optimizer or Optimizer(
            torch.zeros(self._layout.size), torch.zeros(self._layout.size)
        )
        self._gradient: torch.Tensor | None = None

    @classmethod
    def from_adapter(cls, model: Llama, base_model: str, data: bytes) -> "Trainer":
        """Start from saved sampler weights with a fresh optimizer."""
        file = parse_file(data, ADAPTER_SCHEMA)
        _require_base(file.base_model, base_model)
        layout = Layout(model.fused(), file.lora.rank)
        return cls(model, base_model, file.lora, layout.flat(file.tensors))

    @classmethod
    def from_state(
        cls, model: Llama, base_model: str, data: bytes, *, with_optimizer: bool
    ) -> "Trainer":
        """Continue a saved state; without its optimizer, moments and step begin anew."""
        file = parse_file(data, STATE_SCHEMA)
        _require_base(file.base_model, base_model)
        layout = Layout(model.fused(), file.lora.rank)
        optimizer = None
        if with_optimizer:
            optimizer = Optimizer(
                layout.flat(file.tensors, prefix="m."),
                layout.flat(file.tensors, prefix="v."),
                file.step,
            )
        return cls(model, base_model, file.lora, layout.flat(file.tensors), optimizer)

    @property
    def steps(self) -> int:
        """Optimizer steps behind the parameters."""
        return self._optimizer.step

    def parameters(self) -> torch.Tensor:
        """A copy of the flat parameters."""
        return self._parameters.detach().clone()

    def gradient(self) -> torch.Tensor:
        """A copy of the accumulated gradient."""
        if self._gradient is None:
            return torch.zeros(self._layout.size)
        return self._gradient.clone()

    def sampling_lora(self) -> Lora:
        """The current adapter as the sampler uses it."""
        with torch.no_grad():
            return self._layout.pairs(self._parameters, self.lora.alpha / self.lora.rank)

    def forward(
        self,
        data: Sequence[Datum],
        loss: Loss,
        *,
        backward: bool,
        config: LossConfig = NO_CONFIG,
        proceed: Callable[[], None] = lambda: None,
    ) -> ForwardResult:
        """Log-probabilities and loss; with `backward`, adds to the accumulated gradient.

        Sequences that carry no weight skip the backward pass. `proceed` is called before
        each pass and may raise to abandon the call, which then changes nothing.
        """
        clip = clip_range(loss, config)
        for index, datum in enumerate(data):
            _check_datum(datum, loss, index, self._model.vocabulary, self._model.context)
        key = gradient_input(loss)
        learning = [backward and bool(np.any(datum.inputs[key])) for datum in data]
        logprobs: list[FloatArray] = [np.empty(0, np.float32)] * len(data)
        gradient: torch.Tensor | None = None
        total = 0.0
        for grad in (False, True):
            chosen = [index for index, learns in enumerate(learning) if learns == grad]
            for packed in pack([data[index].tokens for index in chosen], PACK_TOKENS):
                proceed()
                members = [chosen[member] for member in packed.members]
                part = [data[index] for index in members]
                values, part_loss, part_gradient = self._pass(packed, part, loss, clip, grad=grad)
                total += part_loss
                if part_gradient is not None:
                    gradient = part_gradient if gradient is None else gradient.add_(part_gradient)
                for index, value in zip(members, values, strict=True):
                    logprobs[index] = value
        if not holds(total):
            raise _not_finite("loss")
        if gradient is not None:
            if not bool(torch.isfinite(gradient).all()):
                raise _not_finite("gradient")
            self._gradient = gradient if self._gradient is None else self._gradient + gradient
        return ForwardResult(logprobs, total)

    def _pass(
        self,
        packed: Pack,
        data: list[Datum],
        loss: Loss,
        clip: ClipRange | None,
        *,
        grad: bool,
    ) -> tuple[list[FloatArray], float, torch.Tensor | None]:
        lengths = [len(datum.tokens) for datum in data]
        active = [datum.inputs[gradient_input(loss)] != 0 for datum in data]
        with torch.set_grad_enabled(grad):
            lora = self._layout.pairs(self._parameters, self.lora.alpha / self.lora.rank)
            targets = [datum.targets for datum in data]
            logprobs = pack_logprobs(self._model, lora, packed, targets, active)
            value = token_loss(loss, clip, logprobs, data)
            gradient = torch.autograd.grad(value, self._parameters)[0] if grad else None
        return (
            [part.numpy().copy() for part in split(logprobs.detach(), lengths)],
            float(value.detach()),
            gradient,
        )

    @torch.no_grad()
    def optim_step(self, params: AdamParams) -> Mapping[str, float]:
        """One AdamW step over the accumulated gradient, which is cleared in any case."""
        _check_adam(params)
        gradient, self._gradient = self._gradient, None
        if gradient is None:
            gradient = torch.zeros_like(self._parameters)
        norm = float(gradient.dot(gradient).sqrt())
        if not holds(norm):
            raise _not_finite("gradient")
        if 0 < params.grad_clip_norm < norm:
            gradient = gradient * (params.grad_clip_norm / norm)
        state = self._optimizer
        step = state.step + 1
        first = state.first.lerp(gradient, 1 - params.beta1)
        second = (state.second * params.beta2).addcmul_(gradient, gradient, value=1 - params.beta2)
        scale = (second / (1 - params.beta2**step)).sqrt_().add_(params.eps)
        updated = self._parameters * (1 - params.learning_rate * params.weight_decay)
        updated.addcdiv_(first, scale, value=-params.learning_rate / (1 - params.beta1**step))
        if not bool(torch.isfinite(updated).all()):
            raise _not_finite("updated parameter")
        self._parameters = updated.requires_grad_()
        self._optimizer = Optimizer(first, second, step)
        return {"grad_norm": norm, "step": float(step)}

    def adapter(self) -> bytes:
        """The adapter file of the current parameters."""
        return adapter_bytes(self._layout, self._parameters, self.base_model, self.lora)

    def state(self) -> bytes:
        """The state file: parameters, moments, step."""
        return state_bytes(
            self._layout,
            self._parameters,
            (self._optimizer.first, self._optimizer.second),
            base_model=self.base_model,
            spec=self.lora,
            step=self._optimizer.step,
        )


def _check_datum(datum: Datum, loss: Loss, index: int, vocabulary: int, context: int) -> None:
    """Refuse a datum before any work is done on its batch."""
    where = f"/data/{index}"
    n = len(datum.tokens)
    if n == 0 or n > context:
        raise _bad(f"it has {n} tokens, not 1 to {context}", f"{where}/tokens")
    for name, ids in (("tokens", datum.tokens), ("targets", datum.targets)):
        if ids.shape != (n,):
            raise _bad(f"{name} has shape {list(ids.shape)}, not [{n}]", f"{where}/{name}")
        if int(ids.min()) < 0 or int(ids.max()) >= vocabulary:
            raise _bad(f"{name} holds an id outside 0..{vocabulary - 1}", f"{where}/{name}")
    for name in LOSS_INPUTS[loss]:
        if name not in datum.inputs:
            raise _bad(f"{loss} needs {name}", f"{where}/inputs/{name}")
        _check_input(datum, name, loss, n, f"{where}/inputs/{name}")


def _check_input(datum: Datum, name: str, loss: Loss, n: int, where: str) -> None:
    values = datum.inputs[name]
    if values.shape != (n,):
        raise _bad(f"{name} has shape {list(values.shape)}, not [{n}]", where)
    finite: npt.NDArray[np.bool_] = np.isfinite(values)
    if name == "logprobs":
        finite = finite | (datum.inputs["advantages"] == 0)
    if not finite.all():
        raise _bad(f"{name} is not finite where it counts for {loss}", where)


def _check_adam(params: AdamParams) -> None:
    rates = (params.learning_rate, params.eps, params.weight_decay, params.grad_clip_norm)
    betas = (params.beta1, params.beta2)
    if not all(math.isfinite(rate) and rate >= 0 for rate in rates):
        raise _bad("learning rate, eps, weight decay and clip norm must be finite, ≥ 0", "/params")
    if not all(0 <= beta < 1 for beta in betas):
        raise _bad("beta1 and beta2 must be in [0, 1)", "/params")


def _bad(why: str, pointer: str) -> InvalidInput:
    return InvalidInput(
        f"The training call is invalid: {why}.",
        object=ErrorObject(type="training_call", pointer=pointer),
        next="Correct the arrays; nothing was changed.",
    )


def _not_finite(what: str) -> InvalidInput:
    return InvalidInput(
        f"The {what} is not finite; the call changed nothing.",
        object=ErrorObject(type="training_call"),
        next="Lower the learning rate, or look for extreme advantages or stale log-probabilities.",
    )


def _require_base(found: str, wanted: str) -> None:
    if found != wanted:
        raise InvalidInput(
            f"It was trained on {found}, not on {wanted}.",
            code=ErrorCode.RESUME_INCOMPATIBLE,
            object=ErrorObject(type="adapter"),
            next=f"Open the trainer on {found}.",
        )
