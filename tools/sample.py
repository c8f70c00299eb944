"""Trying a model directly: a prompt goes in, text and tokens come out.

It is sampled as the proxy samples: the same rendering for the model's family, the same compute,
a checkpoint's adapter brought there by digest. Nothing is captured, so it can never be evidence.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import anyio.to_thread
from pydantic import Field, JsonValue

from runtime.client import OperatorClient
from specs.base import Contract
from specs.chat import File
from specs.errors import ErrorCode, ErrorObject, InvalidInput
from specs.ids import Prefix, new_id
from specs.model import ModelInfo
from tools.context import Context
from tools.documents import read_document
from tools.fields import Cli, Input
from tools.registry import Traits, operation
from tools.tables import pairs

if TYPE_CHECKING:
    from runtime.compute.client import HttpCompute
    from runtime.compute.protocol import Sampled, SamplerSpec
    from runtime.formats.codec import Codec, Piece
    from runtime.formats.conversation import Tool
    from runtime.formats.families import Family


class SampleRequest(Input):
    model: Annotated[str, Field(description="Base model or checkpoint id"), Cli(positional=True)]
    prompt: Annotated[str | None, Field(description="What the user says")] = None
    chat: Annotated[
        dict[str, JsonValue] | str | None,
        Field(description="Instead: {messages, tools} as in a chat file, or @file.json"),
        Cli(metavar="@FILE"),
    ] = None
    raw: Annotated[bool, Field(description="The prompt as it stands, without a template")] = False
    samples: Annotated[int, Field(ge=1, le=16, description="How many answers")] = 1
    max_tokens: Annotated[int, Field(ge=1, le=32_768, description="Of each answer")] = 256
    temperature: Annotated[float, Field(ge=0, le=2, description="0 takes the likeliest")] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1, description="Nucleus")] = 1.0
    top_k: Annotated[int | None, Field(ge=1, description="The k likeliest alone")] = None
    seed: Annotated[int | None, Field(ge=0, lt=2**31, description="Repeats an answer")] = None
    tokens: Annotated[bool, Field(description="With token ids and log-probabilities")] = False


class AnswerView(Contract):
    """One answer."""

    text: str
    """Decoded from the tokens, control tokens spelled out."""
    content: list[JsonValue]
    """Blocks, as a harness would get them."""
    parse_error: str | None
    stop_reason: str
    provenance: str
    output_tokens: int
    logprob_sum: float | None
    ids: list[int] | None = None
    logprobs: list[float] | None = None


class SampleView(Contract):
    """Answers of a model; never evidence."""

    model: str
    base_model: str
    adapter: str | None
    renderer: str | None
    """None for a raw prompt."""
    prompt_tokens: int
    prompt_ids: list[int] | None = None
    answers: list[AnswerView]


@dataclass(frozen=True, slots=True)
class _Prompt:
    pieces: "list[Piece]"
    tools: "tuple[Tool, ...]" = ()
    opening: str = ""
    request: str = ""


def _text(view: SampleView) -> str:
    head = pairs(
        {
            "model": view.model,
            "adapter": view.adapter,
            "prompt tokens": view.prompt_tokens,
        }
    )
    parts = [head]
    for number, one in enumerate(view.answers):
        told = f"{one.output_tokens} tokens, {one.stop_reason}"
        parts += [f"--- answer {number}, {told}", one.text]
        if one.ids is not None:
            parts.append(" ".join(map(str, one.ids)))
    return "\n".join(parts)


@operation("model", "sample", Traits(local=True), text=_text)
async def sample(context: Context, request: SampleRequest) -> SampleView:
    """Sample from a base model or checkpoint, to try it. Nothing is recorded or learnt from."""
    import numpy as np

    from runtime.compute.client import HttpCompute
    from runtime.compute.protocol import SampleContext, SamplingParams
    from runtime.learning.files import renderer_for

    async with (
        context.gateway() as gateway,
        HttpCompute(context.require_local("model sample").compute_socket) as compute,
    ):
        spec = await _sampler(gateway, compute, request.model)
        info = await compute.model(spec.base_model)
        if info.backend == "upstream":
            raise _no_tokens(info)
        renderer = await renderer_for(compute, info, "all_assistant")
        prompt = _prompt(request, renderer.family)
        ids = await anyio.to_thread.run_sync(renderer.codec.encode, prompt.pieces)
        params = SamplingParams(
            max_tokens=min(request.max_tokens, _room(info, len(ids))),
            stop=info.stop_tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k or -1,
            seed=request.seed,
        )
        found = await compute.sample(
            spec,
            np.array(ids, np.int32),
            params,
            num_samples=request.samples,
            context=SampleContext(opening=prompt.opening, request=prompt.request),
        )
    voice = _Voice(renderer.codec, renderer.family, prompt.tools, request.tokens)
    return SampleView(
        model=request.model,
        base_model=spec.base_model,
        adapter=spec.adapter,
        renderer=None if request.raw else info.renderer,
        prompt_tokens=len(ids),
        prompt_ids=ids.tolist() if request.tokens else None,
        answers=[voice.view(one) for one in found],
    )


@dataclass(frozen=True, slots=True)
class _Voice:
    """Reads answers."""

    codec: "Codec"
    family: "Family"
    tools: "tuple[Tool, ...]"
    tokens: bool

    def view(self, one: "Sampled") -> AnswerView:
        ids: list[int] = one.tokens.tolist()
        pieces = self.codec.pieces(ids)
        parsed = self.family.parse(pieces, call=new_id(Prefix.INTERACTION), tools=self.tools)
        logprobs = None if one.logprobs is None else [float(p) for p in one.logprobs]
        return AnswerView(
            text=self.codec.decode(ids),
            content=parsed.content,
            parse_error=parsed.parse_error,
            stop_reason=one.stop_reason,
            provenance=one.provenance,
            output_tokens=len(ids),
            logprob_sum=None if logprobs is None else sum(logprobs),
            ids=ids if self.tokens else None,
            logprobs=logprobs if self.tokens else None,
        )


async def _sampler(gateway: OperatorClient, compute: "HttpCompute", model: str) -> "SamplerSpec":
    """What a name stands for; a checkpoint's adapter is in compute afterwards."""
    from runtime.compute.protocol import SamplerSpec
    from runtime.learning.policy import bring_adapter

    if not model.startswith(f"{Prefix.CHECKPOINT}_"):
        return SamplerSpec(model)
    checkpoint = await gateway.checkpoint(model)
    if checkpoint.deleted_at is not None:
        raise InvalidInput(
            f"The weights of checkpoint {checkpoint.id} were deleted.",
            code=ErrorCode.INVALID_REFERENCE,
            object=ErrorObject(type="checkpoint", id=checkpoint.id, pointer="/model"),
            next="practicum checkpoint list shows what each has.",
        )
    ref = await gateway.sampler(checkpoint.sampler)
    await bring_adapter(compute, gateway, ref)
    return SamplerSpec(ref.base_model, ref.adapter)


