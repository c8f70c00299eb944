"""Trying a model and reading what a trial said and left, over a run that was really learnt from."""

import pytest

from specs import evidence
from specs.errors import ErrorCode, InvalidInput, NotFound
from specs.ids import Prefix, new_id
from tests.runtime.learning.live import PLAN, Live
from tests.tools.ground import ask
from tools.artifacts import ArtifactPage
from tools.evidence import EvidenceView
from tools.sample import SampleView
from tools.transcript import TranscriptPage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(900)]
CHAT = {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]}


async def test_a_run_is_read_and_its_checkpoint_tried(live: Live) -> None:
    run = await live.start({**PLAN, "num_batches": 1})
    await live.work(run)
    await _transcript(live, run)
    await _no_artifacts(live, run)
    (checkpoint,) = (await live.stack.operator.checkpoints(run)).items
    await _samples(live, checkpoint.id, checkpoint.adapter)


async def _transcript(live: Live, run: str) -> None:
    """Every page joined is every new token once, as the evidence has it."""
    trial = (await live.stack.operator.trials(run)).items[0]
    assert trial.settled is not None and trial.settled.seal is not None
    calls = evidence.interactions(await live.stack.operator.object(trial.settled.seal.object or ""))
    named = {"run": run, "trial": trial.id}
    pages: list[TranscriptPage] = []
    cursor = None
    while True:
        page, text = await ask(
            live,
            "run transcript",
            TranscriptPage,
            **named,
            tokens=True,
            token_limit=3,
            cursor=cursor,
        )
        assert sum(one.end - one.start for one in page.items) <= 3
        assert page.spelled and page.items[0].text in text
        pages.append(page)
        cursor = page.next
        if cursor is None:
            break
    items = [one for page in pages for one in page.items]
    for call in calls:
        mine = [one for one in items if one.call == call.intent.sequence]
        said = [number for one in mine if one.part == "output" for number in one.ids or []]
        assert said == call.output.tolist()
        places = [place for one in mine for place in range(one.start, one.end)]
        new = 0 if call.intent.parent is None else len(calls[0].prompt) + len(calls[0].output)
        assert places == list(range(new, len(call.prompt) + len(call.output)))
    span, _ = await ask(
        live, "run transcript", TranscriptPage, **named, first=1, start=1, end=4, tokens=True
    )
    whole = [*calls[1].prompt, *calls[1].output]
    assert [n for one in span.items for n in one.ids or []] == whole[1:4]
    last, _ = await ask(live, "run transcript", TranscriptPage, **named, first=2, last=2)
    assert {one.call for one in last.items} == {2}
    shown, _ = await ask(live, "run interactions", EvidenceView, **named)
    assert len(shown.items) == last.calls
    for wrong in ({"last": 2, "end": 3}, {"cursor": "next"}):
        with pytest.raises(InvalidInput):
            await ask(live, "run transcript", TranscriptPage, **named, **wrong)


async def _no_artifacts(live: Live, run: str) -> None:
    trial = (await live.stack.operator.trials(run)).items[0].id
    page, text = await ask(live, "run artifacts", ArtifactPage, run=run, trial=trial)
    assert (page.items, text) == ([], "(none)")
    with pytest.raises(NotFound, match="left no file"):
        await ask(live, "run artifacts", ArtifactPage, run=run, trial=trial, file="a")


async def _samples(live: Live, checkpoint: str, adapter: str) -> None:
    wanted = {"chat": CHAT, "seed": 5, "max_tokens": 6, "tokens": True}
    base, _ = await ask(live, "model sample", SampleView, model="tiny", **wanted)
    again, text = await ask(live, "model sample", SampleView, model="tiny", **wanted)
    tried, _ = await ask(live, "model sample", SampleView, model=checkpoint, **wanted)
    assert base == again
    assert (base.adapter, tried.adapter, tried.base_model) == (None, adapter, "tiny")
    assert base.prompt_ids == tried.prompt_ids
    (one,), (other,) = base.answers, tried.answers
    assert one.ids is not None and one.logprobs is not None and one.text in text
    assert one.output_tokens == len(one.ids) == len(one.logprobs) <= 6
    assert one.logprob_sum == pytest.approx(sum(one.logprobs))
    assert one.logprobs != other.logprobs
    two, _ = await ask(
        live, "model sample", SampleView, model="tiny", prompt="Hi", samples=2, max_tokens=3
    )
    raw, _ = await ask(
        live, "model sample", SampleView, model="tiny", prompt="Hi", raw=True, max_tokens=3
    )
    assert len(two.answers) == 2
    assert raw.prompt_tokens < two.prompt_tokens and raw.renderer is None
    cases = [
        ({"model": "tiny"}, ErrorCode.INVALID_DOCUMENT),
        ({"model": "tiny", "prompt": "a", "chat": CHAT}, ErrorCode.INVALID_DOCUMENT),
        ({"model": "tiny", "prompt": "", "raw": True}, ErrorCode.PROMPT_TOO_LONG),
        ({"model": "none", "prompt": "a"}, ErrorCode.MODEL_UNKNOWN),
        ({"model": "tiny", "chat": {"messages": [{"role": "x"}]}}, ErrorCode.INVALID_DOCUMENT),
        ({"model": new_id(Prefix.CHECKPOINT), "prompt": "a"}, ErrorCode.NOT_FOUND),
    ]
    for values, code in cases:
        with pytest.raises((InvalidInput, NotFound)) as caught:
            await ask(live, "model sample", SampleView, **values)
        assert caught.value.problem.code is code, values
