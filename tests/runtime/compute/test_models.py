"""Models come from where they must, with the bytes they must have."""

import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtime.compute import models
from runtime.compute.gguf_import import read_gguf
from runtime.compute.tiny import tiny_weights
from specs.canonical import digest_bytes
from specs.errors import ErrorCode, InvalidInput, NotFound, Unavailable

SCENARIO = (
    b'{"schema":"practicum.scenario/v1","tokenizer":"tiny","replies":{"acme/t":["one","two"]}}'
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PRACTICUM_MODELS", str(tmp_path))
    return tmp_path


def tokenizer(name: str) -> Any:
    return cast(Any, Tokenizer).from_str(models.tokenizer_bytes(name).decode())


def test_tiny_has_the_pinned_weights_and_is_made_on_demand(cache: Path) -> None:
    weights = tiny_weights()
    info = models.model_info(models.TINY)
    assert models.weights_digest(weights) == info.digest
    assert sum(tensor.size for tensor in weights.values()) == info.parameters
    folder = models.model_path(models.TINY)
    assert folder == cache / "tiny"
    assert digest_bytes((folder / "tokenizer.json").read_bytes()) == info.tokenizer_digest


@pytest.mark.parametrize(
    "text", ["", "abc 123\n\t", "ünïcødé ☃ 🎉", "a\x7f\x01\u2028b", "<|im_end|>x"]
)
def test_tiny_reads_any_text_byte_for_byte(text: str) -> None:
    encoded = tokenizer(models.TINY).encode(text)
    assert tokenizer(models.TINY).decode(encoded.ids, skip_special_tokens=False) == text
    assert max(encoded.ids, default=0) < 259


def test_the_chat_specials_are_single_tokens() -> None:
    encoded = tokenizer(models.TINY).encode("<|im_start|>user<|im_end|>")
    assert (encoded.ids[0], encoded.ids[-1]) == (1, 2)
    assert models.model_info(models.TINY).stop_tokens == (2,)


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRACTICUM_MODELS")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert models.models_folder() == Path("/cache/practicum/models")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert models.models_folder() == Path("/home/me/.cache/practicum/models")


def test_an_unknown_or_absent_model_says_what_to_do(cache: Path) -> None:
    for name in ("nope", "../tiny", "scripted/none", "scripted/../x"):
        with pytest.raises(NotFound) as caught:
            models.model_path(name)
        assert caught.value.problem.code == ErrorCode.MODEL_UNKNOWN
    with pytest.raises(Unavailable, match="not in the cache") as absent:
        models.model_path(models.SMOLLM2)
    assert absent.value.problem.next == "Run `practicum model pull smollm2-135m-instruct`."


def test_a_changed_file_is_noticed_and_pull_repairs_it(cache: Path) -> None:
    weights = models.model_path(models.TINY) / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(bytes(data))
    with pytest.raises(Unavailable, match="changed"):
        models.model_path(models.TINY)
    said: list[str] = []
    models.pull(models.TINY, said.append)
    models.pull(models.TINY, said.append)
    assert said[-1] == "tiny is already here"
    assert models.model_path(models.TINY).is_dir()


def test_a_source_with_other_bytes_is_refused_and_leaves_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.compute.tiny.SEED", 21)
    with pytest.raises(Unavailable) as caught:
        models.pull(models.TINY)
    assert caught.value.problem.code == ErrorCode.DIGEST_MISMATCH
    assert [path.name for path in cache.iterdir()] == [".tiny.lock"]


def _pull(folder: str) -> str:
    os.environ["PRACTICUM_MODELS"] = folder
    said: list[str] = []
    models.pull(models.TINY, said.append)
    return said[-1]


def test_two_processes_pull_a_model_once(cache: Path) -> None:
    with get_context("spawn").Pool(2) as pool:
        said = sorted(pool.map(_pull, [str(cache)] * 2))
    assert said == ["tiny is already here", f"tiny is ready in {cache / 'tiny'}"]


def test_a_scenario_is_registered_listed_and_identified_by_content(cache: Path) -> None:
    info = models.pull_scripted("demo", SCENARIO, models.TINY)
    assert (info.name, info.backend, info.trainable) == ("scripted/demo", "scripted", False)
    assert info.tokenizer_digest == models.model_info(models.TINY).tokenizer_digest
    spaced = SCENARIO.replace(b",", b" ,\n")
    assert models.pull_scripted("scripted/other", spaced).digest == info.digest
    changed = models.pull_scripted("demo", SCENARIO.replace(b"two", b"2"))
    assert changed.digest != info.digest
    assert [m.name for m in models.list_models()][-2:] == ["scripted/demo", "scripted/other"]
    assert models.pull("scripted/demo") == changed
    with pytest.raises(InvalidInput):
        models.model_path("scripted/demo")


@pytest.mark.parametrize(
    ("name", "data", "pointer"),
    [
        ("demo", SCENARIO.replace(b"v1", b"v2"), "/schema"),
        ("demo", SCENARIO.replace(b'["one","two"]', b'"one"'), "/replies/acme~1t"),
        ("demo", SCENARIO[:-1] + b',"more":1}', "/more"),
        ("../demo", SCENARIO, None),
        ("Demo", SCENARIO, None),
    ],
)
def test_a_bad_scenario_is_refused_with_its_field(
    cache: Path, name: str, data: bytes, pointer: str | None
) -> None:
    with pytest.raises(InvalidInput) as caught:
        models.pull_scripted(name, data)
    assert caught.value.problem.object is not None
    assert caught.value.problem.object.pointer == pointer


def test_a_scenario_must_name_the_tokenizer_of_a_real_model(cache: Path) -> None:
    models.pull_scripted("demo", SCENARIO)
    with pytest.raises(NotFound):
        models.pull_scripted("x", SCENARIO.replace(b'"tiny"', b'"nope"'))
    with pytest.raises(InvalidInput):
        models.pull_scripted("x", SCENARIO.replace(b'"tiny"', b'"scripted/demo"'))
    with pytest.raises(InvalidInput):
        models.pull_scripted("x", SCENARIO, models.SMOLLM2)


def _write_gguf(path: Path, pre: str = "smollm") -> None:
    """A Llama GGUF of two layers whose q rows count up, as llama.cpp permutes them."""
    from gguf import GGUFWriter, TokenType

    writer = GGUFWriter(str(path), "llama")
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(16)
    writer.add_block_count(1)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_context_length(32)
    writer.add_vocab_size(4)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["<|im_end|>", "1", "2", "12"])
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * 3])
    writer.add_token_merges(["1 2"])
    rows = np.arange(8, dtype=np.float32)[:, None].repeat(8, axis=1)
    writer.add_tensor("blk.0.attn_q.weight", rows)
    writer.add_tensor("token_embd.weight", np.zeros((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_is_imported_with_rotary_halves_apart_and_digits_split(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "m.gguf")
    config, weights, document = read_gguf(tmp_path / "m.gguf")
    assert (config["head_dim"], config["tie_word_embeddings"]) == (4, True)
    q = weights["model.layers.0.self_attn.q_proj.weight"][:, 0]
    assert q.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
    assert document["added_tokens"][0]["content"] == "<|im_end|>"
    import json

    built = cast(Any, Tokenizer).from_str(json.dumps(document))
    assert built.encode("12").ids == [1, 2]


def test_a_gguf_of_another_kind_is_refused(tmp_path: Path) -> None:
    _write_gguf(tmp_path / "m.gguf", pre="llama-bpe")
    with pytest.raises(ValueError, match="smollm"):
        read_gguf(tmp_path / "m.gguf")


@pytest.mark.model
def test_smollm2_is_the_pinned_one_and_splits_digits(smollm2: str) -> None:
    from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]

    weights = load_file(models.model_path(smollm2) / "model.safetensors")
    assert models.weights_digest(weights) == models.model_info(smollm2).digest
    tokens = tokenizer(smollm2)
    for text in ("Hello 12345, wörld ☃\n\n  x", "<|im_start|>user\nHi<|im_end|>\n"):
        encoded = tokens.encode(text)
        assert tokens.decode(encoded.ids, skip_special_tokens=False) == text
    assert [t for t in tokens.encode("x 123").tokens if t.isdigit()] == ["1", "2", "3"]
    assert tokens.encode("<|im_end|>").ids == [2]
    assert tokens.get_vocab_size() == 49152
