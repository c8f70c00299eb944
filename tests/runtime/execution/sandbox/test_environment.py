"""The sandbox as a Harbor environment: whole trials, and what a task may not ask for."""

import socket
from pathlib import Path
from typing import Any

import anyio
import pytest
from harbor.models.task.config import EnvironmentConfig as TaskEnvironment
from harbor.models.task.config import NetworkMode, NetworkPolicy
from harbor.models.trial.config import (
    AgentConfig,
    EnvironmentConfig,
    TaskConfig,
    TrialConfig,
    VerifierConfig,
)
from harbor.models.trial.paths import TrialPaths
from harbor.models.trial.result import TrialResult
from harbor.trial.trial import Trial

from runtime.execution.sandbox import cgroups
from runtime.execution.sandbox.environment import LocalSandboxEnvironment
from runtime.execution.sandbox.network import NetworkPlan
from specs.errors import ErrorCode, InvalidInput, PracticumError
from tests.runtime.execution.sandbox.support import write_task

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.sandbox,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
IMPORT_PATH = "runtime.execution.sandbox.environment:LocalSandboxEnvironment"


async def run_trial(
    task: Path, agent: str, state: Path, folder: Path, **options: Any
) -> tuple[TrialResult, Path]:
    trial = await Trial.create(
        TrialConfig(
            task=TaskConfig(path=task),
            trials_dir=folder / "trials",
            agent=AgentConfig(name=agent),
            environment=EnvironmentConfig(
                import_path=IMPORT_PATH, kwargs={"state_dir": str(state), **options}
            ),
            verifier=VerifierConfig(),
        )
    )
    return await trial.run(), trial.paths.trial_dir


def environment(folder: Path, state: Path, **config: Any) -> LocalSandboxEnvironment:
    options = config.pop("options", {})
    policy = config.pop("policy", NetworkPolicy(network_mode=NetworkMode.NO_NETWORK))
    directory = folder / "environment"
    directory.mkdir(parents=True, exist_ok=True)
    paths = TrialPaths(folder / "trial")
    paths.mkdir()
    return LocalSandboxEnvironment(
        environment_dir=directory,
        environment_name="x",
        session_id="x__env",
        trial_paths=paths,
        task_env_config=TaskEnvironment(**config),
        network_policy=policy,
        state_dir=state,
        **options,
    )


async def test_oracle_gets_one_and_nop_gets_zero(state: Path, tmp_path: Path) -> None:
    task = write_task(
        tmp_path / "hello", environment='network_mode = "no-network"\nmemory_mb = 256\ncpus = 1'
    )
    result, folder = await run_trial(task, "oracle", state, tmp_path, max_download_mb=1)
    assert result.exception_info is None
    assert result.verifier_result and result.verifier_result.rewards == {"reward": 1.0}
    got = folder / "artifacts/app/out"
    assert sorted(p.name for p in got.iterdir()) == ["answer"]
    result, _ = await run_trial(task, "nop", state, tmp_path)
    assert result.verifier_result and result.verifier_result.rewards == {"reward": 0.0}
    assert not any(p.is_dir() for p in (state / "run").iterdir()), "no trial leaves a directory"


@pytest.mark.parametrize(
    ("baseline", "declared"), [(NetworkMode.NO_NETWORK, True), (NetworkMode.PUBLIC, False)]
)
def test_an_agent_with_a_loopback_base_url_runs_without_network(
    state: Path, tmp_path: Path, baseline: NetworkMode, declared: bool
) -> None:
    """Harbor adds the host of the agent's base_url to the phase of a no-network task."""
    loopback = NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["127.0.0.1"])
    config = {"network_mode": baseline} if declared else {}
    env = environment(
        tmp_path,
        state,
        policy=NetworkPolicy(network_mode=baseline),
        options={"phase_network_policies": [loopback] if declared else [NetworkPolicy()]},
        **config,
    )
    assert env.network == NetworkPlan("none", declared=declared)


