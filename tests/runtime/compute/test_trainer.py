"""Packing, gradients and files of a trainer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.compute import models
from runtime.compute import trainer as trainer_module
from runtime.compute.linear import Linear
from runtime.compute.llama import Llama
from runtime.compute.lora import ADAPTER_SCHEMA, STATE_SCHEMA, Layout, parse_file
from runtime.compute.packing import pack
from runtime.compute.protocol import AdamParams, IntArray, Loss
from runtime.compute.scoring import pack_logprobs, sequence_logprobs
from runtime.compute.trainer import Trainer
from specs.errors import InvalidInput
from specs.model import LoraSpec
from tests.runtime.compute.samples import TINY, ids, prompt, target_datum


@pytest.fixture(scope="module")
def model() -> Llama:
    return Llama(models.model_path(TINY))


def fresh(model: Llama, *, seed: int = 0) -> Trainer:
    """A trainer whose B matrices are not zero, so that every gradient is."""
    layout = Layout(model.fused(), 4)
    generator = torch.Generator().manual_seed(seed)
    flat = layout.initial(seed) + torch.randn(layout.size, generator=generator) * 0.02
    return Trainer(model, TINY, LoraSpec(rank=4, seed=seed), flat)


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), max_size=12), st.integers(1, 64)
)
def test_every_sequence_is_packed_once_and_found_at_its_rows(
    sequences: list[list[int]], budget: int
) -> None:
    arrays = [ids(*tokens) for tokens in sequences]
    packs = pack(arrays, budget)
    assert sorted(i for packed in packs for i in packed.members) == list(range(len(arrays)))
    for packed in packs:
        longest = max(len(sequences[index]) for index in packed.members)
        assert len(packed.tokens) <= (budget if longest <= budget else 2 * longest)
        for index, rows in zip(packed.members, packed.rows, strict=True):
            assert packed.tokens[rows].tolist() == sequences[index]
            assert packed.positions[rows].tolist() == list(range(len(sequences[index])))


def test_a_shared_prompt_is_computed_once() -> None:
    common = prompt(100)
    sequences = [np.concatenate((common, prompt(10, seed=n))) for n in range(1, 9)]
    (packed,) = pack(sequences, 512)
    assert len(packed.tokens) == 100 + 8 * 10


def test_a_prompt_that_exceeds_the_budget_is_computed_once_too() -> None:
    common = prompt(900)
    sequences = [np.concatenate((common, prompt(50, seed=n))) for n in range(1, 9)]
    (packed,) = pack(sequences, 512)
    assert len(packed.tokens) == 900 + 8 * 50


def test_what_some_of_a_group_share_further_on_is_computed_once_too() -> None:
    """Attempts that go on from one compaction, among attempts of the same task."""
    opening, compacted = prompt(300), prompt(200, seed=50)
    sequences = [np.concatenate((opening, prompt(40, seed=n))) for n in range(1, 5)]
    sequences += [np.concatenate((opening, compacted, prompt(40, seed=n))) for n in range(5, 9)]
    (packed,) = pack(sequences, 1024)
    assert len(packed.tokens) == 300 + 200 + 8 * 40


def test_long_prompts_bring_as_many_tokens_of_their_branches_along_as_they_have() -> None:
    common = prompt(900)
    sequences = [np.concatenate((common, prompt(112, seed=n))) for n in range(1, 9)]
    (packed,) = pack(sequences, 512)
    assert len(packed.tokens) == 900 + 8 * 112


def test_in_double_precision_a_pack_has_the_gradient_of_its_sequences_to_rounding() -> None:
    """Masks and positions of a branch are right: nothing but rounding may differ."""
    common, further = prompt(120), prompt(30, seed=20)
    sequences = [np.concatenate((common, prompt(20, seed=n))) for n in range(1, 7)]
    sequences += [np.concatenate((common, further, prompt(n, seed=n))) for n in (9, 17)]
    torch.set_default_dtype(torch.float64)
    try:
        model = double(Llama(models.model_path(TINY)))
        together = gradient(model, [sequences])
        apart = gradient(model, [[sequence] for sequence in sequences])
    finally:
        torch.set_default_dtype(torch.float32)
    assert together.dtype == torch.float64
    gap = together - apart
    assert float(gap.square().sum().sqrt()) <= 1e-12 * float(apart.square().sum().sqrt())


def double(model: Llama) -> Llama:
    """The same model with every weight in double precision."""
    model.embedding, model.norm = model.embedding.double(), model.norm.double()
    model.head = Linear(model.head.weight.double())
    model.cos, model.sin = model.cos.double(), model.sin.double()
    model.layers = [
        replace(
            layer,
            norm_1=layer.norm_1.double(),
            norm_2=layer.norm_2.double(),
            qkv=Linear(layer.qkv.weight.double()),
            o=Linear(layer.o.weight.double()),
            gate_up=Linear(layer.gate_up.weight.double()),
            down=Linear(layer.down.weight.double()),
        )
        for layer in model.layers
    ]
    return model


def gradient(model: Llama, groups: list[list[IntArray]]) -> torch.Tensor:
    """Of the sum of all next-token log-probs by the adapter, one backward pass per group."""
    layout = Layout(model.fused(), 4)
    generator = torch.Generator().manual_seed(0)
    flat = torch.randn(layout.size, generator=generator, dtype=torch.float64) * 0.02
    flat.requires_grad_()
    for sequences in groups:
        lora = layout.pairs(flat, 1.0)
        inputs = [sequence[:-1] for sequence in sequences]
        active = [np.ones(len(tokens), np.bool_) for tokens in inputs]
        (packed,) = pack(inputs, 4096)
        targets = [sequences[index][1:] for index in packed.members]
        pack_logprobs(model, lora, packed, targets, active).sum().backward()
    assert flat.grad is not None
    return flat.grad


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_packed_logprobs_equal_those_of_each_sequence_alone(
    model: Llama, data: st.DataObject
) -> None:
    common = prompt(data.draw(st.integers(1, 60)))
    tails = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=6))
    tokens = [np.concatenate((common, prompt(n, seed=i + 1))) for i, n in enumerate(tails)]
    trained = fresh(model)
    result = trained.forward([target_datum(t) for t in tokens], Loss.CROSS_ENTROPY, backward=True)
    lora = trained.sampling_lora()
    for sequence, logprobs in zip(tokens, result.logprobs, strict=True):
        alone = sequence_logprobs(model, lora, sequence)[1:]
        assert np.abs(alone - logprobs).max() <= 1e-4


def test_the_gradient_of_a_pack_is_the_sum_of_its_sequences(model: Llama) -> None:
    common = prompt(50)
    data = [
        target_datum(np.concatenate((common, prompt(12, seed=n))), [0.0] * 45 + [0.3 * n] * 16)
        for n in range(1, 6)
    ]
    together, apart = fresh(model), fresh(model)
    together.forward(data, Loss.CROSS_ENTROPY, backward=True)
    for datum in data:
        apart.forward([datum], Loss.CROSS_ENTROPY, backward=True)
    left, right = together.gradient(), apart.gradient()
    assert torch.allclose(left, right, rtol=1e-3, atol=1e-4 * float(right.abs().max()))


def test_the_gradient_is_that_of_the_plain_loss(model: Llama) -> None:
    """Against finite differences along a random direction."""
    data = [target_datum(prompt(30), [float(i % 3) for i in range(29)])]
    trained = fresh(model)
    trained.forward(data, Loss.CROSS_ENTROPY, backward=True)
    gradient = trained.gradient()
    direction = torch.randn(gradient.shape, generator=torch.Generator().manual_seed(1))
    direction /= direction.square().sum().sqrt()
    step = 3e-3
    values: list[float] = []
    for sign in (1, -1):
        moved = Trainer(
            model, TINY, LoraSpec(rank=4), fresh(model).parameters() + sign * step * direction
        )
        values.append(moved.forward(data, Loss.CROSS_ENTROPY, backward=False).loss_sum)
    slope = (values[0] - values[1]) / (2 * step)
    assert slope == pytest.approx(float(gradient @ direction), rel=2e-2, abs=2e-2)


def test_recomputing_layers_changes_no_gradient(
    model: Llama, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [target_datum(prompt(80))]
    plain, recomputed = fresh(model), fresh(model)
    plain.forward(data, Loss.CROSS_ENTROPY, backward=True)
    monkeypatch.setattr("runtime.compute.scoring.RECOMPUTE_TOKENS", 10)
    recomputed.forward(data, Loss.CROSS_ENTROPY, backward=True)
    assert torch.allclose(plain.gradient(), recomputed.gradient(), rtol=1e-5, atol=1e-6)


def test_small_packs_and_large_ones_agree(model: Llama, monkeypatch: pytest.MonkeyPatch) -> None:
    data = [target_datum(prompt(40, seed=n)) for n in range(6)]
    large, small = fresh(model), fresh(model)
    first = large.forward(data, Loss.CROSS_ENTROPY, backward=True)
    monkeypatch.setattr(trainer_module, "PACK_TOKENS", 50)
    second = small.forward(data, Loss.CROSS_ENTROPY, backward=True)
    assert first.loss_sum == pytest.approx(second.loss_sum, rel=1e-5)
    assert torch.allclose(large.gradient(), small.gradient(), rtol=1e-3, atol=1e-3)


def test_training_lowers_the_loss(model: Llama) -> None:
    trained = Trainer(model, TINY, LoraSpec())
    data = [target_datum(prompt(30))]
    losses: list[float] = []
    for _ in range(12):
        losses.append(trained.forward(data, Loss.CROSS_ENTROPY, backward=True).loss_sum)
        trained.optim_step(AdamParams(1e-2))
    assert losses[-1] < 0.7 * losses[0]


def test_a_clipped_step_reports_the_whole_norm(model: Llama) -> None:
    trained = fresh(model)
    trained.forward([target_datum(prompt(30))], Loss.CROSS_ENTROPY, backward=True)
    norm = float(trained.gradient().square().sum().sqrt())
    metrics = trained.optim_step(AdamParams(1e-3, grad_clip_norm=norm / 10))
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-4)


def test_files_round_trip_and_equal_parameters_give_equal_bytes(model: Llama) -> None:
    trained = fresh(model)
    trained.forward([target_datum(prompt(30))], Loss.CROSS_ENTROPY, backward=True)
    trained.optim_step(AdamParams(1e-3))
    again = Trainer.from_state(model, TINY, trained.state(), with_optimizer=True)
    assert again.state() == trained.state()
    assert again.adapter() == trained.adapter()
    file = parse_file(trained.adapter(), ADAPTER_SCHEMA)
    assert "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight" in file.tensors
    assert (file.base_model, file.lora.rank) == (TINY, 4)


def test_a_file_of_another_kind_or_base_is_refused(model: Llama) -> None:
    trained = fresh(model)
    for data in (b"", b"x" * 100, trained.adapter()[:-5], trained.adapter()):
        with pytest.raises(InvalidInput):
            parse_file(data, STATE_SCHEMA)
    with pytest.raises(InvalidInput, match="trained on"):
        Trainer.from_adapter(model, "other", trained.adapter())
    nan = fresh(model)
    broken = Trainer(model, TINY, LoraSpec(rank=4), nan.parameters() * float("nan"))
    with pytest.raises(InvalidInput, match="not finite"):
        Trainer.from_adapter(model, TINY, broken.adapter())
