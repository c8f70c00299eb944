"""No network but the sandbox's own loopback and the forwarded ports (invariant 13's other half)."""

import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy

from runtime.execution.sandbox.network import resolve
from runtime.execution.sandbox.options import Forward
from runtime.execution.sandbox.sandbox import Sandbox, Settings
from specs.errors import ErrorCode, InvalidInput
from tests.runtime.execution.sandbox.support import open_descriptors, sh, start, text

pytestmark = [pytest.mark.anyio, pytest.mark.sandbox]

Listener = anyio.abc.Listener[anyio.abc.SocketStream]
Handler = Callable[[anyio.abc.SocketStream], Awaitable[None]]
CLIENT = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 8080), 20)
s.sendall(sys.stdin.buffer.read())
s.shutdown(socket.SHUT_WR)
while data := s.recv(65536): sys.stdout.buffer.write(data)
"""


@asynccontextmanager
async def serving(listener: Listener, handler: Handler) -> AsyncGenerator[None]:
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handler)
        yield
        group.cancel_scope.cancel()


async def echo_after_end(stream: anyio.abc.SocketStream) -> None:
    """Answers only when the client has ended its half."""
    async with stream:
        data = b"".join([part async for part in stream])
        await stream.send(b"got " + data)


@asynccontextmanager
async def forwarded(settings: Settings, target: str) -> AsyncGenerator[Sandbox]:
    sandbox = await start(settings, forwards=[Forward(port=8080, target=target)])
    try:
        yield sandbox
    finally:
        await sandbox.stop()


async def test_the_host_and_the_world_are_unreachable(sandbox: Sandbox, short_dir: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        port = server.getsockname()[1]
        abstract.bind(f"\0practicum-test-{os.getpid()}")
        abstract.listen()
        for address in (
            f"('127.0.0.1', {port})",
            "('1.1.1.1', 80)",
            f"('{_own_address()}', {port})",
        ):
            code = f"import socket; socket.create_connection({address}, 3)"
            done = await sh(sandbox, f'python3 -c "{code}"')
            assert done.code != 0, address
        code = f"import socket; socket.socket(1).connect(chr(0) + 'practicum-test-{os.getpid()}')"
        assert (await sh(sandbox, f'python3 -c "{code}"')).code != 0
    done = await sh(sandbox, "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | xargs")
    assert done.stdout.strip() == b"lo"


def _own_address() -> str:
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.2"


async def test_its_own_loopback_works_across_commands(sandbox: Sandbox) -> None:
    await sh(
        sandbox, "cd /usr; python3 -m http.server 8123 --bind 127.0.0.1 &>/dev/null </dev/null &"
    )
    code = "import urllib.request as u; print(u.urlopen('http://localhost:8123/').status)"
    done = await sh(
        sandbox, f'for i in 1 2 3 4 5 6; do sleep 0.5; python3 -c "{code}" && break; done'
    )
    assert done.stdout.strip() == b"200", text(done)


async def test_a_port_leads_to_a_unix_socket_with_half_closed_ends(
    settings: Settings, short_dir: Path
) -> None:
    path = short_dir / "s"
    async with (
        serving(await anyio.create_unix_listener(path), echo_after_end),
        forwarded(settings, f"unix:{path}") as sandbox,
    ):
        data = os.urandom(2_000_000)
        done = await sh(sandbox, f"python3 -c '{CLIENT}'", stdin=data)
        assert done.stdout == b"got " + data


async def test_a_port_leads_to_a_tcp_port(settings: Settings) -> None:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with (
        serving(listener, echo_after_end),
        forwarded(settings, f"127.0.0.1:{port}") as sandbox,
    ):
        done = await sh(sandbox, f"python3 -c '{CLIENT}'", stdin=b"x")
        assert done.stdout == b"got x"


async def test_many_connections_at_once_and_none_is_leaked(
    settings: Settings, short_dir: Path
) -> None:
    path = short_dir / "s"
    code = (
        "import socket\naddress = ('127.0.0.1', 8080)\n"
        "open_ = [socket.create_connection(address, 20) for _ in range(200)]\n"
        "for i, s in enumerate(open_): s.sendall(b'%d' % i); s.shutdown(1)\n"
        "print(sum(s.recv(100) == b'got %d' % i for i, s in enumerate(open_)))"
    )
    async with (
        serving(await anyio.create_unix_listener(path, backlog=512), echo_after_end),
        forwarded(settings, f"unix:{path}") as sandbox,
    ):
        await sh(sandbox, f"python3 -c '{CLIENT}'", stdin=b"x")
        before = open_descriptors()
        done = await sh(sandbox, f'python3 -c "{code}"', timeout=50)
        assert done.stdout.strip() == b"200", text(done)
        with anyio.fail_after(20):
            while open_descriptors() > before:  # noqa: ASYNC110 - no event tells
                await anyio.sleep(0.02)


async def test_a_target_that_is_down_or_breaks_off_is_a_closed_connection(
    settings: Settings, short_dir: Path
) -> None:
    async def break_off(stream: anyio.abc.SocketStream) -> None:
        await stream.receive(1)
        await anyio.aclose_forcefully(stream)

    path = short_dir / "s"
    async with forwarded(settings, f"unix:{path}") as sandbox:
        done = await sh(sandbox, f"python3 -c '{CLIENT}'", stdin=b"x", timeout=30)
        assert done.stdout == b""
        async with serving(await anyio.create_unix_listener(path), break_off):
            done = await sh(sandbox, f"python3 -c '{CLIENT}'", stdin=b"x" * 10, timeout=30)
            assert done.stdout == b""
        assert (await sh(sandbox, "echo alive")).stdout == b"alive\n"


def allow(host: str) -> NetworkPolicy:
    return NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=[host])


@pytest.mark.parametrize(
    ("policy", "declared", "allow_public", "expected"),
    [
        (NetworkPolicy(network_mode=NetworkMode.NO_NETWORK), True, False, "none"),
        (NetworkPolicy(), False, False, "none"),
        (NetworkPolicy(), True, True, "host"),
        (NetworkPolicy(), True, False, None),
        (
            allow("localhost"),
            True,
            False,
            "none",
        ),
        (
            allow("example.org"),
            True,
            True,
            None,
        ),
    ],
)
def test_what_a_policy_means(
    policy: NetworkPolicy, declared: bool, allow_public: bool, expected: str | None
) -> None:
    task = EnvironmentConfig(network_mode=NetworkMode.PUBLIC) if declared else EnvironmentConfig()
    if expected is None:
        with pytest.raises(InvalidInput) as caught:
            resolve(policy, task, allow_public=allow_public)
        assert caught.value.problem.code is ErrorCode.SANDBOX_UNSUPPORTED
        assert caught.value.problem.next
    else:
        plan = resolve(policy, task, allow_public=allow_public)
        assert (plan.mode, plan.declared) == (expected, declared)
