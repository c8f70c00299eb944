"""Updates: what moved an optimizer step, and settling one whose outcome nobody knows."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from runtime.client import OperatorClient, every
from specs import canonical
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput, NotFound
from specs.records import Contribution, Update
from tools.context import Context
from tools.documents import read_document
from tools.fields import Cli, Cursor, Input, Limit, RunRef
from tools.paging import cut
from tools.registry import READ, READ_LOCAL, Traits, operation
from tools.tables import number, pairs, short, table
from tools.views import UpdateView

UpdateRef = Annotated[
    str, Field(description="Update id; a unique short form will do"), Cli(positional=True)
]


class Show(Input):
    run: RunRef
    update: UpdateRef
    trial: Annotated[str | None, Field(description="Contribution of this trial alone")] = None
    limit: Limit = 50
    cursor: Cursor = None


class Resolve(Input):
    run: RunRef
    update: UpdateRef
    decision: Annotated[
        Literal["applied", "not-applied", "abandon"],
        Field(description="What to take as true"),
        Cli(option="--as"),
    ]


class Loss(Input):
    run: RunRef
    update: UpdateRef
    datums: Annotated[
        dict[str, JsonValue] | str,
        Field(description='{"datums": […]} or @file.json; see docs/lineage.md'),
        Cli(metavar="@FILE"),
    ]


class DatumArrays(Contract):
    """One datum as lists of one length; which inputs there are follows from the loss."""

    tokens: list[int]
    targets: list[int]
    logprobs: list[float] | None = None
    advantages: list[float] | None = None
    weights: list[float] | None = None


class Datums(Contract):
    datums: list[DatumArrays]


class RecomputedLoss(Contract):
    """The loss of given datums before an update's step, beside the one that was recorded."""

    run: str
    update: str
    datums: int
    tokens: int
    matching: int
    """Datums whose digest is that of a contribution of the update."""
    contributions: int
    loss: float
    recorded: float | None


class UpdateDetail(Contract):
    """An update with one page of its contributions."""

    update: UpdateView
    contributions: list[Contribution]
    next: str | None = None


def update_text(view: UpdateView) -> str:
    """An update in labelled lines."""
    return pairs(
        {
            "update": view.id,
            "run": view.run,
            "batch": view.batch,
            "state": view.state,
            "reason": view.reason,
            "loss": view.loss,
            **view.loss_config,
            "learning rate": view.learning_rate,
            "sampled from": view.sampler,
            "sampler after": view.sampler_after,
            "from state": view.from_state,
            "contributions": view.contributions,
            "trained tokens": view.trained_tokens,
            "census": view.census or None,
            **{key: number(value) for key, value in view.metrics.items()},
        }
    )


def _detail_text(detail: UpdateDetail) -> str:
    rows = [
        (_origin(c), c.group, len(c.interactions), c.tokens, c.trained_tokens, c.weight)
        for c in detail.contributions
    ]
    head = ("from", "group", "calls", "tokens", "trained", "weight")
    return f"{update_text(detail.update)}\n{table(head, rows, more=detail.next)}"


def _origin(contribution: Contribution) -> str | None:
    row = contribution.row
    if row is None:
        return contribution.trial
    return f"{short(row.file)} line {row.line}" + ("" if row.id is None else f" id {row.id}")


@operation("update", "show", READ, text=_detail_text)
async def show(context: Context, request: Show) -> UpdateDetail:
    """Show an update: states, metrics, and the trials or rows whose tokens moved it."""
    async with context.gateway() as gateway:
        update = await find_update(gateway, request.run, request.update)
    chosen = [
        one
        for one in update.contributions
        if request.trial is None or (one.trial or "").startswith(request.trial)
    ]
    page, following = cut(chosen, request.limit, request.cursor)
    return UpdateDetail(update=UpdateView.of(update), contributions=page, next=following)


def _loss_text(result: RecomputedLoss) -> str:
    return pairs(
        {
            "update": result.update,
            "datums": result.datums,
            "tokens": result.tokens,
            "as contributed": f"{result.matching} of {result.contributions}",
            "loss": repr(result.loss),
            "recorded": None if result.recorded is None else repr(result.recorded),
        }
    )


@operation("update", "loss", READ_LOCAL, text=_loss_text)
async def loss(context: Context, request: Loss) -> RecomputedLoss:
    """Compute the loss of datums that you hand in, on the policy that an update started from.

    The trainer state before the step is opened, the datums run forward, nothing is changed. With
    the datums rebuilt from the evidence it is the recorded loss again (docs/lineage.md).
    """
    from runtime.compute.client import HttpCompute
    from runtime.learning.datums import datum_digest
    from runtime.learning.recompute import datum_from, recomputed_loss

    given = _datums(request.datums)
    datums = [datum_from(one.model_dump(exclude_none=True)) for one in given.datums]
    async with (
        context.gateway() as gateway,
        HttpCompute(context.require_local("update loss").compute_socket) as compute,
    ):
        run = await gateway.run(request.run)
        update = await find_update(gateway, run.id, request.update)
        contributed = [one.datum for one in update.contributions]
        found = await recomputed_loss(gateway, compute, run, update, datums)
    return RecomputedLoss(
        run=run.id,
        update=update.id,
        datums=len(datums),
        tokens=sum(len(datum.tokens) for datum in datums),
        matching=sum(datum_digest(datum) in contributed for datum in datums),
        contributions=len(contributed),
        loss=found,
        recorded=update.metrics.get("loss"),
    )


@operation("update", "resolve", Traits(destructive=True, decides=True), text=update_text)
async def resolve(context: Context, request: Resolve) -> UpdateView:
    """Settle an unresolved update, which blocks its run after a crash.

    `applied` needs a saved state under the update's id; `not-applied` redoes the step from the
    last saved state, where none has its id; `abandon` fails the run and keeps its checkpoints.
    A word that compute contradicts blocks the run again.
    """
    async with context.gateway() as gateway:
        run = await gateway.run(request.run)
        update = await find_update(gateway, run.id, request.update)
        return UpdateView.of(await gateway.resolve(run.id, update.id, request.decision))


def _datums(given: dict[str, JsonValue] | str) -> Datums:
    read = read_document(given, "datums")
    if isinstance(read, str):
        raise InvalidInput(
            f"{read} names a published document; datums are none.",
            object=ErrorObject(type="datums", id=read),
            next="Write @file.json.",
        )
    return canonical.validate(Datums, read.value, what="datums")


async def find_update(gateway: OperatorClient, run: str, wanted: str) -> Update:
    """The update of a run whose id starts with `wanted`.

    Raises:
        NotFound: the run has no such update.
        InvalidInput: the short form fits several.
    """
    updates = await every(lambda cursor: gateway.updates(run, limit=100, cursor=cursor))
    found = [update for update in updates if update.id.startswith(wanted)]
    if len(found) > 1:
        raise InvalidInput(
            f"{wanted} fits {len(found)} updates.",
            object=ErrorObject(type="update", id=wanted),
            next="Give more of the id.",
        )
    if not found:
        raise NotFound(
            f"Run {run} has no update {wanted}.",
            object=ErrorObject(type="update", id=wanted),
            next=f"See: practicum run updates {run}",
        )
    return found[0]
