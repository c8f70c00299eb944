"""From a Llama GGUF file to the three files that the backend reads.

Weights are dequantised to float32 once. The tokenizer is built from the GGUF metadata,
because transformers' own conversion is wrong for this family: it adds a BOS token, swaps the
end token, invents ids outside the embedding and does not split digits.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime.compute.tokenizer_json import BYTE_LEVEL, tokenizer_document

_BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP_NAMES = {
    "token_embd": "model.embed_tokens.weight",
    "output_norm": "model.norm.weight",
    "output": "lm_head.weight",
}
_CONTROL_TOKEN = 3


def read_gguf(
    path: Path,
) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]], dict[str, Any]]:
    """Config, weights and tokenizer document of a Llama GGUF with a `smollm` pre-tokenizer.

    Raises:
        ValueError: another architecture or another pre-tokenizer.
    """
    from gguf import GGUFReader  # reads numpy memory maps; only needed while importing

    reader: Any = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama" or fields["tokenizer.ggml.pre"] != "smollm":
        raise ValueError("only Llama models with the smollm pre-tokenizer can be imported")
    weights = _weights(reader, fields)
    return _config(fields, tied="lm_head.weight" not in weights), weights, _tokenizer(fields)


def _config(fields: dict[str, Any], *, tied: bool) -> dict[str, Any]:
    heads = int(fields["llama.attention.head_count"])
    hidden = int(fields["llama.embedding_length"])
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": int(fields["llama.feed_forward_length"]),
        "num_hidden_layers": int(fields["llama.block_count"]),
        "num_attention_heads": heads,
        "num_key_value_heads": int(fields["llama.attention.head_count_kv"]),
        "head_dim": hidden // heads,
        # GGUF holds it as float32; the nearest short decimal is what the model was made with.
        "rms_norm_eps": round(float(fields["llama.attention.layer_norm_rms_epsilon"]), 9),
        "rope_theta": float(fields["llama.rope.freq_base"]),
        "max_position_embeddings": int(fields["llama.context_length"]),
        "vocab_size": int(fields["llama.vocab_size"]),
        "tie_word_embeddings": tied,
    }


def _weights(reader: Any, fields: dict[str, Any]) -> dict[str, npt.NDArray[np.float32]]:
    from gguf.quants import dequantize

    heads = {
        "attn_q": int(fields["llama.attention.head_count"]),
        "attn_k": int(fields["llama.attention.head_count_kv"]),
    }
    weights: dict[str, npt.NDArray[np.float32]] = {}
    for tensor in reader.tensors:
        values = np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        parts = str(tensor.name).split(".")
        if parts[0] != "blk":
            weights[_TOP_NAMES[parts[0]]] = values
            continue
        if parts[2] in heads:
            values = _unpermute(values, heads[parts[2]])
        weights[f"model.layers.{parts[1]}.{_BLOCK_NAMES[parts[2]]}.weight"] = values
    return weights


def _unpermute(values: npt.NDArray[np.float32], heads: int) -> npt.NDArray[np.float32]:
    """Undo llama.cpp's interleaving of the rotary halves of q and k."""
    rows, columns = values.shape
    split = values.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(rows, columns))


def _tokenizer(fields: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = fields["tokenizer.ggml.tokens"]
    kinds: list[int] = fields["tokenizer.ggml.token_type"]
    merges: list[str] = fields["tokenizer.ggml.merges"]
    # llama.cpp's "smollm": single digits first, then GPT-2's byte level pattern.
    return tokenizer_document(
        {text: index for index, text in enumerate(tokens)},
        merges=[merge.split(" ", 1) for merge in merges],
        specials={
            text: index
            for index, (text, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind == _CONTROL_TOKEN
        },
        pre_tokenizers=[{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
    )
