"""Which calls of a trial its reward moves, and with what weight (`specs.objective.Credit`).

Decided from the record alone: who called is the harness's own name of the agent, and what a
call was for is what its request offered the model. A reward counts once: every call that is
learnt from carries the trial's one advantage times its own weight, in whichever chain it is.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from runtime.learning.packing import acted_upon
from specs.interaction import Interaction
from specs.objective import Credit

type Party = tuple[str, str]
"""Session and agent, as the harness names them."""


@dataclass(frozen=True, slots=True)
class Credits:
    """`weights` by interaction id; a call that is not in it is not learnt from. `left_out`
    counts the others by why: `delegated`, `helpers`."""

    weights: Mapping[str, float]
    left_out: Mapping[str, int]


def credit(interactions: Sequence[Interaction], rules: Credit) -> Credits:
    """The calls that learn and their weights; `rules.discount` counts an agent's learnt calls."""
    left_out: Counter[str] = Counter()
    helpers = _helpers(interactions) if rules.helpers == "exclude" else frozenset[str]()
    by_party: dict[Party, list[str]] = {}
    for call in acted_upon(interactions):
        name = call.intent.interaction
        if call.intent.agent and rules.delegated == "exclude":
            left_out["delegated"] += 1
        elif name in helpers:
            left_out["helpers"] += 1
        else:
            by_party.setdefault(_party(call), []).append(name)
    weights = {
        name: rules.discount**later
        for names in by_party.values()
        for later, name in enumerate(reversed(names))
    }
    return Credits(weights, dict(left_out))


def _helpers(interactions: Sequence[Interaction]) -> frozenset[str]:
    """Calls without a tool of the harness, of agents that have calls with one.

    A call that extends another was offered the same tools (`proxy.chains`), so only the requests
    that begin a chain are read.
    """
    equipped: dict[str, bool] = {}
    for call in interactions:
        known = equipped.get(call.intent.parent or "") if call.exact else None
        equipped[call.intent.interaction] = offers_tools(call) if known is None else known
    agents = {_party(call) for call in interactions if equipped[call.intent.interaction]}
    return frozenset(
        call.intent.interaction
        for call in interactions
        if not equipped[call.intent.interaction] and _party(call) in agents
    )


def offers_tools(call: Interaction) -> bool:
    """Whether the request offers a tool that the harness itself runs: one with a name and no
    type, or of type `custom` or `function`. Others are run by the service that is asked."""
    return any(tool.get("type") in (None, "custom", "function") for tool in _tools(call))


def _tools(call: Interaction) -> Iterator[Mapping[str, Any]]:
    if not call.request:
        return
    request: object = json.loads(call.request)  # the proxy has read it before it was recorded
    if isinstance(request, dict):
        tools = cast(dict[str, object], request).get("tools")
        for tool in cast(list[object], tools) if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                yield cast(dict[str, Any], tool)


def _party(call: Interaction) -> Party:
    return call.intent.session, call.intent.agent
