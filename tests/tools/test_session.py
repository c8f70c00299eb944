"""Sessions by operation: listed, shown, closed; and ended in place of a command that was killed."""

import pytest

from specs.errors import PracticumError
from specs.ids import Prefix, new_id
from specs.operator_api import Session, SessionPage, SessionRequest
from tests.runtime.gateway import stage
from tests.runtime.gateway.stage import Stack
from tools import registry
from tools.agent import opened
from tools.context import Context

pytestmark = pytest.mark.anyio


def request() -> SessionRequest:
    return SessionRequest(model="tiny", purpose="claude")


async def ask[T](stack: Stack, verb: str, kind: type[T], **values: object) -> tuple[T, str]:
    """The result of an operation, and its text."""
    chosen = registry.find("session", verb)
    result = await registry.call(chosen, Context(stack.home), values)
    assert isinstance(result, kind)
    return result, chosen.text(result)


async def test_sessions_are_listed_shown_and_closed(stack: Stack) -> None:
    first = (await stack.operator.open_session(request())).session.id
    second = (await stack.operator.open_session(request())).session.id
    page, text = await ask(stack, "list", SessionPage)
    assert [one.id for one in page.items] == [second, first]
    assert text.count(" open ") == 2
    closed, text = await ask(stack, "close", Session, session=first)
    assert closed.ended_at is not None and "ended" in text
    assert (await ask(stack, "close", Session, session=first))[0] == closed
    assert (await stack.proxy.renew({first: 1, second: 1})).active == [second]
    segment = await stack.proxy.upload(b"what was said")
    await stack.proxy.commit_session(stage.seal(first, first, 1, segment, 13))
    shown, text = await ask(stack, "show", Session, session=first[:20])
    assert shown.id == first and shown.seal is not None
    assert "sealed" in text and segment in text
    with pytest.raises(PracticumError):
        await ask(stack, "close", Session, session=new_id(Prefix.SESSION))


async def test_a_session_ends_with_the_command_that_opened_it(stack: Stack) -> None:
    context, wanted = Context(stack.home), request()
    async with opened(context, wanted) as (session, folder, _):
        assert session.session.id == wanted.id == folder.name
        assert (await stack.operator.session(wanted.id)).ended_at is None
        async with opened(context, request()):
            pass
        assert (await stack.operator.session(wanted.id)).ended_at is None
    assert (await stack.operator.session(wanted.id)).ended_at is not None
    assert [path.suffix for path in stack.home.sessions.iterdir()] == ["", ""]


async def test_a_session_of_a_killed_command_is_ended_by_the_next_start(stack: Stack) -> None:
    """Invariant 12."""
    left = (await stack.operator.open_session(request())).session.id
    never_opened = new_id(Prefix.SESSION)
    stack.home.sessions.mkdir()
    for name in (left, never_opened):
        (stack.home.sessions / f"{name}.lock").touch()
    async with opened(Context(stack.home), request()):
        assert (await stack.operator.session(left)).ended_at is not None
    assert not list(stack.home.sessions.glob("*.lock"))


async def test_a_command_that_fails_still_ends_its_session(stack: Stack) -> None:
    wanted = request()
    with pytest.raises(ZeroDivisionError):
        async with opened(Context(stack.home), wanted):
            raise ZeroDivisionError
    assert (await stack.operator.session(wanted.id)).ended_at is not None
