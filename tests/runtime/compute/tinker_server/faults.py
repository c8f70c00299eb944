"""What can be made to go wrong at the service, by a test that asks for it over HTTP.

A fault names the last part of a path and how many requests it meets:

    drop      the request is taken, and the connection ends within the answer
    status    the request is answered with `status` and `detail`, and not taken
    paused    `retrieve_future` says `try_again` with the queue state `detail`
    fail      the operation is taken and fails, with the service at fault
    hang      the operation is taken and never done
"""

from dataclasses import dataclass
from typing import Literal, override

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

type Kind = Literal["drop", "status", "paused", "fail", "hang"]


@dataclass(slots=True)
class Fault:
    """One fault; `count` requests are left for it."""

    path: str
    kind: Kind
    count: int = 1
    status: int = 500
    detail: str = ""


class Faults:
    """The faults that are still to happen."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> None:
        """From now on."""
        self._faults.append(fault)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()

    def take(self, path: str, *kinds: Kind) -> Fault | None:
        """The fault of this request, which it uses up."""
        for fault in self._faults:
            if fault.path == path and fault.kind in kinds and fault.count > 0:
                fault.count -= 1
                return fault
        return None


class Dropped(Response):
    """An answer in whose middle the connection ends."""

    @override
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
