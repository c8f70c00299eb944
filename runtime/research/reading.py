"""Reading the facts of an episode: records over the gateway's protocol, the agent's files here.

What the agent wrote is read as somebody else's: a file that is missing, damaged, larger than it
may be or outside the outcome's folder is a problem of the episode and no failure of the verifier.
A gateway that is away is one, and raises.
"""

from collections.abc import Awaitable, Sequence
from pathlib import Path

import anyio.to_thread

from journals import Journal
from runtime.client import OperatorClient
from runtime.folders import file_below, path_below
from runtime.research.evidence import sub_agents
from runtime.research.facts import (
    Facts,
    JournalFacts,
    SubAgent,
    TrainedRows,
    moment,
    trained_file,
)
from runtime.research.steps import result_of
from runtime.specialist.check import Check
from runtime.specialist.leaks import HeldOutTask
from runtime.specialist.reading import seal
from specs import canonical, evidence
from specs.chat import File
from specs.comparison import ComparisonRecord
from specs.construction_records import Construction
from specs.dataset import Dataset
from specs.episode import Episode, EpisodeOutcome
from specs.errors import InvalidInput, NotFound, PracticumError
from specs.ids import Prefix, is_id
from specs.interaction import Seal
from specs.model_spec import ModelSpec
from specs.package import files
from specs.run import Run

MAX_FINDINGS = 20
"""Of one file; one is enough for the verdict."""
MAX_SPEC_BYTES = 8 << 20
_PAGE = 200


async def gather(
    gateway: OperatorClient,
    episode: Episode,
    outcome: EpisodeOutcome,
    folder: Path,
    work: Sequence[str],
) -> Facts:
    """The facts of the episode whose outcome lies in `folder`.

    `work` names the trial or the sessions in which agents worked. On cancel nothing is left.

    Raises:
        NotFound: there is no such trial or session.
        PracticumError: the gateway cannot be read.
    """
    began = await began_at(gateway, work)
    problems: list[str] = []
    construction = await _there(gateway.construction(outcome.construction))
    spec = await anyio.to_thread.run_sync(_spec, folder, outcome.model_spec, problems)
    journal = await anyio.to_thread.run_sync(_journal, folder, outcome.journal, problems)
    dataset = await _there(gateway.dataset(episode.held_out))
    comparison = await _comparison(gateway, construction)
    own = await _own(gateway, work, began)
    runs = await _runs(gateway, construction, comparison, own)
    result = construction and result_of(construction)
    named = result.checkpoint if result else None
    tasks = dataset.value if dataset else None
    return Facts(
        episode=episode,
        began=began,
        problems=tuple(problems),
        construction=construction,
        runs=runs,
        own=own,
        checkpoint=await _there(gateway.checkpoint(named)) if named else None,
        comparison=comparison,
        held_out={task.name: task.digest for task in tasks.tasks} if tasks else {},
        held_out_digest=dataset.digest if dataset else None,
        spec_digest=canonical.digest(spec) if spec else None,
        rows=await _rows(gateway, runs, spec, tasks),
        journal=journal,
        sub_agents=tuple([one for name in work for one in await _evidence(gateway, name)]),
    )


async def began_at(gateway: OperatorClient, work: Sequence[str]) -> str:
    """When the first of some trials or sessions was opened."""
    times = [(await _work(gateway, name))[0] for name in work]
    return min(times, key=moment)


async def _there[T](read: Awaitable[T]) -> T | None:
    """What is read, or None where it does not exist or is no name of anything."""
    try:
        return await read
    except (NotFound, InvalidInput):
        return None


async def _work(gateway: OperatorClient, work: str) -> tuple[str, Seal | None]:
    if is_id(work, Prefix.SESSION):
        session = await gateway.session(work)
        return session.created_at, session.seal
    trial = await gateway.trial(work)
    return trial.opened_at, await _there(gateway.trial_seal(work))


async def _comparison(
    gateway: OperatorClient, construction: Construction | None
) -> ComparisonRecord | None:
    """The comparison that the recorded outcome names."""
    result = construction and result_of(construction)
    if not result or result.comparison is None:
        return None
    cursor: str | None = None
    while True:
        page = await gateway.comparisons(limit=_PAGE, cursor=cursor)
        for record in page.items:
            if record.id == result.comparison:
                return record
        cursor = page.next
        if cursor is None:
            return None


