"""The Tinker backend: the compute protocol over the unmodified SDK of the training service.

This part trains; `tinker_sampling` samples.

What is durable here is named: adapters and states are documents that name saves at the service
(`tinker_refs`), kept in the same store and uploaded like the files of local models. Dropping a
state forgets our copy of its name; the save stays at the service, for as long as `keep_sec` says,
because the document in the object store still names it.

Each trainer has a session of its own, hence a training run that nobody else writes to. Its end
is decided here: a trainer is *lost* when an operation fails in a way that leaves its gradients
or weights in doubt, and what was not saved by then counts as never done (invariant 8).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import numpy as np
import tinker
from tinker import APIFuture

from runtime.compute.losses import NO_CONFIG, Loss, LossConfig, clip_range
from runtime.compute.protocol import (
    AdamParams,
    Datum,
    ForwardResult,
    SavedBytes,
    TrainerInfo,
    TrainerInit,
)
from runtime.compute.store import Store
from runtime.compute.tinker_data import (
    check_adam,
    check_data,
    logprobs_of,
    to_adam,
    to_datum,
    to_loss,
)
from runtime.compute.tinker_errors import fails_alone, not_there
from runtime.compute.tinker_refs import Intent, Kind, Ledger, Weights, expired, read_weights
from runtime.compute.tinker_sampling import Samplers
from runtime.compute.tinker_service import Observer, Service
from runtime.compute.waits import Doing
from specs.errors import (
    Conflict,
    ErrorCode,
    ErrorObject,
    Forbidden,
    InvalidInput,
    NotFound,
    PracticumError,
    Unavailable,
)
from specs.model import LoraSpec

_log = logging.getLogger(__name__)

ALPHA = 32.0
"""By what the service scales every adapter."""
ONE_REQUEST = (1024, 4_000_000)
"""Datums and bytes up to which the SDK sends a forward call whole; larger ones in parts, of
which one may fail after others were applied."""


@dataclass(eq=False, slots=True)
class _Live:
    """An open trainer: its client, what is behind its weights, and its place in the queue."""

    id: str
    init: TrainerInit
    lora: LoraSpec
    session: tinker.ServiceClient
    client: tinker.TrainingClient
    steps: int
    observer: Observer = field(default_factory=Observer)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    closed: bool = False
    lost: str | None = None
    """Why it can no longer be used, where that is not because it was closed."""
    saves: int = 0
    state_path: str | None = None
    """A save of exactly the current weights."""
    adapter: SavedBytes | None = None
    """The adapter of exactly the current weights."""

    def moved(self) -> None:
        """The weights are no longer those that were saved."""
        self.state_path, self.adapter = None, None


class TinkerCompute:
    """Sampling and LoRA training of the models with backend `tinker`.

    The part of `protocol.Compute` that needs the service; `router.LocalCompute` adds the rest.
    """

    def __init__(self, store: Store, ledger: Ledger, service: Service, *, incarnation: str) -> None:
        self._store = store
        self._ledger = ledger
        self._service = service
        self._incarnation = incarnation
        self._trainers: dict[str, _Live] = {}
        self._saving: set[str] = set()
        self._opening: dict[str, asyncio.Lock] = {}
        self._running: set[asyncio.Task[object]] = set()
        self.samplers = Samplers(store, service)
        self.created = 0

    def __contains__(self, trainer: str) -> bool:
        return trainer in self._trainers

    @property
    def trainers(self) -> tuple[str, ...]:
        """Ids of the open ones."""
        return tuple(self._trainers)

    async def aclose(self) -> None:
        """Finish all sessions; operations under way are given up. Not cancelled half way."""
        with anyio.CancelScope(shield=True):
            for task in tuple(self._running):
                task.cancel()
            sessions = [live.session for live in self._trainers.values()]
            self._trainers.clear()
            async with anyio.create_task_group() as group:
                group.start_soon(self.samplers.aclose)
                for session in sessions:
                    group.start_soon(self._service.end, session)

    async def create_trainer(self, trainer: str, init: TrainerInit) -> TrainerInfo:
        """Open a trainer. Repeating the call returns the same one, another `init` conflicts.

        On cancel a training run may be left at the service, without a trainer.
        """
        async with self._opening.setdefault(trainer, asyncio.Lock()):
            live = self._trainers.get(trainer)
            if live is None:
                live = await self._open(trainer, init)
                self._trainers[trainer] = live
                self.created += 1
            elif live.lost is not None:
                raise _gone(trainer, live.lost)
            elif live.init != init:
                raise Conflict(
                    f"Trainer {trainer} is open with other settings.",
                    object=ErrorObject(type="trainer", id=trainer),
                    next="Close it first, or choose another id.",
                )
            return self._info(live)

    async def _open(self, trainer: str, init: TrainerInit) -> _Live:
        if init.state is not None and init.adapter is not None:
            raise InvalidInput(
                "A trainer starts from an adapter or from a state, not from both.",
                object=ErrorObject(type="trainer"),
                next="Leave one of them out.",
            )
        name = init.base_model
        self._service.models.require_trainable(name)
        weights = await anyio.to_thread.run_sync(self._start, init)
        lora = init.lora if weights is None else weights.lora
        if lora.alpha != ALPHA:
            raise InvalidInput(
                f"The training service scales adapters by alpha {ALPHA:g}, not {lora.alpha:g}.",
                object=ErrorObject(type="plan", pointer="/lora/alpha"),
                next=f"Leave alpha out, or set it to {ALPHA:g}.",
            )
        await self._service.require_offered(name, training=True)
        session = self._service.client(f"trainer {trainer}")
        opened = False
        try:
            async with self._service.explained("open", name, trainer) as entry:
                try:
                    client = await self._service.call(
                        entry, lambda: self._begin(session, init, lora, weights)
                    )
                except Exception as error:
                    if weights is not None and not_there(error):
                        raise expired(weights, "it does not know the path") from error
                    raise
            opened = True
        finally:
            if not opened:
                await self._service.end(session, "errored")
        resumed = weights is not None and weights.kind == "state" and init.with_optimizer
        steps = weights.step if weights is not None and resumed else 0
        live = _Live(trainer, init, lora, session, client, steps)
        live.observer.listen(client, "_queue_state_logger", live.observer)
        return live

    def _start(self, init: TrainerInit) -> Weights | None:
        if init.state is not None:
            return read_weights(self._store.get_state(init.state), "state", init.base_model)
        if init.adapter is not None:
            return read_weights(self._store.get_adapter(init.adapter), "adapter", init.base_model)
        return None

    def _begin(
        self,
        session: tinker.ServiceClient,
        init: TrainerInit,
        lora: LoraSpec,
        weights: Weights | None,
    ) -> APIFuture[tinker.TrainingClient]:
        if weights is None:
            return session.create_lora_training_client(
                self._service.models.configured(init.base_model).model,
                rank=lora.rank,
                seed=lora.seed,
                train_unembed=False,
            )
        if weights.kind == "state" and init.with_optimizer:
            return session.create_training_client_from_state_with_optimizer(weights.path)
        return session.create_training_client_from_state(weights.path)

    async def trainer(self, trainer: str) -> TrainerInfo | None:
        """A live trainer, or None."""
        live = self._trainers.get(trainer)
        return None if live is None or live.closed else self._info(live)

    async def close_trainer(self, trainer: str) -> None:
        """End a trainer after its running operation; queued ones fail.

        Its session is finished as well. A save that was submitted and not answered is looked for
        by the next `find_state`, once.
        """
        live = self._trainers.get(trainer)
        if live is None:
            return
        live.closed = True
        with anyio.CancelScope(shield=True):
            async with live.turn:
                pass
            if self._trainers.pop(trainer, None) is not None:
                self._opening.pop(trainer, None)
                await self._service.end(live.session, "errored" if live.lost else "success")

    async def forward(
        self,
        trainer: str,
        data: Sequence[Datum],
        loss: Loss,
        *,
        backward: bool,
        config: LossConfig = NO_CONFIG,
    ) -> ForwardResult:
        """Forward, and with `backward` add to the accumulated gradient."""
        live = self._live(trainer)
        context = self._service.models.model(live.init.base_model).context_tokens
        check_data(data, loss, context)
        clip_range(loss, config)
        name, given = to_loss(loss), config.given() or None
        size = sum(datum.tokens.nbytes * (2 + len(datum.inputs)) for datum in data)
        whole = len(data) <= ONE_REQUEST[0] and size <= ONE_REQUEST[1]

        async def run(entry: Doing) -> ForwardResult:
            sent = [to_datum(datum, loss) for datum in data]
            method = live.client.forward_backward if backward else live.client.forward
            output = await self._service.result(entry, method(sent, name, given))
            total = float(output.metrics["loss:sum"])
            return ForwardResult(logprobs_of(output, data), total)

        result = await self._run(live, "forward", run, alone=whole or not backward)
        if not np.isfinite(result.loss_sum):
            self._lose(live, "its gradient is not finite")
            raise InvalidInput(
                "The loss is not finite.",
                object=ErrorObject(type="training_call"),
                next="Lower the learning rate, or look for extreme advantages.",
            )
        return result

    async def optim_step(self, trainer: str, params: AdamParams) -> Mapping[str, float]:
        """Apply and clear the accumulated gradient."""
        check_adam(params)
        live = self._live(trainer)

        async def run(entry: Doing) -> Mapping[str, float]:
            live.moved()
            answer = await self._service.result(entry, live.client.optim_step(to_adam(params)))
            live.steps += 1
            return {**(answer.metrics or {}), "step": float(live.steps)}

        return await self._run(live, "step", run, alone=False)

    async def save_state(self, trainer: str, name: str) -> SavedBytes:
        """Save adapter and optimizer state under `name`."""
        live = self._live(trainer)

        async def run(entry: Doing) -> SavedBytes:
            taken = await anyio.to_thread.run_sync(self._store.find_state, name)
            if taken is not None or await anyio.to_thread.run_sync(self._ledger.find, name):
                raise _taken(name)
            intent = Intent(
                name=name,
                trainer=live.id,
                run=live.client.model_id,
                weights=self._weights(live, "state", _path(live, name)),
            )
            self._saving.add(name)
            try:
                await anyio.to_thread.run_sync(self._ledger.write, intent)
                live.state_path = await self._save(live, entry, name)
                return await anyio.to_thread.run_sync(self._settle, intent, live.state_path)
            finally:
                self._saving.discard(name)

        return await self._run(live, "save", run, alone=False)

    async def find_state(self, name: str) -> SavedBytes | None:
        """A state whose save was submitted and never answered, looked for at the service.

        What is not there is void for good, unless its trainer is still about to save it.

        Raises:
            Unavailable: the service cannot be asked.
        """
        intent = await anyio.to_thread.run_sync(self._ledger.find, name)
        if intent is None or intent.void or name in self._saving:
            return None
        try:
            paths = await self._saved(intent)
        except PracticumError as error:
            raise Unavailable(
                f"Whether {name} was saved cannot be asked: {error}",
                code=error.problem.code,
                object=ErrorObject(type="trainer_state", id=name),
                next=error.problem.next,
            ) from error
        if intent.weights.path in paths:
            return await anyio.to_thread.run_sync(self._settle, intent, intent.weights.path)
        void = intent.model_copy(update={"void": True})
        await anyio.to_thread.run_sync(self._ledger.write, void)
        return None

    async def _saved(self, intent: Intent) -> set[str]:
        """The paths that the service holds of an intent's run."""
        model = intent.weights.base_model
        async with self._service.explained("find", model, intent.trainer) as entry:
            try:
                listed = await self._service.call(
                    entry, lambda: self._service.rest().list_checkpoints(intent.run)
                )
            except Exception as error:
                if not not_there(error):
                    raise
                return set()
            return {checkpoint.tinker_path for checkpoint in listed.checkpoints}

    def _settle(self, intent: Intent, path: str) -> SavedBytes:
        """Keep the document of a state that is saved."""
        weights = intent.weights.model_copy(update={"path": path})
        saved = self._store.put_state(intent.name, weights.encode())
        self._ledger.drop(intent.name)
        return saved

    async def save_adapter(self, trainer: str) -> SavedBytes:
        """Save the current adapter; repeating it without a step between gives the same."""
        live = self._live(trainer)

        async def run(entry: Doing) -> SavedBytes:
            if live.adapter is None:
                live.saves += 1
                name = f"adapter-{live.steps}-{live.saves}"
                keep = self._service.models.settings.keep_sec
                saving = live.client.save_weights_for_sampler(name, ttl_seconds=keep)
                sampler = await self._service.result(entry, saving)
                if live.state_path is None:
                    live.state_path = await self._save(live, entry, name)
                weights = self._weights(live, "adapter", live.state_path, sampler.path)
                data = weights.encode()
                live.adapter = await anyio.to_thread.run_sync(self._store.add_adapter, data)
            return live.adapter

        return await self._run(live, "save", run, alone=False)

    async def _save(self, live: _Live, entry: Doing, name: str) -> str:
        keep = self._service.models.settings.keep_sec
        saved = await self._service.result(entry, live.client.save_state(name, ttl_seconds=keep))
        return saved.path

    def _weights(
        self, live: _Live, kind: Kind, path: str, sampler_path: str | None = None
    ) -> Weights:
        keep = self._service.models.settings.keep_sec
        until = None if keep is None else datetime.now(UTC) + timedelta(seconds=keep)
        return Weights(
            kind=kind,
            base_model=live.init.base_model,
            lora=LoraSpec(**live.lora.model_dump()),
            step=live.steps,
            path=path,
            sampler_path=sampler_path,
            expires_at=None if until is None else until.isoformat(),
        )

    async def _run[T](
        self,
        live: _Live,
        operation: str,
        run: Callable[[Doing], Awaitable[T]],
        *,
        alone: bool,
    ) -> T:
        """Run an operation in its turn: cancelled while queued it is dropped, once begun it
        completes. `alone`: the service may refuse the caller's data and change nothing."""
        await live.turn.acquire()
        try:
            if live.closed:
                raise _gone(live.id, live.lost)
            task = asyncio.ensure_future(self._operate(live, operation, run, alone=alone))
        except BaseException:
            live.turn.release()
            raise
        self._running.add(task)
        task.add_done_callback(lambda done: self._done(live, done))
        return await asyncio.shield(task)

    def _done(self, live: _Live, task: "asyncio.Task[object]") -> None:
        self._running.discard(task)
        live.turn.release()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.info("trainer %s: %s", live.id, error)

    async def _operate[T](
        self,
        live: _Live,
        operation: str,
        run: Callable[[Doing], Awaitable[T]],
        *,
        alone: bool,
    ) -> T:
        model = live.init.base_model
        entering = self._service.waits.doing(operation, model, live.id)
        with entering as entry, live.observer.watching(entry):
            try:
                return await run(entry)
            except (Conflict, InvalidInput):
                raise
            except Exception as error:
                explained = self._service.explain(error, operation)
                if alone and fails_alone(error):
                    raise explained from error
                self._lose(live, explained.problem.detail)
                if isinstance(explained, (InvalidInput, Forbidden)):
                    raise explained from error
                raise _gone(live.id, live.lost) from error

    def _lose(self, live: _Live, why: str) -> None:
        """From now on the trainer takes nothing: nobody knows what it holds."""
        _log.warning("trainer %s is lost: %s", live.id, why)
        live.closed, live.lost = True, why

    def _live(self, trainer: str) -> _Live:
        live = self._trainers.get(trainer)
        if live is None or live.closed:
            raise _gone(trainer, None if live is None else live.lost)
        return live

    def _info(self, live: _Live) -> TrainerInfo:
        return TrainerInfo(
            id=live.id,
            incarnation=self._incarnation,
            base_model=live.init.base_model,
            lora=live.lora,
            steps=live.steps,
            kept_sec=self._service.models.settings.keep_sec,
        )


def _path(live: _Live, name: str) -> str:
    """Where the service puts a state of that name."""
    return f"tinker://{live.client.model_id}/weights/{name}"


def _taken(name: str) -> Conflict:
    return Conflict(
        f"The trainer state {name!r} exists already, or may come to exist.",
        code=ErrorCode.STATE_CONFLICT,
        object=ErrorObject(type="trainer_state", id=name),
        next="Choose another name, or read the state that is there.",
    )


def _gone(trainer: str, why: str | None) -> PracticumError:
    cause = "it does not live in this backend process" if why is None else why
    return NotFound(
        f"Trainer {trainer} cannot be used: {cause}.".replace("..", "."),
        code=ErrorCode.TRAINER_MISSING,
        object=ErrorObject(type="trainer", id=trainer),
        next="Open it again from its last saved state.",
    )
