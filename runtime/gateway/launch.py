"""What a profile may not say, and what a plan replaces; each named by its field.

Only what routing, capture and learning need is constrained. Everything else is the
harness's own business.
"""

from collections.abc import Iterator

from pydantic import BaseModel

from runtime.gateway.refusals import invalid
from runtime.gateway.resolution import AnyPlan
from specs.errors import ErrorCode
from specs.launch import uses_gateway
from specs.plans import gateway_access
from specs.profile import Profile

_OWNERS = {
    "limits": "the default",
    "resources": "each task's own",
    "timeouts": "each task's own",
}


def check_launch(profile: Profile, plan: AnyPlan) -> list[str]:
    """Overrides in words.

    Raises:
        InvalidInput: `launch_conflict`: learning excludes a setting of the profile, or it needs a
            gateway that the plan does not open.
    """
    if plan.kind == "training":
        _require_plain_sampling(profile)
    if uses_gateway(profile) and gateway_access(plan) is None:
        raise invalid(
            "The profile uses a ${gateway.…} binding, and the plan does not open the gateway.",
            "profile",
            "/agent",
            name=profile.name,
            code=ErrorCode.LAUNCH_CONFLICT,
            next="Give the plan a key `gateway` with scopes, or remove the binding.",
        )
    replaced = [
        f"{section}.{name} = {value} replaces {owner}"
        for section, owner in _OWNERS.items()
        for name, value in _given(getattr(plan, section))
        if name != "concurrency"
    ]
    sampling = profile.agent.sampling.model_dump(exclude_none=True)
    return replaced + [
        f"sampling.{name} = {value} of the profile replaces what the harness asks for"
        for name, value in sampling.items()
    ]


def _given(part: BaseModel) -> Iterator[tuple[str, object]]:
    """What a part of a plan sets, with dotted names."""
    for name, value in part:
        if isinstance(value, BaseModel):
            yield from ((f"{name}.{inner}", found) for inner, found in _given(value))
        elif value is not None:
            yield name, value


def _require_plain_sampling(profile: Profile) -> None:
    """Importance ratios need samples of the policy itself: temperature 1, nothing cut off."""
    sampling = profile.agent.sampling
    wrong = {
        "temperature": sampling.temperature not in (None, 1.0),
        "top_p": sampling.top_p not in (None, 1.0),
        "top_k": sampling.top_k is not None,
    }
    for name, conflicts in wrong.items():
        if conflicts:
            raise invalid(
                f"Training samples the policy as it is; the profile sets {name}"
                f" to {getattr(sampling, name)}.",
                "profile",
                f"/agent/sampling/{name}",
                name=profile.name,
                code=ErrorCode.LAUNCH_CONFLICT,
                next="Use temperature 1, top_p 1 and no top_k for training.",
            )
