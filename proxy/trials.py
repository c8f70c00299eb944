"""One trial under one claim: its segment, its chains and its calls under way.

Everything here is rebuilt from the segment when a proxy starts, so a chain continues with
exactly the tokens that were sampled. A call whose intent has no outcome is recorded as lost;
an answer that nothing continues may never have arrived, so its request is answered from the
record when it comes again. A damaged segment keeps its whole records up to the damage, and
the rest beside it under `.damaged`; the trial is then incomplete.
"""

import logging
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio

from proxy.chains import Chains, scene_of
from proxy.dialects import DIALECTS
from proxy.showing import Showing
from proxy.spool import Key, Segment, Spool, Ticket
from proxy.turns import Party, Scene, Turn
from runtime.formats.codec import Piece
from runtime.formats.conversation import Message, Start
from specs import evidence
from specs.errors import InvalidInput, PracticumError
from specs.evidence import Arrays, Frame
from specs.ids import Prefix, new_id
from specs.interaction import (
    Answer,
    AnyRecord,
    Delivered,
    Failure,
    Intent,
    Refusal,
    Superseded,
)

RESTARTED, DAMAGED = "proxy_restart", "segment_damaged"
_log = logging.getLogger(__name__)

type CallKey = tuple[Party, str]


@dataclass(frozen=True, slots=True)
class Answered:
    """What a harness is sent: an answer and its token counts."""

    answer: Answer
    prompt_tokens: int
    output_tokens: int


@dataclass(slots=True, eq=False)
class Call:
    """One model call, from its intent to the last client that waits for it."""

    key: CallKey
    intent: Intent
    turn: Turn
    messages: tuple[Message, ...]
    marks: Sequence[bytes] | None = None
    """Of `messages`, as `Chains.marks` has them."""
    system: tuple[str, ...] = ()
    begun: Sequence[Piece] | None = None
    """What of the answer its prompt has (see `Family.begun`)."""
    one_call: bool = False
    """Whether its answer ends with its first call."""
    streamed: bool = False
    """Whether the answer was first asked for as events."""
    logprobs: "array[float] | None" = None
    """Of the answer's tokens, once it is there."""
    scope: anyio.CancelScope | None = None
    """Cancels the sampling of a call under way."""
    showing: Showing = field(default_factory=Showing)
    started: anyio.Event = field(default_factory=anyio.Event)
    """Its intent is durable, so events may leave; set as well by whatever ends it."""
    done: anyio.Event = field(default_factory=anyio.Event)
    result: Answered | None = None
    error: PracticumError | None = None
    waiters: int = 0
    delivered: bool = False
    settled: bool = False
    """On record as delivered."""
    superseded: bool = False
    abandoned: bool = False
    """Stop as soon as it runs: its trial is being sealed."""

    def stop(self) -> None:
        """Cancel it; it is then lost, unless its answer is there already."""
        self.abandoned = True
        if self.scope is not None:
            self.scope.cancel()

    def fail(self, error: PracticumError) -> None:
        """End the call with an error for whoever waits."""
        self.error = error
        self.started.set()
        self.done.set()


@dataclass(slots=True, eq=False)
class Trial:
    """State of one (trial, fence)."""

    key: Key
    run: str
    spool: Spool
    segment: Segment
    chains: Chains = field(default_factory=Chains)
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    sequence: int = 0
    answered: int = 0
    output_tokens: int = 0
    agents: dict[str, int] = field(default_factory=dict[str, int])
    """Answered calls of each agent, in the order in which the agents first called."""
    open: dict[CallKey, Call] = field(default_factory=dict[CallKey, Call])
    """Calls whose answer has not surely arrived: under way, being sent, or superseded."""
    last: dict[CallKey, Call] = field(default_factory=dict[CallKey, Call])
    """The latest answered call of each request."""
    silent: dict[Turn, Call] = field(default_factory=dict[Turn, Call])
    """Answered calls whose answer showed nothing."""
    under_way: set[Call] = field(default_factory=set[Call])
    sealing: bool = False
    closed: bool = False

    def append(self, record: AnyRecord, arrays: Arrays, *, lazy: bool = False) -> Ticket:
        """Submit a record; records become durable in this order, a lazy one with the next."""
        return self.spool.submit(self.segment, evidence.encode(record, arrays), lazy=lazy)

    def order(self, agent: str) -> int:
        """0 for the main agent, n for the n-th other one that called."""
        self.agents.setdefault(agent, 0)
        return [name for name in self.agents if name].index(agent) + 1 if agent else 0

    def begin(self, call: Call) -> None:
        """Count a call whose intent has been submitted."""
        self.sequence += 1
        if call.turn.base is not None:
            call.turn.base.followers += 1
        self.open[call.key] = call
        self.under_way.add(call)

    def settle(self, call: Call, answer: Answer) -> None:
        """Make an answer part of the chains; its tokens are in `call.turn.output`.

        Whoever waits for the call, or joins it later, is given the answer.
        """
        turn = call.turn
        self.answered += 1
        agent = turn.party.agent
        self.agents[agent] = self.agents.get(agent, 0) + 1
        self.output_tokens += len(turn.output)
        self.chains.settle(turn, call.messages, answer.content, call.marks)
        call.result = Answered(answer, call.intent.prompt_tokens, len(turn.output))
        call.messages, call.marks = (), None  # its history is in the chains now
        self.last[call.key] = call
        if turn.asked:
            self.silent[turn] = call
        call.started.set()  # a call that was read back from the segment never ran here
        call.done.set()

    def abandon(self, call: Call) -> None:
        """Forget a call that is lost: another may continue where it did."""
        if call.turn.base is not None:
            call.turn.base.followers -= 1
        if self.open.get(call.key) is call:
            del self.open[call.key]

    def set_aside(self, turn: Turn) -> None:
        """Forget an answer that showed nothing: its harness asks again in its place."""
        self.chains.set_aside(turn)
        call = self.silent.pop(turn)
        call.superseded = True
        for known in (self.open, self.last):
            if known.get(call.key) is call:
                del known[call.key]


