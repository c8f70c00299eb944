"""An episode of the real Claude Code with the plugin, and what its tokens are good for.

A scripted model plays the training agent through the proxy, everything else is real: the tools, the
gateway's rules, training, evaluation. It needs the pinned program in the tool folder, which npm
installs once; where it cannot be had, these tests are skipped.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.client import OperatorClient
from runtime.home import Home
from runtime.learning.packing import pack
from runtime.native import engines
from specs import evidence
from specs.errors import Unavailable
from tests.e2e import episode
from tests.e2e.support import Stack, until_sealed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.sandbox,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """A running stack with the held-out dataset, and a model cache of its own."""
    try:
        engines.install()
    except Unavailable as error:
        pytest.skip(str(error))
    with (
        tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        made = Stack(Path(name))
        patch.setenv("PRACTICUM_MODELS", str(made.root / "models"))
        up = made.run("up")
        assert up.code == 0, up.err
        episode.prepare(made)
        yield made
        down = made.run("down")
        assert down.code == 0, down.err
        assert not made.processes()


async def test_the_journey_earns_one_and_its_tokens_could_be_trained_on(
    stack: Stack,
) -> None:
    work = episode.worked(stack, "honest", episode.scenario())
    assert work.outcome == "completed", work.said
    sealed = await until_sealed(stack.home, work.session)
    report = episode.verdict(stack, work.folder, work.session)
    assert report["reasons"] == []
    assert (report["reward"], report["result"]) == (1, "checkpoint")
    assert report["quality"]["difference"]["n"] == len(episode.HELD_OUT)

    assert sealed.seal is not None and sealed.seal.object is not None
    async with OperatorClient.at(Home.at(stack.home)) as gateway:
        calls = evidence.interactions(await gateway.object(sealed.seal.object))
    main = [call for call in calls if not call.intent.agent]
    assert len(main) < len(calls), "the reviewer's own calls are there too"
    for chain in (main, [call for call in calls if call.intent.agent]):
        packed = pack(chain)
        assert len(packed) == 1, [call.span for call in chain]
        assert packed[0].trained_tokens == sum(len(call.output) for call in chain)
