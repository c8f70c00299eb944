"""A trial that operates Practicum itself: the plan key `gateway`, made true inside its sandbox.

Only with that key a sandbox has a port that leads to the gateway, the program `practicum`, and a
credential: the agent's own, with the scopes of the plan, which the profile passes on by its
bindings; and one that only reads, in the environment of the task's verifier. Both end with the
trial (`runtime.gateway.grants`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import anyio.to_thread

from runtime.client.remote import GATEWAY, TOKEN
from runtime.execution.context import RunContext
from runtime.execution.workplace import EnvironmentSpec
from runtime.native.program import installed_program
from specs.grant import LONGEST_TOKEN_SEC, GrantRequest

SANDBOX_PORT = 8485
SANDBOX_URL = f"http://127.0.0.1:{SANDBOX_PORT}"
"""Where the gateway is, seen from inside a sandbox."""
TRIAL = "PRACTICUM_TRIAL"
"""Variable of a task's tests: the id of the trial that they judge."""
PROGRAM = "/opt/practicum/app"
"""Where the program lies there; `practicum` is on the PATH."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The two grants of one trial."""

    trial: str
    agent: str
    verifier: str

    @property
    def verifier_environment(self) -> Mapping[str, str]:
        """With it `practicum … --json` works in a task's tests, which learn whose they are."""
        return {GATEWAY: SANDBOX_URL, TOKEN: self.verifier, TRIAL: self.trial}


async def opened(environment: EnvironmentSpec, socket: Path) -> EnvironmentSpec:
    """The environment with the port and the program.

    Raises:
        InvalidInput: it is one that cannot forward a port.
    """
    program = await anyio.to_thread.run_sync(installed_program)
    tooled = environment.with_tool(
        program.folder, PROGRAM, program.digest, commands={"practicum": "bin/practicum"}
    )
    return tooled.with_forward(SANDBOX_PORT, f"unix:{socket}")


async def credentials(context: RunContext, trial: str, seconds: float) -> Credentials:
    """Both grants of an open trial, until its deadline."""

    async def one(phase: Literal["agent", "verifier"]) -> str:
        reply = await context.client.grant(
            context.run,
            trial,
            GrantRequest(
                claim=context.claim.id,
                fence=context.claim.fence,
                phase=phase,
                expires_in_sec=min(seconds, LONGEST_TOKEN_SEC),
            ),
        )
        return reply.token

    return Credentials(trial, await one("agent"), await one("verifier"))
