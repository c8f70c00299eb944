"""What comes next in each state, as a command."""

from specs.construction import ConstructionState

_S = ConstructionState
_NEXT = {
    _S.DRAFT: "Complete the plan, then: practicum construction record {id} propose",
    _S.PROPOSED: (
        "Make a small probe, with runs that say --construction {id}, then:"
        " practicum construction record {id} probe --files ROWS --runs RUN"
    ),
    _S.PROBED: (
        "Let somebody with fresh eyes look at plan and probe, then: practicum construction record"
        " {id} review --subject REVIEW_SUBJECT --reviewer NAME --coverage QUERY=covered"
    ),
    _S.REVIEWED: (
        "Ask for approval: practicum construction approve {id} --subject APPROVAL_SUBJECT"
        " --approver-kind person --approver NAME"
    ),
    _S.APPROVED: (
        "Make the data and record it (practicum construction record {id} bulk), or train with"
        " --construction {id}"
    ),
    _S.EXECUTING: (
        "Train with --construction {id} and record it: practicum construction record {id} training"
    ),
    _S.TRAINING: (
        "Compare the checkpoint with the baseline on the held-out dataset, then:"
        " practicum construction record {id} outcome"
    ),
    _S.FINISHED: "It is finished; make a new construction for further work.",
}


def next_step(construction: str, state: ConstructionState) -> str:
    """The step that a construction waits for."""
    return _NEXT[state].format(id=construction)
