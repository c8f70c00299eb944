"""The service: sessions, models that execute by sequence number, futures, checkpoints."""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from runtime.compute.losses import Loss, LossConfig
from runtime.compute.protocol import (
    AdamParams,
    SamplerSpec,
    SamplingParams,
    TrainerInit,
)
from runtime.compute.router import LocalCompute
from specs.errors import InvalidInput, PracticumError
from specs.model import LoraSpec
from tests.runtime.compute.tinker_server import wire
from tests.runtime.compute.tinker_server.faults import Dropped, Fault, Faults

KEY = "tml-loopback-key"
MODEL = "local/tiny"
SERVED = "local/served"
TINY = "tiny"
EOS = 2
POLL_SEC = 1.0

type Work = Callable[[], Awaitable[Response]]
type Json = dict[str, Any]


@dataclass(slots=True)
class Model:
    """A training run: what was submitted runs by sequence number, each number once."""

    session: str
    rank: int = 8
    next: int = 1
    waiting: dict[int, Callable[[], None]] = field(default_factory=dict[int, Callable[[], None]])
    requests: dict[int, str] = field(default_factory=dict[int, str])
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Unknown(Exception):
    """Something named that is not there: a 404."""


class Ended(Exception):
    """A session that is over: a 410."""


class Service:
    """The state of one process, and the checkpoints on disk."""

    def __init__(self, folder: Path) -> None:
        self.compute = LocalCompute(folder / "compute")
        self.faults = Faults()
        self.counts: Counter[str] = Counter()
        self._index = folder / "checkpoints.json"
        self.checkpoints: dict[str, Json] = {}
        if self._index.exists():
            self.checkpoints = json.loads(self._index.read_text())
        self.sessions: dict[str, bool] = {}
        self.models: dict[str, Model] = {}
        self.samplers: dict[str, SamplerSpec] = {}
        self.futures: dict[str, asyncio.Future[Response]] = {}

    def require_session(self, session: str) -> None:
        """Refuse what is submitted to a session that is not there, or over."""
        if session not in self.sessions:
            raise Unknown(f"session {session}")
        if not self.sessions[session]:
            raise Ended(session)

    def begin(self, path: str, work: Work) -> str:
        """Start something now; its request id."""
        name = secrets.token_hex(16)
        self.futures[name] = asyncio.ensure_future(self._at_fault(path, work))
        return name

    def submit(self, path: str, model_id: str, seq: int, work: Work) -> str:
        """Queue an operation of a model; a number that was submitted before is the same one."""
        model = self.models.get(model_id)
        if model is None:
            raise Unknown(f"model {model_id}")
        self.require_session(model.session)
        if seq in model.requests:
            return model.requests[seq]
        ready = asyncio.Event()

        async def in_turn() -> Response:
            await ready.wait()
            async with model.turn:
                return await work()

        name = model.requests[seq] = self.begin(path, in_turn)
        model.waiting[seq] = ready.set
        while model.next in model.waiting:
            model.waiting.pop(model.next)()
            model.next += 1
        return name

    async def _at_fault(self, path: str, work: Work) -> Response:
        fault = self.faults.take(path, "fail", "hang")
        if fault is not None and fault.kind == "hang":
            await asyncio.Event().wait()
        if fault is not None:
            return _failed(fault.detail or "the machine caught fire", "server")
        try:
            return await work()
        except InvalidInput as error:
            return _failed(str(error), "user")
        except PracticumError as error:
            return _failed(str(error), "server")

    def keep(self, path: str, entry: Json, ttl: int | None) -> None:
        """Remember a checkpoint, on disk."""
        until = None if ttl is None else (datetime.now(UTC) + timedelta(seconds=ttl)).isoformat()
        self.checkpoints[path] = {
            **entry,
            "time": datetime.now(UTC).isoformat(),
            "expires_at": until,
        }
        self.write()

    def write(self) -> None:
        """The index, replaced in one step."""
        temporary = self._index.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.checkpoints))
        temporary.replace(self._index)

    def checkpoint(self, path: str) -> Json:
        """One checkpoint."""
        if path not in self.checkpoints:
            raise Unknown(path)
        return self.checkpoints[path]


