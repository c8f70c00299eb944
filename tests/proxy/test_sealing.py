"""The end of a trial's evidence, whatever happens around it (invariants 2 and 12)."""

import errno
import os
import time
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest

from proxy.calls import Calls
from proxy.sealing import KEEP_SEC, seal_of
from proxy.spool import Key
from specs import evidence
from specs.canonical import digest_bytes
from specs.ids import Prefix, new_id
from specs.interaction import CallState, Failure
from tests.proxy.world import Dice, TestGateway, until, user, world
from tests.runtime.learning.support import Turn, record

pytestmark = pytest.mark.anyio


async def test_a_trial_without_calls_seals_complete_and_empty(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        seal = (await stack.seal(claims["trial"])).json()
        assert seal["complete"] and seal["interactions"] == 0 and seal["object"] is None
        assert (await stack.seal(claims["trial"])).json() == seal
        assert (await stack.harness(**claims).post([user("u")])).status_code == 403


async def test_a_call_under_way_is_waited_for_briefly_and_then_lost(short_dir: Path) -> None:
    async with world(short_dir, compute=Dice(["quick", "slow"])) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        await harness.say([user("u")])
        stack.compute.gate = anyio.Event()
        statuses: list[int] = []

        async def ask() -> None:
            statuses.append((await harness.post([user("v")])).status_code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await until(lambda: len(stack.compute.prompts) == 2)
            await stack.seal(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    assert statuses == [529]
    assert seal["states"] == {"refused": 0, "answered": 1, "superseded": 0, "lost": 1}
    assert not seal["complete"]


async def test_a_call_that_ends_within_the_grace_is_kept(short_dir: Path) -> None:
    async with world(short_dir, grace=20) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        stack.compute.delay = 0.3
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.say, [user("v")])
            await until(lambda: len(stack.compute.prompts) == 1)
            await stack.seal(claims["trial"])
        seal = (await stack.seal(claims["trial"])).json()
    assert seal["complete"] and seal["states"]["answered"] == 1


async def test_a_refusal_that_races_a_seal_is_on_no_record_of_another_trial(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its body is being compressed when the trial ends and another takes its file's number."""
    reached, go_on = anyio.Event(), anyio.Event()

    async def compress(_: Calls, body: bytes) -> bytes:
        if REFUSED.encode() in body:
            reached.set()
            await go_on.wait()
        return zlib.compress(body)

    monkeypatch.setattr(Calls, "_compress", compress)
    async with world(short_dir) as stack:
        ended, other = stack.gateway.claims(), stack.gateway.claims()
        harness = stack.harness(**ended)
        await harness.say([user("u")])
        statuses: list[int] = []

        async def ask() -> None:
            refused = await harness.post([user(REFUSED)], max_tokens="many")
            statuses.append(refused.status_code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await reached.wait()
            await stack.seal(ended["trial"])
            await stack.harness(**other).say([user("u")])
            go_on.set()
        await stack.harness(**other).say([user("v")])
        segment = stack.segment(other["trial"])
        assert {frame.record.kind for frame, _ in evidence.frames(segment)} == {
            "intent", "answer", "delivered",
        }  # fmt: skip
        await stack.seal(other["trial"])
    assert statuses == [400]
    for claims in (ended, other):
        seal = stack.gateway.seals[claims["trial"], 1]
        assert (seal.states[CallState.REFUSED], seal.complete) == (0, True)


REFUSED = "what is refused"


async def test_concurrent_seals_are_one(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        answers: list[bytes] = []

        async def seal() -> None:
            answers.append((await stack.seal(claims["trial"])).content)

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(seal)
        assert len(set(answers)) == 1 and len(stack.gateway.commits) == 1


async def test_a_seal_of_another_run_or_of_nonsense_is_refused(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        wrong = await stack.seal(claims["trial"], run=new_id(Prefix.RUN))
        assert (wrong.status_code, wrong.json()["code"]) == (409, "state_conflict")
        assert wrong.headers["content-type"] == "application/problem+json"
        assert (await stack.seal("trl_x", run=claims["run"])).status_code == 404
        assert (await stack.seal("..%2f..", run=claims["run"])).status_code == 404
        assert (await stack.seal(claims["trial"])).status_code == 200
        wrong = await stack.seal(claims["trial"], run=new_id(Prefix.RUN))
        assert wrong.status_code == 409
        for other in ("run_" + "0" * 32, "run_" + "f" * 32):
            wrong = await stack.seal(claims["trial"], run=other)
            assert (wrong.status_code, wrong.json()["code"]) == (409, "state_conflict")


@pytest.mark.parametrize(
    ("kind", "counts"),
    [("intent", {CallState.ANSWERED: 1}), ("answer", {CallState.ANSWERED: 1, CallState.LOST: 1})],
)
async def test_a_passing_disk_error_costs_its_calls_and_not_the_seal(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, kind: str, counts: dict[CallState, int]
) -> None:
    """A call whose intent was not kept was never sampled; without its answer it is lost."""
    write = os.write

    def full(file: int, data: bytes) -> int:
        if f'"kind":"{kind}"'.encode() in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        harness = stack.harness(**claims)
        await harness.say([user("u")])
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            assert (await harness.post([user("v")])).status_code == 529
        assert (await harness.post([user("w")])).status_code == 529  # the segment takes no more
        assert (await stack.seal(claims["trial"])).status_code == 200
        (seal,) = stack.gateway.commits
        assert {state: count for state, count in seal.states.items() if count} == counts
        assert seal.complete is (CallState.LOST not in counts)
        assert not list(stack.spool.glob("*.seg"))


async def test_fences_are_sealed_apart(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        claims = stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        await stack.harness(**{**claims, "fence": 2}).say([user("u")])
        first = (await stack.seal(claims["trial"], fence=1)).json()
        second = (await stack.seal(claims["trial"], fence=2)).json()
    assert (first["fence"], second["fence"]) == (1, 2)
    assert first["interactions"] == second["interactions"] == 1


async def test_a_seal_outlives_a_gateway_that_is_away_and_a_restart(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        gateway, claims = stack.gateway, stack.gateway.claims()
        await stack.harness(**claims).say([user("u")])
        gateway.down = True
        assert (await stack.seal(claims["trial"])).status_code == 503
        assert (await stack.harness(**claims).post([user("v")])).status_code == 403
        assert list(stack.spool.glob("*.seg"))
    gateway.down = False
    async with world(short_dir, gateway=gateway) as stack:
        await until(lambda: bool(gateway.commits))
        seal = (await stack.seal(claims["trial"])).json()
        assert not list(stack.spool.glob("*.seg"))
    assert seal == gateway.commits[0].model_dump(mode="json")
    async with world(short_dir, gateway=gateway) as stack:
        assert (await stack.seal(claims["trial"])).json() == seal


async def test_leftovers_of_trials_that_are_over_go_at_the_next_start(short_dir: Path) -> None:
    """Invariant 12: sealed, handed over, removed; a trial that nobody knows is removed."""
    async with world(short_dir) as stack:
        gateway = stack.gateway
        over, unknown, going = gateway.claims(), gateway.claims(), gateway.claims()
        for claims in (over, unknown, going):
            await stack.harness(**claims).say([user("u")])
    gateway.over |= {over["trial"]}
    del gateway.trials[unknown["trial"]]
    async with world(short_dir, gateway=gateway) as stack:
        await until(lambda: len(list(stack.spool.glob("*.seg"))) == 1)
        assert (stack.spool / f"{going['trial']}.1.seg").exists()
        await stack.harness(**going).say([user("v")])
    assert [seal.trial for seal in gateway.commits] == [over["trial"]]


async def test_old_seals_are_forgotten(short_dir: Path) -> None:
    async with world(short_dir) as stack:
        gateway, old, new = stack.gateway, stack.gateway.claims(), stack.gateway.claims()
        for claims in (old, new):
            await stack.seal(claims["trial"])
        path = stack.spool / f"{old['trial']}.1.seal.json"
    then = time.time() - KEEP_SEC - 60
    os.utime(path, (then, then))
    async with world(short_dir, gateway=gateway) as stack:
        assert [one.name for one in stack.spool.glob("*.json")] == [f"{new['trial']}.1.seal.json"]


def test_a_damaged_segment_seals_incomplete() -> None:
    seal = seal_of(b"\x07" * 100, Key(new_id(Prefix.TRIAL), 1), new_id(Prefix.RUN))
    assert not seal.complete and seal.object is None


async def test_calls_of_many_trials_at_once_are_each_complete(short_dir: Path) -> None:
    async with world(short_dir, gateway=TestGateway(), compute=Dice(seed=3)) as stack:
        trials = [stack.gateway.claims() for _ in range(8)]

        async def work(claims: dict[str, object]) -> None:
            harness = stack.harness(**claims)
            for number in range(4):
                await harness.say([user(f"u{number}")])

        async with anyio.create_task_group() as tasks:
            for claims in trials:
                tasks.start_soon(work, claims)
        for claims in trials:
            seal = (await stack.seal(claims["trial"])).json()
            assert seal["complete"] and seal["states"]["answered"] == 4


async def test_a_call_and_a_seal_that_race_after_a_restart_agree(short_dir: Path) -> None:
    """Whoever is answered is in the sealed object; whoever is not is refused."""
    async with world(short_dir) as stack:
        gateway = stack.gateway
        trials = [gateway.claims() for _ in range(6)]
        for claims in trials:
            await stack.harness(**claims).say([user("u")])
    async with world(short_dir, gateway=gateway, grace=20) as stack:
        answered: dict[str, bool] = {}

        async def ask(claims: dict[str, object]) -> None:
            response = await stack.harness(**claims).post([user("v")])
            assert response.status_code in (200, 403)
            answered[str(claims["trial"])] = response.status_code == 200

        async with anyio.create_task_group() as tasks:
            for claims in trials:
                tasks.start_soon(ask, claims)
                tasks.start_soon(stack.seal, claims["trial"])
    for claims in trials:
        seal = gateway.seals[claims["trial"], 1]
        assert seal.complete and seal.interactions == 1 + answered[claims["trial"]]


KEY, RUN = Key(new_id(Prefix.TRIAL), 3), new_id(Prefix.RUN)


def _kept(*turns: Turn) -> bytes:
    return record(turns, trial=KEY.trial, run=RUN, fence=KEY.fence).data


def _failed(data: bytes, **changes: Any) -> bytes:
    """The segment with one more failure, of its last call."""
    *_, (last, _) = evidence.frames(data)
    values: dict[str, Any] = {"interaction": last.record.interaction, "at": "t", "code": "internal"}
    return data + evidence.encode(Failure(detail="", **{**values, **changes}), {})


ONE, TWO = Turn([1, 2], [3]), Turn([4], [5, 6], extends=0)


@pytest.mark.parametrize(
    ("data", "counts", "complete"),
    [
        (b"", {}, True),
        (_kept(ONE, TWO), {CallState.ANSWERED: 2}, True),
        (_kept(ONE, Turn([4], [5], superseded=True)),
         {CallState.ANSWERED: 1, CallState.SUPERSEDED: 1}, True),
        (_kept(ONE, Turn([4], [], lost=True)), {CallState.ANSWERED: 1, CallState.LOST: 1}, False),
    ],
)  # fmt: skip
def test_a_seal_counts_each_call_by_how_it_ended(
    data: bytes, counts: dict[CallState, int], complete: bool
) -> None:
    seal = seal_of(data, KEY, RUN)
    assert {state: count for state, count in seal.states.items() if count} == counts
    assert set(seal.states) == set(CallState)
    assert (seal.trial, seal.run, seal.fence) == (KEY.trial, RUN, KEY.fence)
    assert (seal.interactions, seal.complete) == (sum(counts.values()), complete)
    assert (seal.size, seal.object) == (len(data), digest_bytes(data) if data else None)


def test_a_seal_counts_prompt_and_output_tokens_and_leaves_a_torn_tail_out() -> None:
    data = _kept(ONE, TWO)
    seal = seal_of(data + b"\x01half", KEY, RUN)
    assert (seal.prompt_tokens, seal.output_tokens) == (2 + 4, 3)
    assert (seal.size, seal.object, seal.complete) == (len(data), digest_bytes(data), True)


def test_a_call_that_the_backend_refused_whole_is_none_and_loses_nothing() -> None:
    """A failure without its intent is damage, whatever it says."""
    begun = b"".join(
        evidence.encode(frame.record, frame.arrays)
        for frame, _ in list(evidence.frames(_kept(ONE, TWO)))[:3]
    )
    refused = seal_of(_failed(begun, sampled=False), KEY, RUN)
    assert (refused.states[CallState.REFUSED], refused.interactions) == (1, 1)
    assert refused.complete
    lost = seal_of(_failed(begun), KEY, RUN)
    assert (lost.states[CallState.LOST], lost.states[CallState.REFUSED]) == (1, 0)
    assert not lost.complete
    stray = _failed(_kept(ONE), interaction=new_id(Prefix.INTERACTION), sampled=False)
    damaged = seal_of(stray, KEY, RUN)
    assert (damaged.states[CallState.REFUSED], damaged.complete) == (0, False)
