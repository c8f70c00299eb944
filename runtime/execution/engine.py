"""The engine `claude-code` inside a trial: where its program, configuration and session log are.

The pinned program is mounted read-only from the worker's tool folder. Each trial has its own
configuration folder; of what the harness leaves there the session log (`projects/**.jsonl`) is
copied into the trial's logs, kept as artifacts, and converted into an ATIF trajectory with
Harbor's own converter. What lies in the log was written from inside a sandbox: it is read
bounded, links are never followed, and the trial's credential is blotted out.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from runtime.execution.blots import Blots, blotted
from runtime.execution.collect import Collected, collect_tree
from specs import claude_code
from specs.model import ModelInfo
from specs.profile import Agent, Binding

TOOL = "/opt/practicum/claude-code"
_STATE = "/var/tmp/practicum"
CONFIG = f"{_STATE}/claude"
SCRATCH = f"{_STATE}/scratch"
SESSION = "session"
"""Folder of the session log in a trial's logs, and prefix of its artifacts."""
TRAJECTORY = f"{SESSION}/trajectory.json"


def engine_bindings(agent: Agent, info: ModelInfo) -> dict[Binding, str]:
    """What a trial's sandbox and the effective model bind."""
    most = claude_code.output_tokens(info.context_tokens, agent.sampling.max_tokens)
    return {
        Binding.MODEL_CONTEXT_TOKENS: str(info.context_tokens),
        Binding.MODEL_MAX_OUTPUT_TOKENS: str(most),
        Binding.ENGINE_PROGRAM: f"{TOOL}/claude",
        Binding.ENGINE_CONFIG: CONFIG,
        Binding.ENGINE_SCRATCH: SCRATCH,
        Binding.ENGINE_PERMISSIONS: claude_code.BYPASS,
    }


def keep_session(logs: PurePosixPath) -> str:
    """A command that copies the session log, if there is one, into the trial's logs."""
    return (
        f"if [ -d {CONFIG}/projects ] && [ ! -L {CONFIG}/projects ]; then"
        f" rm -rf {logs}/{SESSION} && cp -rPT {CONFIG}/projects {logs}/{SESSION}; fi"
    )


def session_artifacts(trial: Path, agent: Agent, blots: Blots) -> list[Collected]:
    """Session log and trajectory of a trial's folder on the host; empty where there is none.

    A log that Harbor's converter does not take raises whatever the converter raises; the log
    itself can still be kept by `session_log`.
    """
    log = session_log(trial, blots)
    return [*log, *_trajectory(log, agent)]


def session_log(trial: Path, blots: Blots) -> list[Collected]:
    """The session log as artifacts; of a task with steps, the last step's, which has all."""
    folders = [trial / "agent", *sorted((trial / "steps").glob("*/agent"))]
    for folder in reversed(folders):
        found = [item for item in collect_tree(folder / SESSION) if item.path.endswith(".jsonl")]
        if found:
            return [
                Collected(f"{SESSION}/{item.path}", blotted(item.data, blots), item.truncated)
                for item in found
            ]
    return []


def _trajectory(log: Sequence[Collected], agent: Agent) -> list[Collected]:
    """The log as an ATIF trajectory."""
    from harbor.agents.installed.claude_code import ClaudeCode

    project = _main_project(log)
    if project is None:
        return []
    with tempfile.TemporaryDirectory(prefix="practicum-session-") as name:
        root = Path(name)
        for item in log:
            if item.path.startswith(f"{project}/"):
                path = root / "sessions" / "projects" / item.path.removeprefix(f"{SESSION}/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(item.data)
        model = claude_code.wire_model(agent.model)
        converter = ClaudeCode(root, model_name=model, version=agent.engine.version)
        trajectory = converter.convert_trajectory(root)
    if trajectory is None:
        return []
    document: Mapping[str, Any] = trajectory.to_json_dict()
    data = json.dumps(document, ensure_ascii=False, indent=1).encode()
    return [Collected(TRAJECTORY, data, truncated=False)]


def _main_project(log: Sequence[Collected]) -> str | None:
    """The folder of the longest session; a harness that changed folders has several."""
    sizes: dict[str, int] = {}
    for item in log:
        parts = item.path.split("/")
        if len(parts) > 2:
            project = "/".join(parts[:2])
            sizes[project] = sizes.get(project, 0) + len(item.data)
    return max(sizes, key=lambda project: sizes[project], default=None)