def _failed(text: str, category: str) -> Response:
    return JSONResponse({"error": text, "category": category})


def _future(request_id: str, **more: Any) -> Response:
    return JSONResponse({"request_id": request_id, **more})


async def _create_model(service: Service, body: Json) -> Response:
    service.require_session(body["session_id"])
    model_id = f"{body['session_id']}:train:{body['model_seq_id']}"
    config = body["lora_config"]
    lora = LoraSpec(rank=config["rank"], seed=config.get("seed") or 0)
    model = Model(body["session_id"], lora.rank)

    async def work() -> Response:
        if body["base_model"] != MODEL:
            return _failed(f"{body['base_model']} is not trained here", "user")
        await service.compute.create_trainer(model_id, TrainerInit(TINY, lora))
        service.models[model_id] = model
        return JSONResponse({"type": "create_model", "model_id": model_id})

    return _future(service.begin("create_model", work), model_id=model_id)


async def _load_weights(service: Service, body: Json) -> Response:
    service.require_session(body["session_id"])
    model_id = f"{body['session_id']}:train:{body['model_seq_id']}"
    entry = service.checkpoint(body["path"])

    async def work() -> Response:
        init = TrainerInit(TINY, state=entry["state"], with_optimizer=body["optimizer"])
        info = await service.compute.create_trainer(model_id, init)
        service.models[model_id] = Model(body["session_id"], info.lora.rank)
        return JSONResponse({"type": "load_weights", "path": body["path"]})

    return _future(service.begin("load_weights", work), model_id=model_id)


async def _get_info(service: Service, body: Json) -> Response:
    model = service.models[body["model_id"]]
    return JSONResponse(
        {
            "type": "get_info",
            "model_id": body["model_id"],
            "is_lora": True,
            "lora_rank": model.rank,
            "model_name": MODEL,
            "model_data": {"arch": "llama", "model_name": MODEL, "tokenizer_id": TINY},
        }
    )


async def _forward_backward(service: Service, raw: bytes) -> Response:
    message = wire.read_forward(raw)

    async def work() -> Response:
        data = wire.read_data(message)
        result = await service.compute.forward(
            message.model_id,
            data,
            Loss(message.loss_fn),
            backward=not message.forward_only,
            config=LossConfig(**dict(message.loss_fn_config)),
        )
        return Response(wire.write_forward(result), media_type=wire.MEDIA_TYPE)

    return _future(
        service.submit("forward_backward", message.model_id, message.seq_id, work),
        model_id=message.model_id,
    )


async def _optim_step(service: Service, body: Json) -> Response:
    params = AdamParams(**{k: v for k, v in body["adam_params"].items() if k != "type"})

    async def work() -> Response:
        metrics = await service.compute.optim_step(body["model_id"], params)
        return JSONResponse({"metrics": dict(metrics)})

    return _future(service.submit("optim_step", body["model_id"], body["seq_id"], work))


async def _save_weights(service: Service, body: Json) -> Response:
    model_id, name = body["model_id"], body["path"]
    path = f"tinker://{model_id}/weights/{name}"

    async def work() -> Response:
        if path in service.checkpoints:
            return _failed(f"{path} exists", "user")
        state = f"{model_id.replace(':', '_')}.{name}"
        saved = await service.compute.save_state(model_id, state)
        entry = {"run": model_id, "id": f"weights/{name}", "type": "training"}
        service.keep(
            path, {**entry, "state": state, "size_bytes": saved.size}, body.get("ttl_seconds")
        )
        return JSONResponse({"type": "save_weights", "path": path})

    return _future(service.submit("save_weights", model_id, body["seq_id"], work))


