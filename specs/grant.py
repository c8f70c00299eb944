"""Grants: a scoped, short-lived part of an operator's authority, for an agent inside a trial.

A grant is a record at the gateway and a credential (EdDSA JWT, audience `practicum-gateway`).
The record says what it opens and how much of that was used; it lives as long as the trial that
it belongs to, and no longer than its expiry. The credential only names the record: it opens no
route of workers or of the proxy, and the proxy takes it for nothing (invariant 13).
"""

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from specs.base import Contract
from specs.ids import Id, VersionedName

LONGEST_TOKEN_SEC = 86400
"""How long a credential that the gateway signs may be good for."""


class Scope(StrEnum):
    """What a grant opens."""

    READ = "read"
    """Records and objects, but for the task packages of the run that it belongs to."""
    PUBLISH = "publish"
    """Datasets, profiles, objects, comparisons."""
    START = "start"
    """Runs within its limits, and cancelling those that it started."""
    CONSTRUCT = "construct"
    """Construction plans and what is recorded of them."""
    APPROVE = "approve"
    """Approving construction plans."""


class GatewayAccess(Contract):
    """The plan key `gateway`: what the agent of each trial may ask of the gateway. The operator
    who submits the plan authorises it; without the key a sandbox reaches no gateway."""

    scopes: tuple[Scope, ...] = Field(min_length=1)
    max_runs: int = Field(default=0, ge=0, le=1000)
    """Runs that the agent of one trial may start."""
    max_slots: int = Field(default=0, ge=0, le=100_000)
    """Planned trial slots of all these runs."""
    max_updates: int | None = Field(default=None, ge=0, le=100_000)
    """Optimizer steps planned by all these runs; unset = as many as the runs plan."""
    models: tuple[str, ...] | None = None
    """Names of models that they may use, checkpoints of these included; unset = any."""
    datasets: tuple[VersionedName, ...] | None = None
    """Datasets that they may use; unset = any."""

    @model_validator(mode="after")
    def _reads_what_it_changes(self) -> Self:
        if Scope.READ not in self.scopes:
            raise ValueError("whoever changes something also reads it: add the scope 'read'")
        if (Scope.START in self.scopes) != (self.max_runs > 0):
            raise ValueError("the scope 'start' and max_runs > 0 belong together")
        return self


READ_ONLY = GatewayAccess(scopes=(Scope.READ,))

type Phase = Literal["agent", "verifier"]


class GrantRequest(Contract):
    """`POST /v1/worker/runs/{run}/trials/{trial}/grant`: a credential of one open trial, as the
    run's plan allows it: the agent's own, or the one that its verifier reads with."""

    claim: Id
    fence: int
    phase: Phase
    expires_in_sec: float = Field(gt=0, le=LONGEST_TOKEN_SEC)
    """Until the trial's deadline; the hard end of the credential."""


class GrantToken(Contract):
    """A grant with its credential; asking again gives one of the same grant."""

    grant: Id
    token: str
    expires_at: float
    """Unix seconds."""


class GrantClaims(Contract):
    """Claims of a grant's credential; what it opens is read from the record."""

    iss: Literal["practicum"]
    aud: Literal["practicum-gateway"]
    org: str
    grant: Id
    run: Id
    trial: Id
    fence: int
    iat: float
    exp: float
    jti: str


class StartedBy(Contract):
    """Who started a run, where it was not an operator."""

    grant: Id
    run: Id
    """The run whose trial the grant belongs to."""
    trial: Id
