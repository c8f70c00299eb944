"""The end of a trial's evidence, whatever happens around it (invariants 2 and 12)."""

import os
import time
from pathlib import Path

import anyio
import pytest

from proxy.sealing import KEEP_SEC, seal_of
from proxy.spool import Key
from specs.ids import Prefix, new_id
from tests.proxy.world import Dice, TestGateway, until, user, world

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