async def _save_for_sampler(service: Service, body: Json) -> Response:
    model_id, name = body["model_id"], body["path"]
    path = f"tinker://{model_id}/sampler_weights/{name}"

    async def work() -> Response:
        saved = await service.compute.save_adapter(model_id)
        entry = {"run": model_id, "id": f"sampler_weights/{name}", "type": "sampler"}
        service.keep(
            path,
            {**entry, "adapter": saved.digest, "size_bytes": saved.size},
            body.get("ttl_seconds"),
        )
        return JSONResponse({"type": "save_weights_for_sampler", "path": path})

    return _future(service.submit("save_weights_for_sampler", model_id, body["seq_id"], work))


async def _create_sampling_session(service: Service, body: Json) -> Response:
    service.require_session(body["session_id"])
    path = body.get("model_path")
    adapter = None if path is None else service.checkpoint(path)["adapter"]
    if path is None and body["base_model"] not in (MODEL, SERVED):
        raise Unknown(body["base_model"])
    name = f"{body['session_id']}:sample:{body['sampling_session_seq_id']}"
    service.samplers[name] = SamplerSpec(TINY, adapter)
    return JSONResponse({"type": "create_sampling_session", "sampling_session_id": name})


async def _asample(service: Service, body: Json) -> Response:
    name = body["sampling_session_id"]
    if name not in service.samplers:
        raise Unknown(f"sampling session {name}")
    service.require_session(name.split(":")[0])
    spec, wanted = service.samplers[name], body["sampling_params"]
    ids = [token for chunk in body["prompt"]["chunks"] for token in chunk["tokens"]]
    prompt, count = np.array(ids, np.int32), body["num_samples"]
    stop = wanted.get("stop")
    params = SamplingParams(
        max_tokens=wanted["max_tokens"],
        stop=(EOS,) if stop is None else tuple(stop),
        temperature=wanted.get("temperature", 1.0),
        top_p=wanted.get("top_p", 1.0),
        top_k=wanted.get("top_k", -1),
        seed=wanted.get("seed"),
    )

    async def work() -> Response:
        scored = None
        if body.get("prompt_logprobs"):
            scored = await service.compute.logprobs(spec, prompt)
            if len(prompt) + 1 > 4096:
                return _failed("the prompt is too long", "user")
        samples = await service.compute.sample(spec, prompt, params, num_samples=count)
        return Response(wire.write_samples(samples, scored), media_type=wire.MEDIA_TYPE)

    sequences = [secrets.token_hex(8) for _ in range(count)]
    return _future(service.begin("asample", work), sample_sequence_ids=sequences)


async def _cancel_future(service: Service, body: Json) -> Response:
    service.futures[body["request_id"]].cancel()
    return JSONResponse({})


async def _retrieve_future(service: Service, body: Json) -> Response:
    name = body["request_id"]
    future = service.futures.get(name)
    if future is None:
        raise Unknown(f"request {name}")
    again = {"type": "try_again", "request_id": name}
    paused = service.faults.take("retrieve_future", "paused")
    if paused is not None:
        await asyncio.sleep(0.2)
        return JSONResponse(
            {**again, "queue_state": paused.detail, "queue_state_reason": "the test says so"}
        )
    done, _ = await asyncio.wait({future}, timeout=POLL_SEC)
    if not done:
        return JSONResponse({**again, "queue_state": "active"})
    return _failed("cancelled", "server") if future.cancelled() else future.result()


async def _create_session(service: Service, body: Json) -> Response:
    name = secrets.token_hex(8)
    service.sessions[name] = True
    return JSONResponse({"type": "create_session", "session_id": name})


async def _session_heartbeat(service: Service, body: Json) -> Response:
    service.require_session(body["session_id"])
    return JSONResponse({"type": "session_heartbeat"})


async def _config(service: Service, body: Json) -> Response:
    return JSONResponse({})


async def _dynamic_config(service: Service, body: Json) -> Response:
    return JSONResponse({"sample_cancel_enabled": True})


