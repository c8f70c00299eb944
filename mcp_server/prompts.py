"""Prompts: the work that comes up again and again, as the calls that do it and when to stop.

A prompt is what a user picks by name; skills of the plugin go into more detail.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import mcp_types as types

from mcp_server.offers import PromptOffer


@dataclass(frozen=True, slots=True)
class Recipe:
    """A prompt: its arguments with a word on each (an optional one ends in `?`), and its text,
    in which `{argument}` stands for what was given."""

    name: str
    about: str
    arguments: Mapping[str, str]
    text: str


RECIPES = (
    Recipe(
        "specialise",
        "Make a small model good at something, and show that it is",
        {
            "request": "What the model is to be good at, and from which files",
            "model?": "Base model or checkpoint to start from",
        },
        """\
Make a model good at this: {request}
Start from the model: {model}

1. Look first: journal_list (and journal_show: has another begun?), stack_status, model_list,
   dataset_list, profile_list, run_list, checkpoint_list. Say what is there, and reuse it. If there
   is no journal of this work, journal_new; journal_append what you find out and decide as you go.
2. Write down what the model will have when it works (instructions, tools, files) and what counts
   as good: model_spec_create, model_spec_validate. Decide what belongs into weights, into
   instructions, and into tools; if instructions alone may do, measure that first.
3. Split tasks before anything is trained: dataset_publish, then dataset_split. The held-out part
   is for comparing, once.
4. model_spec_render gives the profile: profile_validate, profile_publish. Baseline: run_start on
   the held-out tasks with dry_run, then without; run_wait; run_result.
5. construction_create: deployment, queries, data, method, assessment, budget in one plan (method
   none, if instructions do). construction_record kind propose; then a small probe of the data:
   read its rows with train_preview as the model would, model_spec_check them, record kind probe;
   have them reviewed with fresh eyes, record kind review.
6. Show the user plan, probe, review and cost (train_start with dry_run), wait for a yes, and
   construction_approve with who said it. Only then make the rest of the data: kind bulk.
7. train_start with construction and an idempotency_key; run_wait; run_updates; run_verify.
8. Put the checkpoint of run_checkpoints into agent.model of the same profile, run_start it on the
   held-out part, run_compare with the baseline. Report better, worse or inconclusive as it says,
   and journal_append it.
Stop and ask when a budget would be passed, a check fails twice, or the comparison is not better.
""",
    ),
    Recipe(
        "read_result",
        "Say what a run shows, and what it does not",
        {"run": "Run id"},
        """\
Read the run {run} and say what it shows.

1. run_show: kind, state and, if it did not complete, the reason.
2. run_result: do not mix up slots, trials, tasks and updates. A missing reward is a reason, not 0.
3. run_trials: which tasks failed and how; run_transcript of one good and two bad trials, and
   run_logs where a trial ended without a reward.
4. For a training run: run_updates (loss, kl, trained tokens), run_checkpoints, run_lineage.
5. run_verify: every recorded invariant still holds.
Say the numbers with their counts, name two trials as evidence, and say what is still unknown.
""",
    ),
    Recipe(
        "compare_checkpoints",
        "Compare two checkpoints, or a checkpoint with its base, honestly",
        {
            "baseline": "Run of the baseline, or checkpoint or model to run",
            "candidate": "Run of the candidate, or checkpoint to run",
            "dataset?": "Held-out dataset, org/name@version",
        },
        """\
Compare {candidate} (candidate) with {baseline} (baseline) on: {dataset}

1. Where a side is a checkpoint or model: checkpoint_show, checkpoint_lineage (was it trained on
   these tasks?), then run_start of the same profile with only agent.model changed, the same plan
   and the same dataset for both sides. profile_diff must say that only the model differs.
2. run_wait for each, then run_comparisons: how often has this dataset been looked at already?
3. run_compare once. The verdict is better, worse or inconclusive; repeat its caveats.
4. Read two tasks that were fixed and two that broke with run_trials and run_transcript.
Do not start more attempts until a difference appears: that spends the held-out tasks.
""",
    ),
    Recipe(
        "recover_run",
        "Find out why a run is stuck, and set it going or end it",
        {"run": "Run id"},
        """\
The run {run} does not go on. Find out why and do the smallest thing that helps.

1. run_show: state and reason; do what `next` of the reason says. stack_status: are all processes
   up?
2. run_events from the last page; run_logs of source worker.
3. Blocked by an unresolved update: update_show, then update_resolve as it says. By a spent budget:
   ask the user, then run_extend. By a missing model: model_list, model_pull.
4. run_wait again. What was recorded is never repeated, so do not start the same work anew.
Ask before run_cancel; it ends the run, and its records stay.
""",
    ),
)


def prompt_offers() -> tuple[PromptOffer, ...]:
    """Every prompt."""
    return tuple(_offer(recipe) for recipe in RECIPES)


def _offer(recipe: Recipe) -> PromptOffer:
    names = {name.removesuffix("?"): name for name in recipe.arguments}

    def messages(given: Mapping[str, str]) -> list[types.PromptMessage]:
        values = {name: given.get(name) or "(not said)" for name in names}
        text = recipe.text.format_map(values)
        return [types.PromptMessage(role="user", content=types.TextContent(text=text))]

    listed = types.Prompt(
        name=recipe.name,
        title=recipe.about,
        description=recipe.about,
        arguments=[
            types.PromptArgument(
                name=name,
                description=recipe.arguments[written],
                required=not written.endswith("?"),
            )
            for name, written in names.items()
        ],
    )
    return PromptOffer(listed, messages)