async def test_a_separate_verifier_gets_the_artifacts_alone(state: Path, tmp_path: Path) -> None:
    task = write_task(tmp_path / "hello", environment='network_mode = "no-network"')
    config = (task / "task.toml").read_text()
    config += 'environment_mode = "separate"\n[verifier.environment]\nnetwork_mode = "no-network"\n'
    (task / "task.toml").write_text(config)
    (task / "tests/Dockerfile").write_text("FROM debian\nCOPY test.sh /tests/test.sh\n")
    result, _ = await run_trial(task, "oracle", state, tmp_path, max_download_mb=1)
    assert result.exception_info is None
    assert result.verifier_result and result.verifier_result.rewards == {"reward": 1.0}


async def test_the_dockerfile_subset_is_replayed(state: Path, tmp_path: Path) -> None:
    directory = tmp_path / "environment"
    (directory / "data/sub").mkdir(parents=True)
    (directory / "data/sub/a").write_text("A")
    (directory / "data/b").write_text("B")
    (directory / "one file").write_text("1")
    (directory / "Dockerfile").write_text(
        'FROM python:3.12-slim\nARG WHO=nobody\nENV GREETING="hello there" PATH=/x:/usr/bin:/bin\n'
        "WORKDIR /app\nWORKDIR sub\nCOPY data ./\nCOPY --chown=$WHO data/b [x] /y/\n"
        'COPY ["one file", "/z"]\nRUN echo "$GREETING $WHO" > built && rm -rf /usr/share/man\n'
        'RUN ["cp", "/z", "/zz"]\nSHELL ["/bin/bash", "-c"]\nRUN [[ a == a ]] && echo $0 > shell\n'
        "USER nobody\nEXPOSE 80\nCMD true\n".replace(" [x]", "")
    )
    env = environment(tmp_path, state)
    await env.start(force_build=False)
    try:
        done = await env.exec(
            "pwd; cat built sub/a b /z /zz; stat -c %U /y/b; id -un; ls /usr/share/man;"
            "echo $GREETING"
        )
        assert done.stdout is not None
        assert done.stdout.split("\n")[:2] == ["/app/sub", "hello there nobody"]
        assert "AB11nobody\nnobody\nhello there\n" in done.stdout
        version = env.environment_version
    finally:
        await env.stop(delete=True)
    layers = sorted((state / "layers").iterdir())
    same = environment(tmp_path, state)
    await same.start(force_build=False)
    await same.stop(delete=True)
    assert sorted((state / "layers").iterdir()) == layers, "the layer is used again"
    assert version.startswith("sha256:")


