"""The lock, the state file, and what a start sweeps away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.home import Home, Role
from runtime.supervisor import control
from runtime.supervisor.control import status
from runtime.supervisor.health import answers, healthy
from runtime.supervisor.parts import PARTS
from runtime.supervisor.settings import LEASE, PREFIX, STAGE, THREADS, Settings, read_settings
from runtime.supervisor.state import (
    PartStatus,
    StackState,
    acquire,
    is_locked,
    lives,
    read_state,
    start_ticks,
    state_path,
    sweep,
    write_state,
)
from specs import canonical
from specs.construction_records import ApprovalRules
from specs.errors import InvalidInput
from specs.upstream import Upstream

JUDGE = Upstream(
    name="judge",
    kind="anthropic",
    base_url="https://api.example.org",
    model="judge-1",
    key_env="JUDGE_KEY",
    context_tokens=1000,
)


@pytest.fixture
def home(short_dir: Path) -> Home:
    made = Home.at(short_dir / "home")
    made.create()
    return made


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that leads a group of its own, as a part does."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True
    )
    yield process
    process.kill()
    process.wait()


def state_with(part: PartStatus) -> StackState:
    return StackState(
        pid=os.getpid(), ticks=None, started_at=0.0, version="0", parts={part.name: part}
    )


def test_one_process_at_a_time_holds_the_lock(home: Home) -> None:
    assert not is_locked(home)
    lock = acquire(home)
    assert lock is not None
    assert is_locked(home)
    assert acquire(home, patience=0.05) is None
    lock.close()
    assert not is_locked(home)


def test_a_home_without_a_run_folder_is_not_locked(short_dir: Path) -> None:
    assert not is_locked(Home.at(short_dir / "absent"))


def test_the_state_file_is_read_back_whole_or_not_at_all(home: Home) -> None:
    assert read_state(home) is None
    state = state_with(PartStatus(name="proxy", pid=7, ticks=9, state="running", restarts=2))
    write_state(home, state)
    assert read_state(home) == state
    state_path(home).write_text('{"pid": 1')
    assert read_state(home) is None


def test_a_state_that_cannot_be_written_leaves_nothing_behind(home: Home) -> None:
    state_path(home).mkdir()
    with pytest.raises(OSError, match="directory"):
        write_state(home, state_with(PartStatus(name="proxy")))
    assert [path.name for path in home.run.iterdir() if path.name.startswith(".state-")] == []


def test_the_state_of_an_earlier_stack_says_nothing_about_the_one_that_starts(home: Home) -> None:
    """Its restarts would make `up` give up on a stack that has only just taken the lock."""
    write_state(home, state_with(PartStatus(name="proxy", state="backoff", restarts=9)))
    lock = acquire(home)
    assert lock is not None
    with lock:
        report = status(home)
    assert (report.running, report.pid) == (True, None)
    assert {part.restarts for part in report.parts} == {0}


def test_a_process_is_known_by_pid_and_start_time(sleeper: "subprocess.Popen[bytes]") -> None:
    ticks = start_ticks(sleeper.pid)
    assert ticks is not None
    assert lives(sleeper.pid, ticks)
    assert not lives(sleeper.pid, ticks + 1)
    sleeper.kill()
    sleeper.wait()
    assert not lives(sleeper.pid, ticks)
    assert not lives(None, None)


def test_a_start_sweeps_sockets_and_processes_of_a_killed_stack(
    home: Home, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """Invariant 12."""
    home.gateway_socket.touch()
    ticks = start_ticks(sleeper.pid)
    write_state(home, state_with(PartStatus(name="worker", pid=sleeper.pid, ticks=ticks)))
    swept = sweep(home)
    assert swept == [f"worker (pid {sleeper.pid})", "gateway.sock"]
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not home.gateway_socket.exists()
    assert sweep(home) == []


def test_a_reused_pid_is_left_alone(home: Home, sleeper: "subprocess.Popen[bytes]") -> None:
    write_state(home, state_with(PartStatus(name="worker", pid=sleeper.pid, ticks=1)))
    assert sweep(home) == []
    assert sleeper.poll() is None


def test_each_providers_key_reaches_one_part_alone() -> None:
    """Invariant 13."""
    source = {
        "PATH": "/bin",
        "TINKER_API_KEY": "secret",
        "JUDGE_KEY": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PRACTICUM_MODELS": "/models",
        "PRACTICUM_HOME": "/elsewhere",
    }
    settings = Settings(upstreams=(JUDGE,))
    seen = {part.name: part.environment(source, settings) for part in PARTS}
    for name, variables in seen.items():
        assert ("TINKER_API_KEY" in variables) == (name == "compute")
        assert ("JUDGE_KEY" in variables) == (name == "proxy")
        assert not {"AWS_SECRET_ACCESS_KEY", "PRACTICUM_HOME"} & variables.keys()
        assert variables["PRACTICUM_MODELS"] == "/models"


def test_upstreams_are_told_to_compute_and_proxy_without_their_keys(home: Home) -> None:
    lines = [f"{name} = {value!r}" for name, value in JUDGE.model_dump().items()]
    home.config.write_text("\n".join(["[[upstreams]]", *lines, ""]))
    settings = read_settings(home, {"JUDGE_KEY": "secret"})
    for part in PARTS:
        command = part.command(home, settings)
        assert "secret" not in " ".join(command)
        assert ("--upstream" in command) == (part.name in ("compute", "proxy"))
    text = next(part for part in PARTS if part.name == "proxy").command(home, settings)[-1]
    assert canonical.read(Upstream, text, what="upstream") == JUDGE


def test_rules_of_approval_are_told_to_the_gateway_alone(home: Home) -> None:
    gateway = next(part for part in PARTS if part.name == "gateway")
    assert "--approval" not in gateway.command(home, read_settings(home, {}))
    home.config.write_text('[approval]\npolicy = "mine"\nmax_trial_slots = 9\n')
    settings = read_settings(home, {})
    told = [part.name for part in PARTS if "--approval" in part.command(home, settings)]
    assert told == ["gateway"]
    text = gateway.command(home, settings)[-1]
    rules = canonical.read(ApprovalRules, text, what="rules")
    assert rules == ApprovalRules(policy="mine", max_trial_slots=9)


def test_settings_come_from_the_environment_before_the_file(home: Home) -> None:
    worker = next(part for part in PARTS if part.name == "worker")
    compute = next(part for part in PARTS if part.name == "compute")
    assert "--lease" not in worker.command(home, read_settings(home, {}))
    proxy = next(part for part in PARTS if part.name == "proxy")
    assert "--stage-bytes" not in proxy.command(home, read_settings(home, {}))
    bounds = "prefix_bytes = 0\n[proxy]\nstage_bytes = 2000000\n"
    home.config.write_text(f"[worker]\nlease_sec = 5\n[compute]\nthreads = 3\n{bounds}")
    settings = read_settings(home, {LEASE: "7.5"})
    assert worker.command(home, settings)[-2:] == ["--lease", "7.5"]
    assert compute.command(home, settings)[-4:] == ["--threads", "3", "--prefix-bytes", "0"]
    assert proxy.command(home, settings)[-2:] == ["--stage-bytes", "2000000"]
    settings = read_settings(home, {STAGE: "3000000", PREFIX: "4096"})
    assert compute.command(home, settings)[-2:] == ["--prefix-bytes", "4096"]
    assert proxy.command(home, settings)[-2:] == ["--stage-bytes", "3000000"]


@pytest.mark.parametrize(
    ("text", "variables", "says"),
    [
        ("[approval]\nmax_rows = -1\n", {}, "/approval/max_rows"),
        ("[worker]\nleese = 5\n", {}, "unknown key 'leese'"),
        ("[worker\n", {}, "not valid TOML"),
        ('[[upstreams]]\nname = "a"\n', {}, "/upstreams/0/kind"),
        ('[[worker.tools]]\nsource = "/a"\ntarget = "b"\nversion = "1"', {}, "/worker/tools/0"),
        ("[worker]\nlease_sec = -1\n", {}, "/worker/lease_sec"),
        ("", {THREADS: "many"}, "/compute/threads"),
        ("", {STAGE: "0"}, "/proxy/stage_bytes"),
    ],
)
def test_wrong_settings_are_named_and_start_nothing(
    home: Home, text: str, variables: dict[str, str], says: str
) -> None:
    home.config.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        control.up(home, flags=variables)
    assert says in caught.value.problem.detail
    assert not is_locked(home)


def test_nothing_is_healthy_where_nothing_runs(home: Home) -> None:
    assert not answers(home.gateway_socket)
    report = control.status(home)
    assert (report.running, report.healthy, report.ok) == (False, False, False)
    assert [part.name for part in report.parts] == ["gateway", "compute", "proxy", "worker"]
    assert not control.down(home)


def test_a_worker_is_healthy_once_it_has_lived_a_while(
    home: Home, sleeper: "subprocess.Popen[bytes]"
) -> None:
    worker = next(part for part in PARTS if part.name == "worker")
    status = PartStatus(
        name="worker", pid=sleeper.pid, ticks=start_ticks(sleeper.pid), started_at=time.time() - 60
    )
    assert healthy(worker, home, status)
    assert not healthy(worker, home, status.model_copy(update={"started_at": time.time() + 60}))
    assert not healthy(worker, home, status.model_copy(update={"ticks": 1}))


def test_the_end_of_a_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert control.tail(log) == "(no log)"
    log.write_text("")
    assert control.tail(log) == "(empty log)"
    log.write_text("".join(f"{n}\n" for n in range(50_000)))
    assert control.tail(log, 2) == "49998\n49999"


def test_role_keys_are_private(home: Home) -> None:
    for role in Role:
        assert (home.secrets / f"{role}.key").stat().st_mode & 0o077 == 0