def open_trial(key: Key, run: str, spool: Spool) -> Trial:
    """Open a trial and read back what its segment holds. Blocks.

    Raises:
        OSError: the segment cannot be read or written.
    """
    trial = Trial(key, run, spool, spool.open(key))
    if trial.segment.size:
        _Replay(trial).run()
    return trial


class _Replay:
    """Rebuilds a trial from its segment."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._calls: dict[str, Call] = {}
        self._turns: dict[str, Turn] = {}

    def run(self) -> None:
        segment = self._trial.segment
        data = segment.read()
        end = 0
        damage: InvalidInput | None = None
        try:
            for frame, end in evidence.frames(data):  # noqa: B007
                self._frame(frame)
        except InvalidInput as error:
            damage = error
        if damage is not None:
            self._set_aside(data[end:], damage)
        if end < len(data):
            segment.truncate(end)
        self._close_lost(damaged=damage is not None)
        self._offer_again()

    def _frame(self, frame: Frame) -> None:
        trial, record = self._trial, frame.record
        match record:
            case Intent():
                trial.sequence = max(trial.sequence, record.sequence + 1)
                self._intent(record, frame.arrays)
            case Refusal():
                trial.sequence = max(trial.sequence, record.sequence + 1)
            case Answer():
                self._answer(record, frame.arrays)
            case Superseded():
                if call := self._calls.get(record.interaction):
                    call.superseded = True
                    if record.reason == "empty_reply":
                        trial.set_aside(call.turn)
                        del self._calls[record.interaction]
            case Delivered():
                if call := self._calls.get(record.interaction):
                    call.settled = True
            case Failure():
                if call := self._calls.pop(record.interaction, None):
                    self._trial.abandon(call)

    def _intent(self, intent: Intent, arrays: Arrays) -> None:
        party = Party(intent.session, intent.agent)
        self._trial.order(party.agent)
        scene, messages, start = Scene(b"", b"", intent.sampler), (), Start()
        try:
            dialect = DIALECTS[intent.dialect]
            request = dialect.read(zlib.decompress(arrays["request"].tobytes()))
            scene = scene_of(request.conversation, intent.sampler)
            messages, start = request.conversation.messages, request.conversation.start
        except (KeyError, zlib.error, InvalidInput):
            self._trial.chains.incomplete = True
        base = None if intent.branch is not None else self._turns.get(intent.parent or "")
        turn = Turn(intent.interaction, base, arrays["suffix"], array("i"), scene, party, start)
        if base is not None:
            base.followers += 1
        self._turns[intent.interaction] = turn
        self._calls[intent.interaction] = Call(
            (party, intent.request_digest), intent, turn, messages
        )

    def _answer(self, answer: Answer, arrays: Arrays) -> None:
        call = self._calls.get(answer.interaction)
        if call is None:
            self._trial.chains.incomplete = True
            return
        call.turn.output = arrays["output"]
        call.logprobs = cast("array[float] | None", arrays.get("logprobs"))
        call.superseded = answer.superseded
        self._trial.settle(call, answer)

    def _close_lost(self, *, damaged: bool) -> None:
        """Record what a crash left open; the records are durable when this returns."""
        records = [
            Failure(
                interaction=call.intent.interaction,
                at=now(),
                code=RESTARTED,
                detail="The proxy stopped before the call was answered.",
            )
            for call in self._calls.values()
            if call.result is None
        ]
        for call in [call for call in self._calls.values() if call.result is None]:
            self._trial.abandon(call)
        if damaged:
            records.append(
                Failure(
                    interaction=new_id(Prefix.INTERACTION),
                    at=now(),
                    code=DAMAGED,
                    detail="The segment was damaged; records behind the damage are lost.",
                )
            )
        if records:
            self._trial.segment.write(b"".join(evidence.encode(one, {}) for one in records))
            self._trial.segment.sync()

    def _offer_again(self) -> None:
        for call in self._calls.values():
            if call.result is not None and (call.superseded or not call.turn.followers):
                self._trial.open[call.key] = call

    def _set_aside(self, data: bytes, error: InvalidInput) -> None:
        trial = self._trial
        trial.chains.incomplete = True
        path: Path = trial.segment.path.with_suffix(".damaged")
        trial.spool.write_file(path, data)
        _log.error("segment damaged", extra={"trial": trial.key.trial, "cause": str(error)})


def now() -> str:
    """The time as records hold it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
