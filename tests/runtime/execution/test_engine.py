"""The engine in a trial: what it binds, how its program gets in, and what is kept of its log."""

import json
from pathlib import Path

from harbor.models.trial.config import TrialConfig
from pydantic import JsonValue

from runtime.execution import engine
from runtime.execution.harbor import Deadlines, trial_config
from runtime.execution.sandbox.options import LocalSandboxOptions
from runtime.execution.workplace import EnvironmentSpec
from specs.canonical import validate
from specs.launch import plan_launch
from specs.model import ModelInfo
from specs.profile import Binding, Profile
from tests.runtime.execution.bench import TOKEN, Bench

DOCUMENT: dict[str, JsonValue] = {
    "schema": "practicum.profile/v1",
    "name": "tests/native",
    "agent": {"model": "tiny", "engine": {"name": "claude-code", "version": "2.1.197"}},
}
PROFILE = validate(Profile, DOCUMENT, what="profile")
DIGEST = "sha256:" + "0" * 64


BLOTS = {TOKEN: "[model.token]"}


def model(context: int) -> ModelInfo:
    return ModelInfo(
        name="tiny",
        backend="torch",
        digest=DIGEST,
        tokenizer_digest=DIGEST,
        family="chatml",
        context_tokens=context,
        stop_tokens=(2,),
        trainable=True,
        parameters=1,
        present=True,
    )


def line(kind: str, text: str, **more: object) -> str:
    event = {
        "type": kind,
        "uuid": f"{kind}-{text}",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "sessionId": "s1",
        "cwd": "/app",
        "version": "2.1.197",
        "message": {"role": kind, "content": [{"type": "text", "text": text}], **more},
    }
    return json.dumps(event) + "\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_bindings_of_a_sandbox_complete_a_plan_and_name_the_models_limits() -> None:
    bindings = {
        **dict.fromkeys(Binding, "x"),
        **engine.engine_bindings(PROFILE.agent, model(131072)),
    }
    del bindings[Binding.WORKDIR]
    plan = plan_launch(PROFILE, bindings)
    assert plan.argv[0] == "/opt/practicum/claude-code/claude"
    assert plan.env["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "131072"
    assert plan.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "16384"
    assert plan.env["CLAUDE_CONFIG_DIR"] == engine.CONFIG


def test_the_program_is_a_read_only_tool_of_the_sandbox_and_a_mount_elsewhere() -> None:
    sandbox = EnvironmentSpec({"state_dir": "/s"}).with_tool(Path("/t/c"), engine.TOOL, DIGEST)
    (tool,) = LocalSandboxOptions.model_validate(dict(sandbox.kwargs)).tools
    assert (str(tool.source), tool.target, tool.version) == ("/t/c", engine.TOOL, DIGEST)
    docker = EnvironmentSpec({}, import_path="harbor.environments.docker.docker:DockerEnvironment")
    config = _config(docker.with_tool(Path("/t/c"), engine.TOOL, DIGEST))
    assert config.environment.mounts == [
        {"type": "bind", "source": "/t/c", "target": engine.TOOL, "read_only": True}
    ]


def _config(environment: EnvironmentSpec) -> TrialConfig:
    board = Bench(Path("/b"), Path("/s")).board("true", "x")
    deadlines = Deadlines(1, 1, 1, 1)
    return trial_config(
        board, Path("/task"), Path("/trials"), environment, deadlines, scored=True, agent="profile"
    )


def test_the_session_log_is_kept_and_converted_without_the_credential(tmp_path: Path) -> None:
    log = line("user", f"use {TOKEN}") + line("assistant", "done", model="tiny", id="m1")
    write(tmp_path / "agent/session/-app/s1.jsonl", log)
    write(tmp_path / "agent/session/-app/memory/MEMORY.md", "not part of the log")
    found = {
        item.path: item.data for item in engine.session_artifacts(tmp_path, PROFILE.agent, BLOTS)
    }
    assert found.keys() == {"session/-app/s1.jsonl", engine.TRAJECTORY}
    assert all(TOKEN.encode() not in data for data in found.values())
    trajectory = json.loads(found[engine.TRAJECTORY])
    assert [step["message"] for step in trajectory["steps"]] == ["use [model.token]", "done"]


def test_of_several_project_folders_the_longest_session_is_the_trajectory(tmp_path: Path) -> None:
    write(tmp_path / "agent/session/-tmp/s0.jsonl", line("user", "short"))
    write(tmp_path / "agent/session/-app/s1.jsonl", line("user", "long " * 20))
    found = engine.session_artifacts(tmp_path, PROFILE.agent, BLOTS)
    trajectory = json.loads(next(item.data for item in found if item.path == engine.TRAJECTORY))
    assert "long" in trajectory["steps"][0]["message"]


def test_links_that_were_planted_in_the_log_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text(line("user", "secret"))
    folder = tmp_path / "trial/agent/session/-app"
    folder.mkdir(parents=True)
    (folder / "s1.jsonl").symlink_to(secret)
    assert engine.session_artifacts(tmp_path / "trial", PROFILE.agent, BLOTS) == []


def test_of_a_task_with_steps_the_last_steps_log_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "steps/1-one/agent/session/-app/s1.jsonl", line("user", "one"))
    write(tmp_path / "steps/2-two/agent/session/-app/s1.jsonl", line("user", "two"))
    (log,) = engine.session_log(tmp_path, BLOTS)
    assert b"two" in log.data


def test_without_a_log_nothing_is_kept(tmp_path: Path) -> None:
    assert engine.session_artifacts(tmp_path, PROFILE.agent, BLOTS) == []
