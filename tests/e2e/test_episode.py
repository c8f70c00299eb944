"""Episodes of the real Claude Code with the plugin: kept, cheated in, and taken up again.

A scripted model plays the training agent through the proxy, everything else is real: the tools, the
gateway's rules, training, evaluation. It needs the pinned program in the tool folder, which npm
installs once; where it cannot be had, these tests are skipped.
"""

import json
from collections.abc import Callable, Iterator

import pytest

from runtime.learning.packing import pack
from runtime.native import engines
from specs.episode import PROMISES
from tests.e2e import episode
from tests.e2e.episode import CHEATS, Replies
from tests.e2e.support import Stack, obtained, own_stack, until_sealed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack with the held-out dataset, and a model cache of its own."""
    obtained(engines.install)
    with own_stack() as made:
        up = made.run("up")
        assert up.code == 0, up.err
        episode.prepare(made)
        yield made


async def test_the_shipped_episode_earns_one_and_its_tokens_could_be_trained_on(
    stack: Stack,
) -> None:
    attempt = episode.in_a_sandbox(stack)
    rewards = attempt.trial["assessment"]["rewards"]
    checks = {name: value for name, value in rewards.items() if name.startswith("check_")}
    assert checks == {f"check_{name}": 1.0 for name in PROMISES}
    assert "quality_difference" in rewards
    calls, refused = await attempt.recorded()
    assert not refused and attempt.verified["interactions"] == len(calls)
    main = [call for call in calls if not call.intent.agent]
    assert len(main) < len(calls), "the reviewer's own calls are there too"
    for chain in (main, [call for call in calls if call.intent.agent]):
        packed = pack(chain)
        assert len(packed) == 1, [call.span for call in chain]
        sampled = sum(len(call.output) for call in chain)
        assert packed[0].trained_tokens == sampled


async def test_the_journey_with_the_plugin_from_the_local_marketplace_earns_one(
    stack: Stack,
) -> None:
    work = episode.worked(stack, "honest", episode.scenario())
    assert work.outcome == "completed", work.said
    await until_sealed(stack.home, work.session)
    report = episode.verdict(stack, work.folder, work.session)
    assert report["reasons"] == []
    assert (report["reward"], report["result"]) == (1, "checkpoint")
    assert report["quality"]["difference"]["n"] == len(episode.HELD_OUT)


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
async def test_a_cheat_earns_nothing_and_the_reason_is_named(
    stack: Stack, cheat: Callable[[Replies], Replies]
) -> None:
    work = episode.worked(stack, cheat.__name__.replace("_", "-"), episode.changed(cheat))
    assert work.outcome == "completed", work.said
    await until_sealed(stack.home, work.session)
    report = episode.verdict(stack, work.folder, work.session)
    assert report["reward"] == 0
    named = report["reasons"]
    for beginning in CHEATS[cheat]:
        assert any(reason.startswith(beginning) for reason in named), json.dumps(named, indent=1)


async def test_a_new_agent_goes_on_from_the_journal_and_repeats_nothing(stack: Stack) -> None:
    """The first is killed in the middle of training, with everything that it had started."""
    folder = stack.root / "killed"
    played = episode.changed(episode.with_long_training)
    words = episode.launch(stack, "killed", played, folder)
    first, run = episode.killed_in_training(stack, words, folder)
    assert stack.json("run", "show", run)["state"] == "running", "it goes on without its agent"

    following = episode.changed(lambda it: episode.from_the_journal(episode.with_long_training(it)))
    word = "Go on with the work in this folder. What was done is in the journal, ./journal."
    second = episode.ended(stack, episode.launch(stack, "heir", following, folder, word), folder)
    assert second.outcome == "completed", second.said
    await until_sealed(stack.home, second.session)
    report = episode.verdict(stack, folder, first, second.session, updates=episode.LONG)
    assert report["reasons"] == []
    runs = stack.json("construction", "show", report["construction"])["runs"]
    assert [one["run"] for one in runs if one["kind"] == "supervised"] == [run]
    assert sorted(one["kind"] for one in runs) == ["evaluation", "evaluation", "supervised"]
