"""A checkpoint as a folder that other programs read: PEFT's layout, and what it was made from.

    adapter_model.safetensors   the weights, byte for byte the stored object
    adapter_config.json         how PEFT applies them
    practicum.json              the checkpoint's record and its sampler
    trainer_state.safetensors   with `state`: parameters, Adam's moments, step
    base/                       with `base`: the base model as transformers reads it
    README.md                   how to load it

Base weights may have been dequantised from another file than the one of the same name on a hub:
only `base/` is sure to give the log-probabilities that were recorded.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, cast

from specs.errors import Conflict, ErrorObject, InvalidInput
from specs.records import Checkpoint
from specs.run import SamplerRef

_README = """\
# {checkpoint}

A LoRA adapter over `{base_model}`, exported by Practicum; `practicum.json` is its record.

```python
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained("{base}", dtype="float32")
model = PeftModel.from_pretrained(base, "{folder}")
```
"""


def adapter_config(checkpoint: Checkpoint, adapter: bytes) -> dict[str, Any]:
    """`adapter_config.json`: the modules are those that the weights are for."""
    length = int.from_bytes(adapter[:8], "little")
    header = cast(dict[str, Any], json.loads(adapter[8 : 8 + length]))
    modules = {name.split(".")[-3] for name in header if name.endswith(".lora_A.weight")}
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": checkpoint.base_model,
        "r": checkpoint.lora["rank"],
        "lora_alpha": checkpoint.lora["alpha"],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "inference_mode": True,
        "target_modules": sorted(modules),
    }


def write_export(
    folder: Path,
    checkpoint: Checkpoint,
    sampler: SamplerRef,
    adapter: bytes,
    *,
    state: bytes | None = None,
    base: Path | None = None,
) -> list[Path]:
    """Write the folder, whole or not at all; the files, relative to it.

    Raises:
        Conflict: the folder exists.
        InvalidInput: it cannot be written, or its weights are not here.
    """
    if sampler.backend == "tinker":
        raise InvalidInput(
            f"The weights of {checkpoint.id} are at the training service, under"
            f" {json.loads(adapter)['sampler_path']}.",
            object=ErrorObject(type="checkpoint", id=checkpoint.id),
            next="Download them from there with the service's own tools.",
        )
    if folder.exists():
        raise Conflict(
            f"{folder} exists already.",
            object=ErrorObject(type="folder", id=str(folder)),
            next="Name a folder that does not exist yet.",
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".export-") as temporary:
            made = Path(temporary) / "checkpoint"
            made.mkdir()
            _fill(made, folder, checkpoint, sampler, adapter, state, base)
            made.rename(folder)
    except OSError as error:
        raise InvalidInput(
            f"The checkpoint cannot be written to {folder}: {error.strerror or error}.",
            object=ErrorObject(type="folder", id=str(folder)),
            next="Name a folder on a disk with room that you may write to.",
        ) from None
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def _fill(
    made: Path,
    folder: Path,
    checkpoint: Checkpoint,
    sampler: SamplerRef,
    adapter: bytes,
    state: bytes | None,
    base: Path | None,
) -> None:
    (made / "adapter_model.safetensors").write_bytes(adapter)
    _write_json(made / "adapter_config.json", adapter_config(checkpoint, adapter))
    record = {
        "checkpoint": checkpoint.model_dump(mode="json"),
        "sampler": sampler.model_dump(mode="json"),
    }
    _write_json(made / "practicum.json", record)
    if state is not None:
        (made / "trainer_state.safetensors").write_bytes(state)
    if base is not None:
        _copy_base(base, made / "base")
    readme = _README.format(
        checkpoint=checkpoint.id,
        base_model=checkpoint.base_model,
        base=folder / "base" if base is not None else f"<{checkpoint.base_model}>",
        folder=folder,
    )
    (made / "README.md").write_text(readme)


def _copy_base(source: Path, target: Path) -> None:
    """The cached model, with the two things that transformers wants said."""
    target.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        shutil.copyfile(source / name, target / name)
    config = cast(dict[str, Any], json.loads((source / "config.json").read_text()))
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "float32"}
    _write_json(target / "config.json", config)
    _write_json(target / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")
