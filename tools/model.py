"""Models: which there are, and bringing one into the cache of this machine."""

from functools import partial
from typing import Annotated

import anyio.from_thread
import anyio.to_thread
from pydantic import Field

from runtime.client import OperatorClient
from specs.errors import ErrorObject, InvalidInput
from specs.model import ModelInfo
from specs.operator_api import ModelList
from tools.context import Context
from tools.documents import read_file
from tools.fields import Cli, Input
from tools.registry import READ, Traits, operation
from tools.tables import short, table

SCRIPTED = "scripted/"


class ListModels(Input):
    pass


class Pull(Input):
    name: Annotated[
        str, Field(description="Model name; scripted/NAME takes a scenario"), Cli(positional=True)
    ]
    scenario: Annotated[
        str | None, Field(description="Scenario file of a scripted model"), Cli(metavar="FILE")
    ] = None
    tokenizer: Annotated[
        str | None, Field(description="Model whose tokenizer the scenario must name")
    ] = None


def _list_text(models: ModelList) -> str:
    return table(
        ("name", "backend", "parameters", "context", "trainable", "present", "digest"),
        [
            (
                model.name,
                model.backend,
                model.parameters,
                model.context_tokens,
                model.trainable,
                model.present,
                short(model.digest),
            )
            for model in models.models
        ],
    )


def _pull_text(model: ModelInfo) -> str:
    return f"{model.name} is here: {model.digest}"


@operation("model", "list", READ, text=_list_text)
async def list_models(context: Context, _: ListModels) -> ModelList:
    """List the models that a profile can name. An absent one is fetched by `model pull`."""
    async with context.gateway() as gateway:
        return await gateway.models()


@operation("model", "pull", Traits(idempotent=True, local=True), text=_pull_text)
async def pull(context: Context, request: Pull) -> ModelInfo:
    """Bring a model's files into the cache, check their digests, and make the model known.

    `scripted/NAME --scenario FILE` registers a scripted model, which plays the file's replies
    through a real tokenizer.
    """
    context.require_local("model pull")
    if request.name.startswith(SCRIPTED) != (request.scenario is not None):
        raise InvalidInput(
            "A scripted model, and no other, takes a scenario file.",
            object=ErrorObject(type="model", id=request.name, pointer="/scenario"),
            next="Write: practicum model pull scripted/NAME --scenario FILE",
        )
    if request.scenario is None:
        model = await _pull_files(context, request.name)
    else:
        model = await _pull_scenario(request.name, request.scenario, request.tokenizer)
    async with context.gateway() as gateway:
        await gateway.put_models(ModelList(models=[model]))
    return model


async def register_local_models(context: Context) -> None:
    """Make every model of this machine known to its gateway; merged by name, so harmless."""
    from runtime.compute.models import list_models as local_models

    models = await anyio.to_thread.run_sync(local_models)
    async with OperatorClient.at(context.home, patience=10.0) as gateway:
        await gateway.put_models(ModelList(models=models))


async def _pull_files(context: Context, name: str) -> ModelInfo:
    """On cancel the download ends with its thread; the cache holds a whole model or none."""
    from runtime.compute import models

    def say(text: str) -> None:
        anyio.from_thread.run(context.progress, text)

    return await anyio.to_thread.run_sync(partial(models.pull, name, progress=say))


async def _pull_scenario(name: str, scenario: str, tokenizer: str | None) -> ModelInfo:
    from runtime.compute import models

    data = read_file(scenario.removeprefix("@"), "scenario")
    return await anyio.to_thread.run_sync(
        partial(models.pull_scripted, name, data, tokenizer_model=tokenizer)
    )