async def _capabilities(service: Service, body: Json) -> Response:
    models = [
        {"model_name": MODEL, "max_context_length": 4096, "trainable": True, "sampleable": True},
        {"model_name": SERVED, "max_context_length": 4096, "trainable": False, "sampleable": True},
    ]
    return JSONResponse({"supported_models": models})


ROUTES: dict[str, Callable[[Service, Any], Awaitable[Response]]] = {
    "client/config": _config,
    "client/dynamic_config": _dynamic_config,
    "create_session": _create_session,
    "session_heartbeat": _session_heartbeat,
    "get_server_capabilities": _capabilities,
    "create_model": _create_model,
    "load_weights": _load_weights,
    "get_info": _get_info,
    "forward_backward": _forward_backward,
    "optim_step": _optim_step,
    "save_weights": _save_weights,
    "save_weights_for_sampler": _save_for_sampler,
    "create_sampling_session": _create_sampling_session,
    "asample": _asample,
    "cancel_future": _cancel_future,
    "retrieve_future": _retrieve_future,
}


async def _rest(service: Service, path: str) -> Response:
    """What is named by its path: samplers, ends of sessions, checkpoints of a run."""
    match path.split("/"):
        case ["samplers", name]:
            if name not in service.samplers:
                raise Unknown(name)
            return JSONResponse({"sampler_id": name, "base_model": MODEL, "model_path": None})
        case ["sessions", name, "finish"]:
            service.require_session(name)
            service.sessions[name] = False
            for model_id in [m for m in service.models if m.startswith(f"{name}:")]:
                await service.compute.close_trainer(model_id)
            return JSONResponse({})
        case ["training_runs", run, "checkpoints"]:
            found = [
                {
                    "checkpoint_id": entry["id"],
                    "checkpoint_type": entry["type"],
                    "time": entry["time"],
                    "tinker_path": name,
                    "size_bytes": entry["size_bytes"],
                    "expires_at": entry["expires_at"],
                }
                for name, entry in service.checkpoints.items()
                if entry["run"] == run
            ]
            return JSONResponse({"checkpoints": found})
        case _:
            raise Unknown(path)


def create_app(folder: Path) -> Starlette:
    """The application; tests steer it under `/test`."""
    folder.mkdir(parents=True, exist_ok=True)
    service = Service(folder)

    async def api(request: Request) -> Response:
        path: str = request.path_params["path"]
        service.counts[path] += 1
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"detail": "no such key"}, 401)
        refusal = service.faults.take(path, "status")
        if refusal is not None:
            return JSONResponse({"detail": refusal.detail}, refusal.status)
        raw = await request.body()
        try:
            if path in ROUTES:
                body = raw if path == "forward_backward" else json.loads(raw or b"{}")
                answer = await ROUTES[path](service, body)
            else:
                answer = await _rest(service, path)
        except Unknown as error:
            return JSONResponse({"detail": f"not found: {error}"}, 404)
        except Ended as error:
            return JSONResponse({"detail": f"session {error} has ended"}, 410)
        return Dropped() if service.faults.take(path, "drop") else answer

    async def fault(request: Request) -> Response:
        service.faults.add(Fault(**await request.json()))
        return JSONResponse({})

    async def reset(request: Request) -> Response:
        service.faults.clear()
        return JSONResponse({})

    async def counts(request: Request) -> Response:
        return JSONResponse(dict(service.counts))

    async def forget(request: Request) -> Response:
        service.checkpoints.clear()
        service.write()
        return JSONResponse({})

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with service.compute:
            yield

    routes = [
        Route("/api/v1/{path:path}", api, methods=["GET", "POST", "DELETE", "PUT"]),
        Route("/test/fault", fault, methods=["POST"]),
        Route("/test/reset", reset, methods=["POST"]),
        Route("/test/counts", counts),
        Route("/test/forget", forget, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)