async def _own(gateway: OperatorClient, work: Sequence[str], began: str) -> tuple[str, ...] | None:
    """Runs that the grants of trials started; a session starts them as its operator."""
    if not all(is_id(name, Prefix.TRIAL) for name in work):
        return None
    found: list[str] = []
    cursor: str | None = None
    while True:
        page = await gateway.runs(limit=_PAGE, cursor=cursor)
        found += [one.id for one in page.items if one.started_by and one.started_by.trial in work]
        cursor = page.next
        if cursor is None or moment(page.items[-1].created_at) < moment(began):
            return tuple(sorted(found))


async def _runs(
    gateway: OperatorClient,
    construction: Construction | None,
    comparison: ComparisonRecord | None,
    own: tuple[str, ...] | None,
) -> dict[str, Run]:
    admitted = construction.runs if construction else []
    names = {*(own or ()), *(one.run for one in admitted)}
    if comparison is not None:
        compared = comparison.comparison
        names |= {compared.baseline.run, compared.candidate.run}
    found = {name: await _there(gateway.run(name)) for name in sorted(names)}
    return {name: run for name, run in found.items() if run is not None}


async def _rows(
    gateway: OperatorClient,
    runs: dict[str, Run],
    spec: ModelSpec | None,
    dataset: Dataset | None,
) -> tuple[TrainedRows, ...]:
    """Every file that a run learned from, checked row by row."""
    used: dict[str, list[str]] = {}
    for run in runs.values():
        source = trained_file(run)
        if source is not None and source.digest is not None:
            used.setdefault(source.digest, []).append(run.id)
    held_out = await _held_out(gateway, dataset) if used and dataset else ()
    found: list[TrainedRows] = []
    for digest, names in sorted(used.items()):
        data = await _there(gateway.object(digest))
        rows = TrainedRows(digest=digest, runs=tuple(names), readable=False)
        if data is not None and spec is not None:
            rows = await anyio.to_thread.run_sync(_checked, rows, data, spec, held_out)
        found.append(rows)
    return tuple(found)


async def _held_out(gateway: OperatorClient, dataset: Dataset) -> tuple[HeldOutTask, ...]:
    found: list[HeldOutTask] = []
    for task in dataset.tasks:
        package = files(await gateway.object(task.digest))
        instruction = package.get("instruction.md", b"")
        solution = package.get("solution/solve.sh")
        found.append(
            HeldOutTask.of(
                task.name,
                instruction.decode("utf-8", "replace"),
                None if solution is None else solution.decode("utf-8", "replace"),
            )
        )
    return tuple(found)


def _checked(
    rows: TrainedRows, data: bytes, spec: ModelSpec, held_out: tuple[HeldOutTask, ...]
) -> TrainedRows:
    try:
        found = list(Check(spec, held_out).findings(File.of(rows.digest, data).rows()))
    except PracticumError:
        return rows
    return rows.model_copy(update={"readable": True, "findings": tuple(found[:MAX_FINDINGS])})


def _spec(folder: Path, source: str, problems: list[str]) -> ModelSpec | None:
    try:
        path = file_below(folder, source, "outcome")
        if path.stat().st_size > MAX_SPEC_BYTES:
            raise OSError(f"it is larger than {MAX_SPEC_BYTES >> 20} MiB")
        value = canonical.loads(path.read_bytes(), what="model-spec")
        if not isinstance(value, dict):
            raise OSError("it is no JSON object")
        return seal(value, path.parent)
    except (OSError, ValueError, PracticumError) as error:
        problems.append(f"the model specification {source} cannot be read: {error}")
        return None


def _journal(folder: Path, source: str, problems: list[str]) -> JournalFacts | None:
    try:
        journal = Journal(path_below(folder, source, "outcome")[0])
    except ValueError as error:
        problems.append(f"the journal {source} cannot be read: {error}")
        return None
    return _entries(journal)


def _entries(journal: Journal) -> JournalFacts | None:
    try:
        problems = journal.verify()
        damage = tuple(
            f"the journal is damaged at byte {one.byte}: {one.cause}" for one in problems
        )
        entries = () if problems else tuple(journal.entries())
    except PracticumError:
        return None
    return JournalFacts(entries=entries, problems=damage)


async def _evidence(gateway: OperatorClient, work: str) -> tuple[SubAgent, ...]:
    _, sealed = await _work(gateway, work)
    if sealed is None or sealed.object is None:
        return ()
    data = await gateway.object(sealed.object)
    return await anyio.to_thread.run_sync(lambda: sub_agents(evidence.interactions(data)))