async def test_a_build_that_fails_names_the_line_and_leaves_nothing(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_text("FROM debian\nRUN echo why >&2; exit 3\n")
    env = environment(tmp_path, state)
    with pytest.raises(InvalidInput, match=r"line 2: RUN .* status 3: why") as caught:
        await env.start(force_build=False)
    assert "no network" in str(caught.value.problem.next)
    assert not any(p.is_dir() for p in (state / "run").iterdir())


async def test_a_copy_does_not_leave_the_context(state: Path, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "secret").write_text("s")
    (tmp_path / "environment/link").symlink_to(tmp_path / "secret")
    for source in ("../secret", "link", "missing"):
        (tmp_path / "environment/Dockerfile").write_text(f"FROM debian\nCOPY {source} /x\n")
        env = environment(tmp_path, state)
        with pytest.raises(InvalidInput, match="line 2"):
            await env.start(force_build=False)


async def test_concurrent_trials_of_one_task_build_once(state: Path, tmp_path: Path) -> None:
    (tmp_path / "environment").mkdir()
    text = f"FROM debian\nRUN sleep 0.3; echo {tmp_path} > /made\n"
    (tmp_path / "environment/Dockerfile").write_text(text)
    before = len(list((state / "layers").iterdir())) if (state / "layers").exists() else 0

    async def one() -> None:
        env = environment(tmp_path, state)
        await env.start(force_build=False)
        assert (await env.exec("cat /made")).stdout == f"{tmp_path}\n"
        await env.stop(delete=True)

    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(one)
    assert len(list((state / "layers").iterdir())) == before + 2  # the layer and its lock


async def test_identity_and_facts_are_there_for_the_record(state: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, state)
    with pytest.raises(PracticumError, match="before it is started"):
        _ = env.environment_version
    await env.start(force_build=False)
    try:
        facts = env.environment_facts
        assert facts["network"] == {"mode": "none", "declared": False}
        assert set(facts["enforced"]) >= {"memory", "pids"} & cgroups.available()  # pyright: ignore[reportArgumentType]
        assert env.environment_version != env.environment_facts["image"]
    finally:
        await env.stop(delete=True)


async def test_a_timeout_is_what_harbor_expects(state: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, state)
    await env.start(force_build=False)
    try:
        with pytest.raises(RuntimeError, match="Command timed out after 1 seconds"):
            await env.exec("sleep 100", timeout_sec=1)
        assert (await env.exec("exit 3")).return_code == 3
        assert await env.is_dir("/usr")
    finally:
        await env.stop(delete=True)


async def test_filtered_downloads_select_like_tar_and_fnmatch(state: Path, tmp_path: Path) -> None:
    env = environment(tmp_path, state)
    await env.start(force_build=False)
    try:
        await env.exec(
            "mkdir -p /d/node_modules/x /d/s; touch /d/node_modules/x/f /d/s/a.log /d/s/b /d/c;"
            "ln -s /etc /d/s/evil"
        )
        await env.download_dir_with_exclusions(
            source_dir="/d", target_dir=tmp_path / "one", exclude=["node_modules", "*.log"]
        )
        await env.download_dir_filtered(
            source_dir="/d",
            target_dir=tmp_path / "two",
            include=["s/*"],
            exclude=["*.log"],
            protect=["c"],
        )
    finally:
        await env.stop(delete=True)

    def files(name: str) -> list[str]:
        top = tmp_path / name
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if not p.is_dir())

    assert files("one") == ["c", "s/b"]
    assert files("two") == ["c", "s/b"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"policy": NetworkPolicy(), "network_mode": NetworkMode.PUBLIC}, "public"),
        (
            {
                "policy": NetworkPolicy(
                    network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["pypi.example"]
                )
            },
            "pypi.example",
        ),
        ({"docker_image": "acme/special:1"}, "acme/special:1"),
    ],
)
def test_what_it_cannot_do_is_refused_before_it_starts(
    state: Path, tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        environment(tmp_path, state, **config)
    assert caught.value.problem.code is ErrorCode.SANDBOX_UNSUPPORTED
    assert caught.value.problem.next


def test_unknown_options_and_mounts_are_refused(state: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="automatic host mounts"):
        environment(tmp_path, state, options={"auto_mounting": True})
    mount = {"type": "bind", "source": "/root", "target": "/x"}
    with pytest.raises(InvalidInput, match="mounts no folder"):
        environment(tmp_path, state, options={"mounts": [mount]})
    with pytest.raises(ValueError, match="target"):
        environment(tmp_path, state, options={"forward_ports": [{"port": 1, "target": "x:1"}]})


async def test_public_network_is_the_hosts_when_allowed(state: Path, tmp_path: Path) -> None:
    env = environment(
        tmp_path,
        state,
        policy=NetworkPolicy(),
        network_mode=NetworkMode.PUBLIC,
        options={"allow_public": True},
    )
    await env.start(force_build=False)
    try:
        host = {name for _, name in socket.if_nameindex()}
        seen = (await env.exec("cat /proc/net/dev")).stdout or ""
        assert host <= {word.rstrip(":") for word in seen.split()}
    finally:
        await env.stop(delete=True)