def _prompt(request: SampleRequest, family: "Family") -> _Prompt:
    """What is asked, rendered for the model's family unless it is to stand as it is."""
    from runtime.formats.conversation import Conversation, Message, Text
    from runtime.formats.examples import conversation_of

    if (request.prompt is None) == (request.chat is None) or (request.raw and request.chat):
        raise InvalidInput(
            "Give either a prompt or a chat; only a prompt can be raw.",
            object=ErrorObject(type="arguments", pointer="/prompt"),
            next="Write: practicum model sample MODEL --prompt TEXT",
        )
    if request.chat is not None:
        file = File.of("chat", _chat(request.chat))
        (row,) = file.rows()
        conversation = conversation_of(file, row)
    elif request.raw:
        return _Prompt([request.prompt or ""])
    else:
        conversation = Conversation((), (), (Message("user", (Text(request.prompt or ""),)),))
    said = [
        "".join(block.text for block in message.blocks if isinstance(block, Text))
        for message in conversation.messages
        if message.role == "user"
    ] or [""]
    return _Prompt(family.prompt(conversation), conversation.tools, said[0], said[-1])


def _chat(given: dict[str, JsonValue] | str) -> bytes:
    """The document as the one line of a chat file."""
    read = read_document(given, "chat")
    if isinstance(read, str):
        raise InvalidInput(
            f"{read} names a published document; a chat is none.",
            object=ErrorObject(type="chat", id=read, pointer="/chat"),
            next="Write @file.json.",
        )
    return json.dumps(read.value, ensure_ascii=False).encode()


def _room(info: ModelInfo, prompt: int) -> int:
    """How many tokens an answer can have."""
    room = info.context_tokens - prompt
    if 0 < room < info.context_tokens:
        return room
    raise InvalidInput(
        f"The prompt has {prompt} tokens; {info.name} takes 1 to {info.context_tokens - 1}.",
        code=ErrorCode.PROMPT_TOO_LONG,
        object=ErrorObject(type="model", id=info.name, pointer="/prompt"),
        next="Write one that fits.",
    )


def _no_tokens(info: ModelInfo) -> InvalidInput:
    return InvalidInput(
        f"{info.name} is served by an upstream, in text: it has no tokens here.",
        code=ErrorCode.INVALID_REFERENCE,
        object=ErrorObject(type="model", id=info.name, pointer="/model"),
        next="Ask it through a profile: practicum agent run PROFILE",
    )
