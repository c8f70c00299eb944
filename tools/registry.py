"""The registry: an operation is one async function, its types, its traits and its short text.

    @operation("run", "show", READ, text=_text)
    async def show(context: Context, request: Show) -> RunView:
        '''Longer description, for people and models.'''

Input and output models come from the annotations and the summary from `tools.index`, so nothing
is written twice. `call` is the one way in: it validates the raw values, so that the CLI and MCP
refuse the same input with the same code.
"""

import importlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError

from specs import canonical
from tools.context import Context
from tools.index import MODULES, SUMMARIES


@dataclass(frozen=True, slots=True)
class Traits:
    """What an operation does to the world, as MCP's annotations state it.

    :ivar read_only: changes nothing.
    :ivar destructive: may end or discard something that exists.
    :ivar idempotent: repeating it with the same input changes nothing more.
    :ivar local: works on this machine: files, processes, the model cache.
    :ivar agent: offered over MCP.
    :ivar spends: uses up a budget of model calls or of training.
    :ivar decides: states what a person has decided.
    """

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    local: bool = False
    agent: bool = True
    spends: bool = False
    decides: bool = False


READ = Traits(read_only=True, idempotent=True)
READ_LOCAL = Traits(read_only=True, idempotent=True, local=True)
PUBLISH = Traits(idempotent=True, local=True)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. The types are erased here; `operation` has checked them."""

    noun: str
    verb: str
    summary: str
    description: str
    input: type[BaseModel]
    output: type[BaseModel]
    traits: Traits
    handler: Callable[[Context, Any], Awaitable[BaseModel]]
    text: Callable[[Any], str]

    @property
    def name(self) -> str:
        """Name of the tool: `noun_verb`, with `_` for every `-`."""
        return f"{self.noun}_{self.verb}".replace("-", "_")


_OPERATIONS: dict[tuple[str, str], Operation] = {}


def operation[I: BaseModel, O: BaseModel](
    noun: str, verb: str, traits: Traits, *, text: Callable[[O], str]
) -> Callable[[Callable[[Context, I], Awaitable[O]]], Callable[[Context, I], Awaitable[O]]]:
    """Register the decorated function as an operation."""

    def register(
        handler: Callable[[Context, I], Awaitable[O]],
    ) -> Callable[[Context, I], Awaitable[O]]:
        hints = get_type_hints(handler)
        _, request = inspect.signature(handler).parameters
        _OPERATIONS[noun, verb] = Operation(
            noun=noun,
            verb=verb,
            summary=SUMMARIES[noun, verb],
            description=inspect.getdoc(handler) or SUMMARIES[noun, verb],
            input=hints[request],
            output=hints["return"],
            traits=traits,
            handler=handler,
            text=text,
        )
        return handler

    return register


def load(noun: str) -> None:
    """Import the modules of a noun; afterwards its operations can be found."""
    for module in MODULES[noun]:
        importlib.import_module(module)


def find(noun: str, verb: str) -> Operation:
    """One operation, its modules loaded."""
    load(noun)
    return _OPERATIONS[noun, verb]


def operations() -> list[Operation]:
    """Every operation, in the order of the index."""
    for noun in MODULES:
        load(noun)
    return [_OPERATIONS[key] for key in SUMMARIES]


async def call(chosen: Operation, context: Context, values: Mapping[str, object]) -> BaseModel:
    """Validate raw values and run an operation.

    On cancel the operation stops; what the gateway was asked to do stays done.

    Raises:
        PracticumError: `invalid_json` or `invalid_document` naming the argument, or what the
            operation raises.
    """
    canonical.check(dict(values), what="arguments")
    try:
        request = chosen.input.model_validate(values)
    except ValidationError as error:
        raise canonical.invalid(error, "arguments", dict(values)) from None
    return await chosen.handler(context, request)
