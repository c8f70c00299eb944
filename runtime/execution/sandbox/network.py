"""What a task's network policy means in the local sandbox.

| task says | sandbox |
|---|---|
| `no-network` | own network namespace: its loopback, and forwarded ports |
| nothing | the same; Harbor's default would be public, so `NetworkPlan.declared` is False |
| `allowlist` of loopback names | the same |
| `allowlist` of anything else | refused |
| `public` | the host's network if `allow_public`, otherwise refused |

Harbor turns `no-network` into such an allowlist when the agent's base_url is on a loopback name.
"""

from dataclasses import dataclass
from typing import Literal

from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy

from runtime.execution.sandbox.errors import unsupported

LOOPBACK = frozenset({"127.0.0.1", "localhost"})


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """The network of one sandbox, for the trial's record."""

    mode: Literal["none", "host"]
    declared: bool
    """Whether the task said anything about the network."""


def resolve(policy: NetworkPolicy, task: EnvironmentConfig, *, allow_public: bool) -> NetworkPlan:
    """What to give a task.

    Raises:
        InvalidInput: `sandbox_unsupported`.
    """
    declared = "network_mode" in task.model_fields_set or task.allowed_hosts is not None
    if policy.network_mode is NetworkMode.NO_NETWORK:
        return NetworkPlan("none", declared)
    if policy.network_mode is NetworkMode.ALLOWLIST:
        other = sorted(set(policy.allowed_hosts) - LOOPBACK)
        if other:
            raise unsupported(
                f"The task may reach {', '.join(other)}; the local sandbox has no such network.",
                pointer="/environment/allowed_hosts",
                next="Use no-network, or run the task with another Harbor environment.",
            )
        return NetworkPlan("none", declared)
    if not declared:
        return NetworkPlan("none", declared)
    if not allow_public:
        raise unsupported(
            "The task declares network_mode = public, which would share the host's network.",
            pointer="/environment/network_mode",
            next="Declare no-network, or allow it with allow_public in the sandbox's options.",
        )
    return NetworkPlan("host", declared)
