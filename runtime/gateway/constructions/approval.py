"""Who may approve, and what the gateway approves by its own rules."""

from runtime.gateway.constructions.checks import Case, Found
from runtime.gateway.context import Caller
from runtime.gateway.refusals import conflict
from runtime.home import Role
from specs.construction_records import Approval, Approver, Review
from specs.errors import ErrorCode, ErrorObject, Forbidden


def approver_allowed(caller: Caller, kind: str) -> bool:
    """Whether a credential may approve as a person, a researcher or a policy. Only the
    operator's own key speaks for people."""
    return kind == "policy" or caller.role is Role.OPERATOR


def approve(case: Case, caller: Caller, approval: Approval) -> Found:
    """Check an approval; what it approves, by digest.

    Raises:
        Forbidden: `approval_refused`: the caller, or a rule of the policy that does not hold.
        Conflict: the approval is of something else.
    """
    history = case.history
    if not approver_allowed(caller, approval.approver.kind):
        raise _refused(
            case,
            f"The grant of a trial does not approve as a {approval.approver.kind}.",
            "Approve as a policy, or let a person approve.",
        )
    review = history.review
    if review is None or approval.subject != history.approval_subject:
        raise conflict(
            "The approval is of another version of the plan, of other probes or another review.",
            "construction",
            history.id,
            next="Read it again, and name the approval_subject of: practicum construction show"
            f" {history.id}",
        )
    if approval.approver.kind == "policy":
        _require_rules(case, approval.approver, Review.model_validate(review.record))
    return {
        "version": history.row.version,
        "plan": history.row.plan_digest,
        "probes": list(history.probes),
        "review": review.digest,
        "relevant": review.found["relevant"],
        "complete": review.found["complete"],
    }


def _require_rules(case: Case, approver: Approver, review: Review) -> None:
    """The rules of the gateway's policy, each named where it does not hold."""
    rules, broken = case.rules, list[str]()
    if approver.name != rules.policy:
        broken.append(f"this gateway's policy is named {rules.policy!r}")
    if not review.relevant:
        broken.append("the review does not find the probe relevant")
    if not review.complete:
        missing = [one.query for one in review.coverage if one.verdict != "covered"]
        broken.append(f"expected queries are not covered: {', '.join(missing)}")
    for field in ("trial_slots", "updates", "rows", "tokens", "seconds"):
        limit, asked = getattr(rules, f"max_{field}"), getattr(case.budget, field)
        if limit is not None and (asked is None or asked > limit):
            broken.append(f"budget.{field} is {asked}, and at most {limit} is approved by policy")
    if broken:
        raise _refused(
            case,
            f"The policy does not approve it: {'; '.join(broken)}.",
            "Meet the rules with a revised plan or a better probe, or ask a person to approve.",
        )


def _refused(case: Case, detail: str, step: str) -> Forbidden:
    return Forbidden(
        detail,
        code=ErrorCode.APPROVAL_REFUSED,
        object=ErrorObject(type="construction", id=case.history.id),
        next=step,
    )
