"""A slow or dead object store slows publication, never answers, until the stage is full.

Then calls are refused before anything of them exists: nothing is lost (invariants 2 and 12).
"""

import errno
from pathlib import Path

import anyio
import pytest

from proxy import sealing
from proxy.sealing import Sealer
from proxy.spool import Key, Spool
from specs import evidence
from specs.errors import ErrorCode, Internal, PracticumError, Unavailable
from specs.interaction import CallState
from tests.proxy.world import Dice, TestGateway, World, echo, until, user, world

pytestmark = pytest.mark.anyio


async def _seal_all(stack: World, trials: list[str]) -> None:
    async with anyio.create_task_group() as tasks:
        for trial in trials:
            tasks.start_soon(stack.seal, trial)


async def test_answers_do_not_wait_for_the_object_store(short_dir: Path) -> None:
    async with world(short_dir, gateway=TestGateway(), compute=Dice(seed=1)) as stack:
        gateway = stack.gateway
        ended = [gateway.claims() for _ in range(sealing.PUBLISHERS + 3)]
        for claims in ended:
            await stack.harness(**claims).say([user("u")])
        gateway.store_gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_seal_all, stack, [claims["trial"] for claims in ended])
            await until(lambda: len(list(stack.spool.glob("*.seal.json"))) == len(ended))
            harness = stack.harness()
            first = await harness.say([user("u")])
            await harness.say([user("u"), echo(first), user("v")])
            assert not gateway.commits
            gateway.store_gate.set()
        assert len(gateway.commits) == len(ended)
        assert all(seal.complete for seal in gateway.commits)
        assert len(list(stack.spool.glob("*.seg"))) == 1


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("the store is full", code=ErrorCode.STORE_UNAVAILABLE),
        Internal("the store answered 500"),
    ],
)
async def test_a_full_stage_refuses_calls_until_evidence_is_published(
    short_dir: Path, error: PracticumError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "RETRY_SEC", 0.05)
    async with world(short_dir, compute=Dice(["x" * 500] * 100), stage=40_000) as stack:
        gateway = stack.gateway
        gateway.store_error = error
        trials = [gateway.claims() for _ in range(60)]
        statuses: list[int] = []
        for claims in trials:
            answer = await stack.harness(**claims).post([user("u")])
            statuses.append(answer.status_code)
            if answer.status_code == 200:
                refused = await stack.seal(claims["trial"])
                assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
        answered = statuses.count(200)
        assert 5 < answered < 60 and statuses == [200] * answered + [529] * (60 - answered)
        gateway.store_error = None
        await until(lambda: len(gateway.commits) == answered)
        assert (await stack.harness(**trials[-1]).post([user("u")])).status_code == 200
        (call,) = stack.interactions(trials[-1]["trial"])
    assert call.answer is not None
    assert all(seal.complete and seal.states[CallState.ANSWERED] == 1 for seal in gateway.commits)
    for seal in gateway.commits:
        assert seal.object is not None
        assert len(evidence.interactions(gateway.objects[seal.object])) == 1


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        (Spool, "write_file", OSError(errno.ENOSPC, "No space left on device")),
        (Spool, "remove", OSError(errno.EIO, "Input/output error")),
        (Sealer, "_recorded", OSError(errno.EIO, "Input/output error")),
        (TestGateway, "upload_file", FileNotFoundError(errno.ENOENT, "No such file")),
        (TestGateway, "commit_evidence", RuntimeError("nobody thought of this")),
    ],
    ids=["record", "remove", "read", "upload", "other"],
)
async def test_what_fails_in_the_background_fails_for_its_own_trial_and_for_now(
    short_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    name: str,
    error: Exception,
) -> None:
    """Invariant 16: the others go on, and the next attempt hands the evidence over."""
    monkeypatch.setattr(sealing, "RETRY_SEC", 0.05)
    failures = 0

    def fail(*_: object, **__: object) -> None:
        nonlocal failures
        failures += 1
        raise error

    async with world(short_dir) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        gateway.store_error = Unavailable("the store is away")
        assert (await stack.seal(claims["trial"])).status_code == 503
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, fail)
            gateway.store_error = None
            await until(lambda: failures >= 2)
            assert (await stack.harness().post([user("v")])).status_code == 200
        await until(lambda: not (stack.spool / f"{claims['trial']}.1.seg").exists())
        assert gateway.commits[-1].complete
        assert (await stack.seal(claims["trial"])).status_code == 200


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize("name", ["write_file", "remove"])
async def test_a_seal_that_the_disk_fails_is_completed_by_a_repetition_or_in_the_background(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, name: str, repeated: bool
) -> None:
    monkeypatch.setattr(sealing, "RETRY_SEC", 0.05)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        with monkeypatch.context() as patch:
            patch.setattr(Spool, name, full)
            failed = await stack.seal(claims["trial"])
        assert (failed.status_code, failed.json()["code"]) == (503, "store_unavailable")
        if repeated:
            assert (await stack.seal(claims["trial"])).json()["complete"]
        await until(lambda: not list(stack.spool.glob("*.seg")))
        (seal,) = stack.gateway.commits
        assert seal.complete


async def test_evidence_of_an_unknown_trial_that_cannot_be_removed_is_tried_again(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 12."""
    monkeypatch.setattr(sealing, "RETRY_SEC", 0.05)
    async with world(short_dir) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
    del gateway.trials[claims["trial"]]
    remove, failures = Spool.remove, [OSError(errno.EIO, "Input/output error")] * 2

    def at_last(spool: Spool, key: Key) -> None:
        if failures:
            raise failures.pop()
        remove(spool, key)

    monkeypatch.setattr(Spool, "remove", at_last)
    async with world(short_dir, gateway=gateway) as stack:
        await until(lambda: not list(stack.spool.glob("*.seg")))
        assert not failures
        assert (await stack.harness().post([user("v")])).status_code == 200


async def test_a_seal_that_cannot_be_read_does_not_keep_the_proxy_from_starting(
    short_dir: Path,
) -> None:
    """Invariant 16: its trial stays sealed, and every other one goes on."""
    async with world(short_dir) as stack:
        gateway, claims, other = stack.gateway, stack.gateway.claims(), stack.gateway.claims()
        await stack.seal(claims["trial"])
    (short_dir / "spool" / f"{claims['trial']}.1.seal.json").write_bytes(b"{")
    async with world(short_dir, gateway=gateway) as stack:
        assert (await stack.harness(**claims).post([user("u")])).status_code == 403
        assert (await stack.harness(**other).post([user("u")])).status_code == 200


async def test_the_stage_is_counted_again_after_a_restart(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["x" * 500] * 9)) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        for number in range(8):
            await stack.harness(**claims).say([user(f"u{number}")])
    async with world(short_dir, gateway=gateway, stage=10_000) as stack:
        assert (await stack.harness().post([user("u")])).status_code == 529
        await stack.seal(claims["trial"])
        assert (await stack.harness().post([user("u")])).status_code == 200


async def test_a_torn_tail_is_not_uploaded(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["a", "b"])) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        path = stack.spool / f"{claims['trial']}.1.seg"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    async with world(short_dir, gateway=gateway) as stack:
        seal = (await stack.seal(claims["trial"])).json()
    assert gateway.objects[seal["object"]] == whole and seal["complete"]
