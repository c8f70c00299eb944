"""The client: typed errors, bounded retries, and nothing believed that was not checked."""

import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from runtime.client import OperatorClient, WorkerClient
from runtime.home import Home
from runtime.storage.schema import HEAD
from specs.errors import ErrorCode, Forbidden, Internal, InvalidInput, NotFound, Unavailable
from specs.ids import Prefix, new_id
from specs.worker_api import ClaimRequest
from tests.runtime.gateway import stage

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def answering(path: Path, *answers: bytes) -> AsyncGenerator[list[bytes]]:
    """A server that gives each connection the next answer, and hangs up on an empty one."""
    seen: list[bytes] = []
    left = list(answers)

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            seen.append(await stream.receive())
            answer = left.pop(0) if left else b""
            if answer:
                await stream.send(answer)

    listener = await anyio.create_unix_listener(path)
    async with anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        yield seen
        group.cancel_scope.cancel()
    await listener.aclose()


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: {kind}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


async def test_a_missing_gateway_is_named_with_the_command_that_starts_it(short_dir: Path) -> None:
    async with OperatorClient.connect(short_dir / "none.sock", "k", patience=0.1) as client:
        with pytest.raises(Unavailable) as failed:
            await client.health()
    problem = failed.value.problem
    assert (problem.code, problem.next) == (ErrorCode.STACK_UNAVAILABLE, "practicum up")


async def test_a_dead_socket_is_the_same_as_none(short_dir: Path) -> None:
    path = short_dir / "dead.sock"
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(path))
    dead.close()
    async with OperatorClient.connect(path, "k", patience=0.1) as client:
        with pytest.raises(Unavailable):
            await client.health()


async def test_the_client_waits_for_a_gateway_that_is_starting(home: Home) -> None:
    found: list[str] = []
    async with OperatorClient.at(home, patience=30) as early, anyio.create_task_group() as group:

        async def ask() -> None:
            found.append((await early.health()).database)

        group.start_soon(ask)
        await anyio.sleep(0.1)
        async with stage.running(home):
            while not found:  # noqa: ASYNC110 - the gateway must outlive the question
                await anyio.sleep(0.01)
    assert found == [HEAD]


async def test_only_harmless_requests_are_repeated_after_a_lost_connection(
    short_dir: Path,
) -> None:
    path = short_dir / "s.sock"
    health = b'{"service":"gateway","version":"1","database":"%s","runs":{}}' % HEAD.encode()
    async with (
        answering(path, b"", b"", response(200, health)) as seen,
        OperatorClient.connect(path, "k", patience=10) as client,
    ):
        assert (await client.health()).version == "1"
    assert len(seen) == 3
    path.unlink(missing_ok=True)
    async with (
        answering(path, b"", b"", b"") as seen,
        WorkerClient.connect(path, "k", patience=10) as client,
    ):
        with pytest.raises(Unavailable):
            await client.claim(new_id(Prefix.WORKER), 5)  # it may have been claimed
    assert len(seen) == 1


@pytest.mark.parametrize(
    "answer",
    [
        response(200, b"not json"),
        response(200, b'{"service":"gateway"}'),
        response(200, b'{"service":"gateway","version":"1","database":"1","runs":{},"more":1}'),
        response(500, b"<html>oops</html>", "text/html"),
        response(500, b"not json", "application/problem+json"),
    ],
)
async def test_an_answer_outside_the_protocol_is_a_defect_and_not_believed(
    short_dir: Path, answer: bytes
) -> None:
    path = short_dir / "s.sock"
    async with answering(path, answer), OperatorClient.connect(path, "k") as client:
        with pytest.raises(Internal):
            await client.health()


async def test_problems_become_the_errors_they_describe(home: Home) -> None:
    async with stage.running(home) as stack:
        with pytest.raises(NotFound) as missing:
            await stack.operator.run("run_" + "0" * 32)
        assert missing.value.problem.object is not None
        assert missing.value.problem.object.type == "run"
        async with OperatorClient.connect(home.gateway_socket, "wrong key") as stranger:
            with pytest.raises(Forbidden) as refused:
                await stranger.runs()
        assert refused.value.problem.code == ErrorCode.UNAUTHENTICATED
        async with WorkerClient.connect(
            home.gateway_socket, (home.secrets / "operator.key").read_text()
        ) as wrong_role:
            with pytest.raises(Forbidden):
                await wrong_role.claim(new_id(Prefix.WORKER), 5)


async def test_a_reference_is_checked_before_it_is_asked_for(short_dir: Path) -> None:
    async with OperatorClient.connect(short_dir / "none.sock", "k", patience=0) as client:
        for reference in ("x", "a/b", "a@v1", "a/b/c@v1", ""):
            with pytest.raises(InvalidInput) as refused:
                await client.profile(reference)
            assert refused.value.problem.code == ErrorCode.INVALID_REFERENCE


async def test_an_object_that_arrives_changed_is_not_returned(short_dir: Path) -> None:
    path = short_dir / "s.sock"
    answer = response(200, b"tampered", "application/octet-stream")
    async with answering(path, answer), OperatorClient.connect(path, "k") as client:
        with pytest.raises(InvalidInput) as refused:
            await client.object("sha256:" + "0" * 64)
    assert refused.value.problem.code == ErrorCode.DIGEST_MISMATCH


def test_a_request_is_a_contract() -> None:
    with pytest.raises(ValueError, match="lease_sec"):
        ClaimRequest(worker=new_id(Prefix.WORKER), lease_sec=0)


def test_a_client_of_a_socket_reads_no_certificates(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each tool call of an MCP session makes such a client, and reading them took most of it."""

    def refuse(**_: object) -> None:
        raise AssertionError("certificates are read")

    monkeypatch.setattr(ssl, "create_default_context", refuse)
    OperatorClient.connect(short_dir / "s", "key")
