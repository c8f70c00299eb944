"""What earlier claims of a run left in compute (invariant 12).

The ids of a run's trainers are on record before they are opened, or follow from the run and the
claim's fence, so that any later claim can close what a dead worker left. A claim that does no
more than end its run is the last one, and sweeps too.
"""

from runtime.execution.context import RunContext
from runtime.learning.policy import initial_policy
from runtime.learning.warm import scratch_trainers
from specs.errors import Unavailable
from specs.ids import Prefix, derived_id
from specs.records import UpdateState


async def sweep(ctx: RunContext, *, over: bool = False) -> None:
    """Close the trainers and drop the states that earlier claims left; `over`: the run ends with
    this claim, and nothing goes on from its last state either.

    A state whose update is undecided stays. A compute that is down has no trainers; its saved
    states wait for the next claim.
    """
    updates = ctx.records.updates
    earlier = range(1, ctx.claim.fence)
    trainers = {update.trainer for update in updates if update.trainer is not None}
    trainers |= {recovery_trainer(update.id, fence) for update in updates for fence in earlier}
    trainers |= {trainer for fence in earlier for trainer in scratch_trainers(ctx.run, fence)}
    first = initial_policy(ctx.spec).state
    states = [] if first is None else [first]
    states += [u.id for u in updates if u.state is UpdateState.ACKNOWLEDGED]
    try:
        health = await ctx.compute.health()
        for trainer in sorted(trainers & set(health.trainers)):
            await ctx.compute.close_trainer(trainer)
        for state in states if over else states[:-1]:
            await ctx.compute.drop_state(state)
    except Unavailable as error:
        ctx.log(f"compute is not there to be swept: {error}")


def recovery_trainer(update: str, fence: int) -> str:
    """The id of the trainer that a claim opens to finish an applied update.

    Derived and not minted, so that a later claim knows which ones may have been left open; by
    fence, so that a worker that lost its claim cannot reach a later one's trainer.
    """
    return derived_id(Prefix.TRAINER, f"{update}/{fence}")
