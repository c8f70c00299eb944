"""An exported checkpoint is what transformers and peft take it for."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from runtime.compute import models
from runtime.compute.lora import STATE_SCHEMA, parse_file
from runtime.compute.protocol import AdamParams, Loss, SamplerSpec, TrainerInit
from runtime.compute.router import LocalCompute
from specs.canonical import digest
from specs.errors import Conflict
from specs.ids import Prefix, new_id
from specs.model import LoraSpec
from specs.records import Checkpoint
from specs.run import SamplerRef
from tests.runtime.compute.samples import prompt, target_datum
from tools.checkpoint_export import write_export

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

SEQUENCES = [prompt(40, 1), prompt(7, 2), prompt(120, 3)]


def record(name: str, adapter: str, state: str, lora: LoraSpec) -> tuple[Checkpoint, SamplerRef]:
    info = models.model_info(name)
    sampler = SamplerRef(
        id=new_id(Prefix.SAMPLER),
        backend="torch",
        base_model=name,
        base_digest=info.digest,
        tokenizer_digest=info.tokenizer_digest,
        renderer=info.renderer,
        adapter=adapter,
    )
    checkpoint = Checkpoint(
        id=new_id(Prefix.CHECKPOINT),
        run=new_id(Prefix.RUN),
        update=new_id(Prefix.UPDATE),
        batch=0,
        sampler=sampler.id,
        base_model=name,
        adapter=adapter,
        adapter_size=1,
        state=state,
        state_size=1,
        lora=lora.model_dump(mode="json"),
        profile=digest("profile"),
        parent=None,
        created_at="2026-01-01T00:00:00+00:00",
    )
    return checkpoint, sampler


def by_peft(folder: Path) -> list[npt.NDArray[np.float32]]:
    """Log-probabilities of each token after the first, by the two libraries alone."""
    import peft
    import transformers

    libraries: Any = transformers
    base = libraries.AutoModelForCausalLM.from_pretrained(folder / "base", dtype="float32")
    model: Any = peft.PeftModel.from_pretrained(base, str(folder))
    model.eval()
    found: list[npt.NDArray[np.float32]] = []
    with torch.no_grad():
        for sequence in SEQUENCES:
            ids = torch.from_numpy(sequence.astype(np.int64))[None]
            logits = model(input_ids=ids).logits[0, :-1]
            logprobs = logits.log_softmax(-1).gather(-1, ids[0, 1:, None])
            found.append(logprobs[:, 0].numpy())
    return found


async def check(model: str, folder: Path, rate: float) -> None:
    lora = LoraSpec(rank=4, alpha=16.0, seed=5)
    async with LocalCompute(folder / "compute") as compute:
        await compute.create_trainer("t", TrainerInit(model, lora))
        for _ in range(3):  # all of A and B move
            await compute.forward(
                "t", [target_datum(SEQUENCES[0])], Loss.CROSS_ENTROPY, backward=True
            )
            await compute.optim_step("t", AdamParams(rate))
        saved = await compute.save_adapter("t")
        state = await compute.save_state("t", "s")
        checkpoint, sampler = record(model, saved.digest, state.digest, lora)
        made = folder / "exported"
        files = write_export(
            made,
            checkpoint,
            sampler,
            await compute.get_adapter(saved.digest),
            state=await compute.get_state("s"),
            base=models.model_path(model),
        )
        ours = [
            (await compute.logprobs(SamplerSpec(model, saved.digest), sequence))[1:]
            for sequence in SEQUENCES
        ]
        plain = (await compute.logprobs(SamplerSpec(model), SEQUENCES[0]))[1:]
    assert {str(file) for file in files} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
        "base/config.json",
        "base/model.safetensors",
        "base/tokenizer.json",
        "base/tokenizer_config.json",
        "practicum.json",
        "trainer_state.safetensors",
    }
    told = json.loads((made / "practicum.json").read_text())
    assert told["checkpoint"]["id"] == checkpoint.id
    assert told["sampler"]["base_digest"] == sampler.base_digest
    assert parse_file((made / "trainer_state.safetensors").read_bytes(), STATE_SCHEMA).step == 3
    theirs = by_peft(made)
    largest = max(float(np.abs(a - b).max()) for a, b in zip(ours, theirs, strict=True))
    assert largest <= 1e-4
    assert float(np.abs(ours[0] - plain).max()) > 0.1, "the adapter changes too little to tell"
    with pytest.raises(Conflict, match="exists already"):
        write_export(made, checkpoint, sampler, b"")


async def test_transformers_and_peft_give_our_logprobs_within_1e_4(tmp_path: Path) -> None:
    await check(models.TINY, tmp_path, 0.01)


@pytest.mark.model
@pytest.mark.slow
async def test_so_they_do_for_smollm2(smollm2: str, tmp_path: Path) -> None:
    await check(smollm2, tmp_path, 0.001)
