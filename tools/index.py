"""Every operation as plain data: noun, verb, one-line summary, and the modules that define it.

The command line builds its help from this alone; a test keeps it equal to the registry.
"""

from typing import Final

STACK: Final = "stack"
"""The noun whose verbs stand at the top level: `practicum up`."""

NOUNS: Final[dict[str, str]] = {
    "run": "Evaluations and the records of every run",
    "train": "Training and supervised runs",
    "checkpoint": "Saved models and where they come from",
    "update": "Optimizer steps, and settling one that is unresolved",
    "dataset": "Ordered lists of exact task versions",
    "profile": "Executable agent recipes",
    "agent": "Profiles on this machine: one prompt in a folder of your own",
    "session": "Model calls of `claude` and `agent run`, outside of any run",
    "journal": "Research records that another agent continues from",
    "model": "Models that a profile can name",
    "schema": "JSON Schemas of the contracts",
}

SHORT: Final[dict[str, tuple[str, str]]] = {"report": ("run", "report")}
"""Operations that also stand at the top level, by a name of their own."""

MODULES: Final[dict[str, tuple[str, ...]]] = {
    STACK: ("tools.stack",),
    "run": (
        "tools.run",
        "tools.run_records",
        "tools.evidence",
        "tools.compare",
        "tools.verify",
        "tools.lineage",
        "tools.report",
    ),
    "train": ("tools.train", "tools.train_check"),
    "checkpoint": ("tools.checkpoint", "tools.lineage"),
    "update": ("tools.update",),
    "dataset": ("tools.dataset",),
    "profile": ("tools.profile",),
    "agent": ("tools.agent",),
    "session": ("tools.session",),
    "journal": ("tools.journal",),
    "model": ("tools.model",),
    "schema": ("tools.schema",),
}

SUMMARIES: Final[dict[tuple[str, str], str]] = {
    (STACK, "up"): "Start the local stack, or see that it runs",
    (STACK, "status"): "Show each process of the local stack",
    (STACK, "down"): "Stop the local stack",
    ("run", "start"): "Start an evaluation",
    ("run", "list"): "List runs, newest first",
    ("run", "show"): "Show one run and why it is in its state",
    ("run", "wait"): "Wait until a run ends or is blocked",
    ("run", "events"): "Read a run's events from a cursor",
    ("run", "groups"): "List the sampling groups of a run",
    ("run", "trials"): "List the trials of a run with outcome and reward",
    ("run", "interactions"): "Read the model calls of a trial, tokens included",
    ("run", "updates"): "List the updates of a run",
    ("run", "checkpoints"): "List the checkpoints that a run saved",
    ("run", "result"): "Show the counts and scores of a run",
    ("run", "logs"): "Read worker, setup, harness and verifier logs",
    ("run", "compare"): "Compare two evaluations, paired by task",
    ("run", "comparisons"): "List recorded comparisons, newest first",
    ("run", "verify"): "Re-derive every recorded invariant of a run",
    ("run", "lineage"): "Show where a run's model came from and what used it",
    ("run", "report"): "Write a run as one page to look at",
    ("run", "extend"): "Raise a budget that stopped a run, and go on",
    ("run", "cancel"): "Cancel a run",
    ("train", "start"): "Start a training or supervised run",
    ("train", "check"): "Try a profile with learning rate 0, which must change nothing",
    ("train", "preview"): "Show the rows of a chat file with the tokens that are learned",
    ("checkpoint", "list"): "List checkpoints, newest first",
    ("checkpoint", "show"): "Show one checkpoint",
    ("checkpoint", "uses"): "Show what refers to a checkpoint",
    ("checkpoint", "export"): "Write a checkpoint as a folder that transformers and peft load",
    ("checkpoint", "delete"): "Delete a checkpoint, or its trainer state alone",
    ("checkpoint", "keep"): "Set how long trainer state is kept",
    ("checkpoint", "lineage"): "Show what moved a checkpoint, and what used it since",
    ("update", "show"): "Show one update and what contributed to it",
    ("update", "loss"): "Compute the loss of datums before an update's step",
    ("update", "resolve"): "Settle an unresolved update that blocks a run",
    ("dataset", "publish"): "Publish a folder of tasks as a dataset version",
    ("dataset", "list"): "List published datasets, newest first",
    ("dataset", "show"): "Show the tasks of a dataset",
    ("dataset", "select"): "Choose tasks by family or name, for a plan or a new dataset",
    ("profile", "validate"): "Check a profile and show its digest",
    ("profile", "publish"): "Publish a profile version",
    ("profile", "list"): "List published profiles, newest first",
    ("profile", "show"): "Show a published profile",
    ("profile", "diff"): "Show where two profiles differ",
    ("agent", "run"): "Run a profile's harness in a folder of your own",
    ("agent", "validate"): "Check a profile and whether its harness is installed",
    ("agent", "install"): "Install a pinned harness into the tool folder",
    ("session", "list"): "List sessions, newest first",
    ("session", "show"): "Show one session and what was captured of it",
    ("session", "close"): "End a session",
    ("journal", "new"): "Begin a journal",
    ("journal", "list"): "List the journals of this home",
    ("journal", "append"): "Add an entry to a journal, durably",
    ("journal", "show"): "Show a journal's entries, newest first",
    ("journal", "search"): "Find entries by text, kind, link and time",
    ("journal", "export"): "Write a journal as one file",
    ("model", "list"): "List the models that a profile can name",
    ("model", "pull"): "Bring a model into the cache and make it known",
    ("schema", "export"): "Write the JSON Schemas of all contracts",
}
