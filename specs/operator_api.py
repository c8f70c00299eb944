"""The operator protocol: bodies and pages of the routes that tools and pages use.

Lists are cut into pages by an opaque `cursor`; `next` is None on the last one.
"""

from typing import Literal

from pydantic import Field, JsonValue

from specs.base import Contract
from specs.grant import LONGEST_TOKEN_SEC
from specs.ids import Digest, Id, Name, Prefix, Version, VersionedName, new_id
from specs.interaction import Seal
from specs.model import ModelInfo
from specs.plans import Budget
from specs.profile import Sampling
from specs.records import Checkpoint, Group, LogRecord, Trial, Update
from specs.run import Admission, Run


class ProfilePublish(Contract):
    """`POST /v1/profiles`: publish a profile under its own name and this version."""

    version: Version
    profile: dict[str, JsonValue]


class Published(Contract):
    """An immutable published document."""

    name: Name
    version: Version
    reference: VersionedName
    digest: Digest
    size: int
    created_at: str


class PublishedPage(Contract):
    items: list[Published]
    next: str | None = None


class Started(Contract):
    """Answer of `POST /v1/runs`: 201 for a new run, 200 for a repeated request."""

    run: Id
    created: bool
    admission: Admission


class RunPage(Contract):
    items: list[Run]
    next: str | None = None


class TrialPage(Contract):
    items: list[Trial]
    next: str | None = None


class GroupPage(Contract):
    items: list[Group]
    next: str | None = None


class RecordedGroup(Contract):
    """A sampling group with the run that it belongs to."""

    run: Id
    group: Group


class RecordedGroupPage(Contract):
    items: list[RecordedGroup]
    next: str | None = None


class UpdatePage(Contract):
    items: list[Update]
    next: str | None = None


class CheckpointPage(Contract):
    items: list[Checkpoint]
    next: str | None = None


class CheckpointUses(Contract):
    """`GET /v1/checkpoints/{checkpoint}/uses`: what refers to it, and so protects it."""

    checkpoint: Id
    runs: list[Id]
    """Runs that were started from it or evaluate it."""
    active_runs: list[Id]
    """Those of them that are not over."""
    own_run_active: bool
    profiles: list[VersionedName]
    sessions: list[Id]
    """Open ones."""
    groups: int
    """Sampling groups that are recorded against its weights."""


class KeepState(Contract):
    """`POST /v1/checkpoints/{checkpoint}/keep`: how long its trainer state is kept from now on."""

    seconds: float | None = Field(gt=0, le=10 * 365 * 86400)
    """None = for good."""


class LogPage(Contract):
    items: list[LogRecord]
    next: str | None = None


class ModelList(Contract):
    """`GET /v1/models`, and `PUT /v1/models` by which compute's models become known."""

    models: list[ModelInfo]


class SessionRequest(Contract):
    """`POST /v1/sessions`: a credential for model calls outside of any run."""

    id: Id = Field(default_factory=lambda: new_id(Prefix.SESSION))
    """Of the session, minted by whoever opens it: repeating the request opens no other one, and a
    session whose opener died on the way can be ended by name."""
    model: str = Field(min_length=1, max_length=128)
    """Base model name, or the id of a checkpoint."""
    purpose: Literal["claude", "agent"]
    sampling: Sampling = Sampling()
    """Beats what the harness asks for, as a profile's does."""
    expires_in_sec: float = Field(default=float(LONGEST_TOKEN_SEC), gt=0, le=LONGEST_TOKEN_SEC)


class Session(Contract):
    """Model calls of `practicum claude` or `agent run`: captured and owned, never evidence."""

    id: Id
    model: str
    sampler: Id
    purpose: Literal["claude", "agent"]
    created_at: str
    expires_at: float
    """Unix seconds; the hard end of the credential."""
    ended_at: str | None = None
    seal: Seal | None = None
    """What was captured, once the proxy has sealed it."""


class SessionOpened(Contract):
    """Answer of `POST /v1/sessions`; the token is told once."""

    session: Session
    token: str
    base: ModelInfo
    """The model, or the one that the checkpoint was made from."""


class SessionPage(Contract):
    items: list[Session]
    next: str | None = None


class Resolve(Contract):
    """`POST /v1/runs/{run}/updates/{update}/resolve`: an operator settles an unresolved update.

    `applied` needs a saved state under the update's id; `not-applied` redoes it from the last
    saved state, where none has its id; `abandon` fails the run and keeps its checkpoints. The
    next worker checks the word against what compute can tell.
    """

    as_: Literal["applied", "not-applied", "abandon"] = Field(alias="as")


class UiLinkRequest(Contract):
    """`POST /v1/ui/links`: a browser on this machine is to read a page."""

    path: str = Field(max_length=512)


class UiLink(Contract):
    """A link with a token that opens once."""

    url: str
    expires_in_sec: float


class Extend(Contract):
    """`POST /v1/runs/{run}/extend`: raise budgets of a run that has spent one of them.

    Each value given replaces that of the plan, must be larger than the one in force, and sets
    no budget where there is none. The run is queued again and goes on from its records.
    """

    run: Budget = Budget()
    update: Budget = Budget()


class StackHealth(Contract):
    """`GET /healthz` of the gateway."""

    service: Literal["gateway"] = "gateway"
    version: str
    database: str
    """Schema revision."""
    runs: dict[str, int]
    """By state."""
