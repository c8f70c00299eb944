"""Updates: what moved an optimizer step, and settling one whose outcome nobody knows."""

from typing import Annotated, Literal

from pydantic import Field

from runtime.client import OperatorClient
from specs.base import Contract
from specs.errors import ErrorObject, InvalidInput, NotFound
from specs.records import Contribution, Update
from tools.context import Context
from tools.fields import Cli, Cursor, Input, Limit, RunRef
from tools.paging import cut
from tools.registry import READ, Traits, operation
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


@operation("update", "resolve", Traits(destructive=True), text=update_text)
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


async def find_update(gateway: OperatorClient, run: str, wanted: str) -> Update:
    """The update of a run whose id starts with `wanted`.

    Raises:
        NotFound: the run has no such update.
        InvalidInput: the short form fits several.
    """
    found: list[Update] = []
    cursor: str | None = None
    while True:
        page = await gateway.updates(run, limit=100, cursor=cursor)
        found += [update for update in page.items if update.id.startswith(wanted)]
        if page.next is None:
            break
        cursor = page.next
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
