"""The Llama forward pass, once, for sampling and training.

Tokens of all sequences lie flat in one [N, hidden] matrix without padding; only attention
knows sequences, and is passed in. So prefill, batched decode and training run the same
operations on the same float32 weights, and the log-probabilities of the sampler and the
trainer agree to rounding.

Projections that read the same input are stored fused (q, k, v and gate, up).
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F

from runtime.compute.linear import Linear
from runtime.compute.lora import Fused, Lora, Pair, Projection
from runtime.compute.tensors import load, recomputed, split


class Attend(Protocol):
    """Attention over flat tokens: q [N, heads, d], k and v [N, kv heads, d] → [N, heads·d]."""

    def __call__(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, /
    ) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class _Layer:
    norm_1: torch.Tensor
    qkv: Linear
    o: Linear
    norm_2: torch.Tensor
    gate_up: Linear
    down: Linear


class Llama:
    """A Llama-family decoder in float32, read from a model folder."""

    def __init__(self, folder: Path) -> None:
        config = cast(dict[str, Any], json.loads((folder / "config.json").read_text()))
        weights = load(folder / "model.safetensors")
        self.layers_count = int(config["num_hidden_layers"])
        self.heads = int(config["num_attention_heads"])
        self.kv_heads = int(config["num_key_value_heads"])
        self.head_dim = int(config["head_dim"])
        self.vocabulary = int(config["vocab_size"])
        self.context = int(config["max_position_embeddings"])
        self.epsilon = float(config["rms_norm_eps"])
        self.embedding = weights["model.embed_tokens.weight"]
        self.norm = weights["model.norm.weight"]
        tied = bool(config["tie_word_embeddings"])
        self.head = Linear(self.embedding if tied else weights["lm_head.weight"])
        self.layers = [_layer(weights, index) for index in range(self.layers_count)]
        self.cos, self.sin = _rotary(config, self.context, self.head_dim)

    def fused(self) -> list[Fused]:
        """The projections an adapter changes, in the order that `forward` uses them."""
        hidden = self.embedding.shape[1]
        attention, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        inner = self.layers[0].down.weight.shape[1]
        groups: list[Fused] = []
        for index in range(self.layers_count):
            name = f"layers.{index}."
            q, k, v, o = (f"{name}self_attn.{part}_proj" for part in "qkvo")
            gate, up, down = (f"{name}mlp.{part}_proj" for part in ("gate", "up", "down"))
            groups += [
                Fused(
                    (
                        Projection(q, attention, hidden),
                        Projection(k, kv, hidden),
                        Projection(v, kv, hidden),
                    )
                ),
                Fused((Projection(o, hidden, attention),)),
                Fused((Projection(gate, inner, hidden), Projection(up, inner, hidden))),
                Fused((Projection(down, hidden, inner),)),
            ]
        return groups

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attend: Attend,
        lora: Lora | None,
        *,
        recompute: bool = False,
    ) -> torch.Tensor:
        """Last hidden states [N, hidden], normalised; `recompute` trades time for memory."""
        x = F.embedding(tokens, self.embedding)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        for index in range(self.layers_count):
            pairs = lora[4 * index : 4 * index + 4] if lora is not None else _NO_LORA
            if recompute:
                x = recomputed(self._block, index, x, cos, sin, attend, pairs)
            else:
                x = self._block(index, x, cos, sin, attend, pairs)
        return F.rms_norm(x, (x.shape[-1],), self.norm, self.epsilon)

    def _block(
        self,
        index: int,
        x: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        attend: Attend,
        lora: "list[Pair] | tuple[None, None, None, None]",
    ) -> torch.Tensor:
        layer = self.layers[index]
        hidden = (x.shape[-1],)
        h = F.rms_norm(x, hidden, layer.norm_1, self.epsilon)
        qkv = _linear(h, layer.qkv, lora[0]).view(x.shape[0], -1, self.head_dim)
        rotated = _rotate(qkv[:, : self.heads + self.kv_heads], cos, sin)
        q, k = split(rotated, [self.heads, self.kv_heads], dim=1)
        attended = attend(index, q, k, qkv[:, self.heads + self.kv_heads :])
        x = x + _linear(attended, layer.o, lora[1])
        h = F.rms_norm(x, hidden, layer.norm_2, self.epsilon)
        gate, up = _linear(h, layer.gate_up, lora[2]).chunk(2, dim=-1)
        return x + _linear(F.silu(gate) * up, layer.down, lora[3])

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Unnormalised log-probabilities over the vocabulary."""
        return self.head(hidden)


_NO_LORA = (None, None, None, None)


def _linear(x: torch.Tensor, linear: Linear, pair: Pair | None) -> torch.Tensor:
    y = linear(x)
    return y if pair is None else torch.addmm(y, F.linear(x, pair.a), pair.b_t)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _rotary(
    config: dict[str, Any], context: int, head_dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    theta = float(config["rope_theta"])
    inverse = 1.0 / (theta ** (torch.arange(0, head_dim, 2).float() / head_dim))
    angles = torch.outer(torch.arange(context).float(), inverse)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


def _layer(weights: dict[str, torch.Tensor], index: int) -> _Layer:
    def get(name: str) -> torch.Tensor:
        return weights.pop(f"model.layers.{index}.{name}.weight")

    return _Layer(
        norm_1=get("input_layernorm"),
        qkv=Linear(torch.cat([get(f"self_attn.{part}_proj") for part in "qkv"])),
        o=Linear(get("self_attn.o_proj")),
        norm_2=get("post_attention_layernorm"),
        gate_up=Linear(torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")])),
        down=Linear(get("mlp.down_proj")),
    )
