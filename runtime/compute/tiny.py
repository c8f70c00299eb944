"""The test model `tiny`: about one million random parameters and one token per byte.

Everything follows from a seed through `numpy.random.RandomState`, whose stream is frozen, so
the weights are the same bytes on every machine and their digest can be pinned.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.compute.tokenizer_json import BYTE_LEVEL, byte_characters, tokenizer_document

SEED = 20
HIDDEN, INTERMEDIATE, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 128, 384, 5, 4, 2, 32
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = len(SPECIALS) + 256
CONTEXT = 4096


def tiny_config() -> dict[str, Any]:
    """The model's `config.json`, in the names of Hugging Face's Llama."""
    return {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "vocab_size": VOCABULARY,
        "tie_word_embeddings": True,
    }


def tiny_weights() -> dict[str, npt.NDArray[np.float32]]:
    """All tensors, drawn in one fixed order."""
    random = np.random.RandomState(SEED)

    def draw(rows: int, columns: int, scale: float) -> npt.NDArray[np.float32]:
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    weights = {"model.embed_tokens.weight": draw(VOCABULARY, HIDDEN, 0.1)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            weights[f"{prefix}{name}.weight"] = draw(rows, columns, 0.08)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = np.ones(HIDDEN, np.float32)
    weights["model.norm.weight"] = np.ones(HIDDEN, np.float32)
    return weights


def tiny_tokenizer() -> dict[str, Any]:
    """A byte-level BPE without merges: one token per UTF-8 byte, and the ChatML specials."""
    vocabulary = {text: index for index, text in enumerate(SPECIALS)}
    for byte, char in sorted(byte_characters().items()):
        vocabulary[char] = len(SPECIALS) + byte
    return tokenizer_document(
        vocabulary,
        merges=[],
        specials=dict(zip(SPECIALS, range(len(SPECIALS)), strict=True)),
        pre_tokenizers=[BYTE_LEVEL],
    )
