"""The operator's client: everything that tools, CLI and MCP do to the gateway."""

from typing import Literal

from runtime.client.reads import Verified
from runtime.client.roles import ModelAnnouncer
from runtime.client.segment import segment
from runtime.home import Role
from specs.comparison import ComparisonRecord, ComparisonSubmission
from specs.construction_records import (
    Approval,
    Construction,
    ConstructionRevision,
    ConstructionSubmission,
    Record,
    RecordRequest,
)
from specs.dataset import Dataset
from specs.operator_api import (
    Extend,
    KeepState,
    ProfilePublish,
    Published,
    Resolve,
    Session,
    SessionOpened,
    SessionPage,
    SessionRequest,
    Started,
    UiLink,
    UiLinkRequest,
)
from specs.records import Checkpoint, Update
from specs.run import Admission, Run, Submission

__all__ = ["OperatorClient", "Verified"]


class OperatorClient(ModelAnnouncer):
    """Reads of every role, and what changes runs and published documents."""

    role = Role.OPERATOR
    patience = 1.0
    """A person or an agent would rather know."""

    async def publish_dataset(self, dataset: Dataset) -> Published:
        """Publish a dataset whose task packages have been uploaded.

        Raises:
            Conflict: `version_exists`: that version has other content.
        """
        return await self.transport.call(
            "POST", "/v1/datasets", Published, body=dataset, idempotent=True
        )

    async def publish_profile(self, request: ProfilePublish) -> Published:
        """Publish a profile; files with a `source` are refused (embed them first)."""
        return await self.transport.call(
            "POST", "/v1/profiles", Published, body=request, idempotent=True
        )

    async def ui_link(self, path: str) -> UiLink:
        """A link at which a browser on this machine reads a page, once."""
        return await self.transport.call(
            "POST", "/v1/ui/links", UiLink, body=UiLinkRequest(path=path)
        )

    async def record_comparison(self, submission: ComparisonSubmission) -> ComparisonRecord:
        """Record a comparison; the same again is the record there is."""
        return await self.transport.call(
            "POST", "/v1/comparisons", ComparisonRecord, body=submission, idempotent=True
        )

    async def create_construction(self, submission: ConstructionSubmission) -> Construction:
        """Keep a draft of a construction plan; the same again is the one there is."""
        return await self.transport.call(
            "POST", "/v1/constructions", Construction, body=submission, idempotent=True
        )

    async def revise_construction(
        self, construction: str, revision: ConstructionRevision
    ) -> Construction:
        """The next version of a plan, in draft; repeating it makes no other version.

        Raises:
            Conflict: the version that it replaces is not the present one.
        """
        path = f"/v1/constructions/{segment(construction)}/revise"
        return await self.transport.call("POST", path, Construction, body=revision, idempotent=True)

    async def record_construction(self, construction: str, record: Record) -> Construction:
        """Take one step of a construction; repeating the last one is harmless.

        Raises:
            Conflict: its state, or its budget, excludes the step.
        """
        path = f"/v1/constructions/{segment(construction)}/records"
        request = RecordRequest(record=record)
        return await self.transport.call("POST", path, Construction, body=request, idempotent=True)

    async def approve_construction(self, construction: str, approval: Approval) -> Construction:
        """Approve a plan, its probes and their review, by digest.

        Raises:
            Forbidden: `approval_refused`.
        """
        path = f"/v1/constructions/{segment(construction)}/approve"
        return await self.transport.call("POST", path, Construction, body=approval, idempotent=True)

    async def start(self, submission: Submission, *, idempotency_key: str | None = None) -> Started:
        """Admit a run. With a key the request may be repeated and gives one run.

        Raises:
            Conflict: `idempotency_conflict`: the key was used with another body.
        """
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        return await self.transport.call(
            "POST",
            "/v1/runs",
            Started,
            body=submission,
            headers=headers,
            idempotent=idempotency_key is not None,
        )

    async def dry_run(self, submission: Submission) -> Admission:
        """What a run would be admitted with; stores nothing."""
        return await self.transport.call(
            "POST", "/v1/runs/dry-run", Admission, body=submission, idempotent=True
        )

    async def cancel(self, run: str) -> Run:
        """Ask for cancellation; repeating it is harmless."""
        return await self.transport.call(
            "POST", f"/v1/runs/{segment(run)}/cancel", Run, idempotent=True
        )

    async def delete_checkpoint(self, checkpoint: str, *, state_only: bool = False) -> Checkpoint:
        """Forget a checkpoint, or its trainer state alone; repeating it is harmless.

        Raises:
            Conflict: `checkpoint_in_use`.
        """
        return await self.transport.call(
            "DELETE",
            f"/v1/checkpoints/{segment(checkpoint)}",
            Checkpoint,
            params={"state_only": str(state_only).lower()},
            idempotent=True,
        )

    async def keep_checkpoint(self, checkpoint: str, seconds: float | None) -> Checkpoint:
        """Keep trainer state for so long from now on; None = for good."""
        return await self.transport.call(
            "POST",
            f"/v1/checkpoints/{segment(checkpoint)}/keep",
            Checkpoint,
            body=KeepState(seconds=seconds),
        )

    async def extend(self, run: str, more: Extend) -> Run:
        """Raise budgets of a run that has spent one, and queue it again."""
        return await self.transport.call("POST", f"/v1/runs/{segment(run)}/extend", Run, body=more)

    async def open_session(self, request: SessionRequest) -> SessionOpened:
        """Record a session; its credential is told this once. Repeating it opens no other one."""
        return await self.transport.call(
            "POST", "/v1/sessions", SessionOpened, body=request, idempotent=True
        )

    async def end_session(self, session: str) -> Session:
        """End a session; repeating it is harmless."""
        return await self.transport.call(
            "POST", f"/v1/sessions/{segment(session)}/end", Session, idempotent=True
        )

    async def session(self, session: str) -> Session:
        """One session."""
        return await self.transport.call("GET", f"/v1/sessions/{segment(session)}", Session)

    async def sessions(self, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        """Sessions, newest first."""
        return await self.transport.call(
            "GET", "/v1/sessions", SessionPage, params={"limit": limit, "cursor": cursor}
        )

    async def resolve(
        self, run: str, update: str, decision: Literal["applied", "not-applied", "abandon"]
    ) -> Update:
        """Settle the unresolved update that blocks a run."""
        return await self.transport.call(
            "POST",
            f"/v1/runs/{segment(run)}/updates/{segment(update)}/resolve",
            Update,
            body=Resolve.model_validate({"as": decision}),
        )
