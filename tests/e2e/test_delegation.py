"""An agent inside a trial's sandbox operates Practicum: with the plan's leave, and no further."""

import base64
import json
from typing import Any

import pytest

from runtime.client import OperatorClient, WorkerClient
from runtime.home import Home
from specs.errors import ErrorCode, Forbidden
from specs.ids import Prefix, new_id
from tests.e2e.support import Stack, profile, write_tasks

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(900)]

GATEWAY = {"scopes": ["read", "publish", "start"], "max_runs": 2, "max_slots": 3}
ENV = {"PRACTICUM_GATEWAY": "${gateway.url}", "PRACTICUM_TOKEN": "${gateway.token}"}
AGENT = r"""
import base64, glob, json, os, subprocess, sys, urllib.error, urllib.request

def practicum(*words, code=0):
    done = subprocess.run(["practicum", *words, "--json"], capture_output=True, text=True)
    print("+", *words, "->", done.returncode, done.stderr, flush=True)
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return json.loads(done.stdout if code == 0 else done.stderr)

def claim():
    request = urllib.request.Request(
        os.environ["PRACTICUM_GATEWAY"] + "/v1/worker/claims", b"{}",
        {"authorization": "Bearer " + os.environ["PRACTICUM_TOKEN"],
         "content-type": "application/json"})
    try:
        urllib.request.urlopen(request)
    except urllib.error.HTTPError as error:
        return [error.code, json.load(error)["code"]]

start = "run start --dataset e2e/parity@v1 --actor @/opt/agent/inner.json --plan".split()
known = practicum("run", "list")["items"]
started = practicum(*start, "@/opt/agent/inner-plan.json")["run"]
ended = practicum("run", "wait", started, "--timeout", "8m")
result = practicum("run", "result", started)
beyond = practicum(*start, "@/opt/agent/inner-plan.json", code=3)
again = practicum("run", "extend", started, "--run-tokens", "9", code=3)
stack = practicum("status", code=2)
json.dump({
    "known": len(known), "started": started, "state": ended["state"],
    "scored": result["trials_scored"], "beyond": beyond["code"], "extend": again["code"],
    "status": stack["code"], "claim": claim(), "heavy": glob.glob(
        "/opt/practicum/app/python/lib/*/site-packages/[th][oa]r[cb]*"),
    "plain": os.environ["PRACTICUM_TOKEN"],
    "token": base64.b64encode(os.environ["PRACTICUM_TOKEN"].encode()).decode(),
}, open("/app/report.json", "w"))
print("my token is", os.environ["PRACTICUM_TOKEN"], flush=True)
"""
TEST = r"""#!/bin/bash
set -e
state=$(practicum run list --json | python3 -c '
import json, sys
print(sum(1 for run in json.load(sys.stdin)["items"] if run["state"] == "completed"))')
if practicum run start --dataset e2e/parity@v1 --actor @/opt/agent/inner.json \
    --plan @/opt/agent/inner-plan.json --json; then exit 1; fi
[ "$state" -ge 1 ] && echo 1 > /logs/verifier/reward.txt
"""
CLOSED = r"""
import socket, sys
for port in (8484, 8485):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        print("open", port, flush=True)
    except OSError:
        print("closed", port, flush=True)
"""


def _publish(stack: Stack) -> None:
    folder = stack.root / "ground"
    write_tasks(folder, 1)
    (folder / "task-0" / "tests" / "test.sh").write_text(TEST)
    toml = folder / "task-0" / "task.toml"
    text = toml.read_text().replace("timeout_sec = 60.0", "timeout_sec = 600.0")
    toml.write_text(text.replace("timeout_sec = 30.0", "timeout_sec = 300.0"))
    published = stack.run("dataset", "publish", str(folder), "--as", "e2e/ground@v1")
    assert published.code == 0, published.err


def _agent() -> dict[str, Any]:
    files = {
        "agent.py": AGENT,
        "inner.json": json.dumps(profile()),
        "inner-plan.json": json.dumps({"trials_per_task": 1, "tasks": {"limit": 2}}),
    }
    return profile(
        files=[{"path": f"/opt/agent/{name}", "content": text} for name, text in files.items()],
        env=ENV,
        outputs=[{"path": "report.json", "required": True}],
    )


@pytest.mark.anyio
async def test_a_trial_starts_a_run_waits_for_it_and_is_held_to_its_grant(stack: Stack) -> None:
    """Invariants 13 and 16: one worker works on both runs, and the grant ends with the trial."""
    _publish(stack)
    plan = {"trials_per_task": 1, "gateway": GATEWAY}
    words = ["--dataset", "e2e/ground@v1", "--actor", stack.write("agent.json", _agent())]
    run = str(stack.json("run", "start", *words, "--plan", stack.write("plan.json", plan))["run"])
    ended = stack.json("run", "wait", run, "--timeout", "12m", timeout=800)
    logs = stack.run("run", "logs", run).out[-6000:]
    (trial,) = stack.json("run", "trials", run)["items"]
    assert ended["state"] == "completed", logs
    assert trial["settled"]["outcome"] == "completed", logs
    assert trial["assessment"]["reward"] == 1.0, logs

    async with OperatorClient.at(Home.at(stack.home)) as gateway:
        (report,) = [one for one in trial["settled"]["artifacts"] if one["path"] == "report.json"]
        found = json.loads(await gateway.object(report["digest"]))
        kept = await gateway.object(trial["settled"]["launch_plan"])
    token = base64.b64decode(found.pop("token")).decode()
    started = found.pop("started")
    assert found == {
        "known": 1,
        "state": "completed",
        "scored": 2,
        "beyond": ErrorCode.GRANT_LIMIT,
        "extend": ErrorCode.FORBIDDEN,
        "status": ErrorCode.NOT_LOCAL,
        "claim": [403, ErrorCode.FORBIDDEN],
        "heavy": [],
        "plain": "[gateway.token]",
    }
    assert token not in logs and "my token is [gateway.token]" in logs
    assert token.encode() not in kept and b"${gateway.token}" in kept
    inner = stack.json("run", "show", started)
    assert (inner["started_by"]["run"], inner["started_by"]["trial"]) == (run, trial["id"])
    async with OperatorClient.connect(Home.at(stack.home).gateway_socket, token) as late:
        with pytest.raises(Forbidden) as refused:
            await late.runs()
        assert refused.value.problem.code == ErrorCode.GRANT_ENDED
        with pytest.raises(Forbidden):
            await WorkerClient(late.transport).claim(new_id(Prefix.WORKER), 30.0)


def test_invariant_13_without_the_plan_key_a_sandbox_reaches_no_gateway(stack: Stack) -> None:
    agent = profile(files=[{"path": "/opt/agent/agent.py", "content": CLOSED}])
    words = ["--dataset", "e2e/parity@v1", "--actor", stack.write("closed.json", agent)]
    plan = stack.write("one.json", {"trials_per_task": 1, "tasks": {"limit": 1}})
    run = str(stack.json("run", "start", *words, "--plan", plan)["run"])
    stack.json("run", "wait", run, "--timeout", "4m", timeout=300)
    logs = stack.run("run", "logs", run).out
    assert "open 8484" in logs and "closed 8485" in logs, logs
