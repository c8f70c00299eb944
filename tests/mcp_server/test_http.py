"""Streamable HTTP, by the command itself: the same tools, behind a key, for this machine alone."""

import os
import re
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from mcp_server.http import check_host
from mcp_server.server import build_server
from runtime.home import Home
from specs.errors import InvalidInput

ROOT = Path(__file__).parents[2]
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
JSON = {"accept": "application/json, text/event-stream"}


def command(home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "tools", "mcp", "--http", "--home", str(home), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PRACTICUM_NO_AUTOSTART": "1"},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass(frozen=True)
class Served:
    home: Home
    process: subprocess.Popen[str]
    url: str
    told: str

    @property
    def key(self) -> str:
        return self.home.mcp_key_file.read_text()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as folder:
        process = command(Path(folder) / "home", "--port", "0")
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"http://\S+/mcp", line)
        assert found, line + process.stderr.read()
        yield Served(Home.at(Path(folder) / "home"), process, found[0], line)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=60)
        assert (process.returncode, "Traceback" in rest) == (0, False), rest


def post(served: Served, **headers: str) -> httpx.Response:
    return httpx.post(served.url, json=PING, headers={**JSON, **headers}, timeout=60)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_finds_the_same_server(served: Served, mode: str) -> None:
    headers = {"authorization": f"Bearer {served.key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=120) as http,
        Client(streamable_http_client(served.url, http_client=http), mode=mode) as client,
        Client(build_server(served.home)) as here,
    ):
        assert (await client.list_tools()).tools == (await here.list_tools()).tools
        assert (await client.list_prompts()).prompts == (await here.list_prompts()).prompts
        assert (await client.list_resources()).resources == (await here.list_resources()).resources
        refused = await client.call_tool("run_list", {})
        assert refused.is_error
        assert (refused.structured_content or {})["code"] == "stack_unavailable"


@pytest.mark.parametrize("shown", [None, "Bearer wrong", "Basic {key}", "{key}"])
def test_without_the_key_there_is_nothing(served: Served, shown: str | None) -> None:
    headers = {} if shown is None else {"authorization": shown.format(key=served.key)}
    answer = post(served, **headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")


def test_the_key_is_the_users_own_and_is_not_told(served: Served) -> None:
    assert stat.S_IMODE(served.home.mcp_key_file.stat().st_mode) == 0o600
    assert len(served.key) >= 32
    assert str(served.home.mcp_key_file) in served.told
    assert served.key not in served.told


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [
        ("host", "evil.example", 421),
        ("host", "127.0.0.1.evil.example:80", 421),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
    ],
)
def test_a_foreign_name_for_this_machine_is_refused(
    served: Served, header: str, value: str, status: int
) -> None:
    shown = {"authorization": f"Bearer {served.key}", header: value}
    assert post(served, **shown).status_code == status
    known = {**shown, "host": "localhost", "origin": "http://localhost:3000"}
    assert post(served, **known).status_code not in (401, 403, 421)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "lab.example"])
def test_an_address_that_others_reach_needs_a_word_of_its_own(host: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_host(host, [])
    assert "--allow-host" in (caught.value.problem.next or "")
    check_host(host, ["lab.example"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    check_host(host, [])


def test_the_command_refuses_such_an_address_before_it_listens(short_dir: Path) -> None:
    process = command(short_dir / "home", "--host", "0.0.0.0", "--port", "0")
    _, told = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "not loopback" in told
    assert not (short_dir / "home").exists()
