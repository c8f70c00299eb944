"""A task is shown the same from its folder and from a dataset, and its files in exact pieces."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.errors import InvalidInput, NotFound
from specs.operator_api import Published
from tests.runtime.learning.live import Live
from tests.tools.ground import ask, write_task
from tools.excerpts import excerpt
from tools.task import TaskView

pytestmark = pytest.mark.anyio


async def test_a_task_is_read_from_its_folder_and_from_a_dataset(
    live: Live, tmp_path: Path
) -> None:
    write_task(tmp_path / "tasks" / "a", "acme/a", notes="x" * 40)
    (tmp_path / "tasks" / "a" / "data.bin").write_bytes(b"\xff\x00")
    await ask(
        live,
        "dataset publish",
        Published,
        folder=str(tmp_path / "tasks"),
        publish_as="acme/set@v1",
    )
    local, _ = await ask(live, "task show", TaskView, task=str(tmp_path / "tasks" / "a"))
    shown, text = await ask(live, "task show", TaskView, task="acme/a", dataset="acme/set@v1")
    assert shown.model_copy(update={"dataset": None}) == local
    assert shown.instruction is not None and shown.instruction.text == "Say “hello”.\n"
    assert [(one.path, one.size) for one in shown.files] == [
        ("data.bin", 2),
        ("instruction.md", 17),
        ("notes", 40),
        ("task.toml", 50),
    ]
    assert "Say “hello”." in text and "family one" in text
    await _pieces(live)


async def _pieces(live: Live) -> None:
    named = {"task": "acme/a", "dataset": "acme/set@v1"}
    read, cursor = "", None
    while True:
        view, _ = await ask(
            live, "task show", TaskView, **named, file="notes", byte_limit=16, cursor=cursor
        )
        assert view.text is not None and view.text.text is not None and view.files == []
        read, cursor = read + view.text.text, view.next
        if cursor is None:
            break
    assert read == "x" * 40
    binary, text = await ask(live, "task show", TaskView, **named, file="data.bin")
    assert binary.text is not None and binary.text.text is None and "no text" in text
    for wrong in ({"file": "absent"}, {"task": "acme/b"}):
        with pytest.raises(NotFound):
            await ask(live, "task show", TaskView, **(named | wrong))
    with pytest.raises(InvalidInput, match="place of this text"):
        await ask(live, "task show", TaskView, **named, file="notes", cursor="41")


@given(st.text(max_size=200), st.integers(16, 40))
def test_pieces_of_any_text_join_to_the_text(text: str, limit: int) -> None:
    data, read, cursor = text.encode(), "", None
    while True:
        piece = excerpt("f", data, limit, cursor)
        assert piece.text is not None and len(piece.text.encode()) <= limit
        read, cursor = read + piece.text, piece.next
        if cursor is None:
            break
    assert read == text


@given(st.text(min_size=1, max_size=50), st.data())
def test_a_cursor_within_a_character_is_refused(text: str, draw: st.DataObject) -> None:
    data = text.encode()
    place = draw.draw(st.integers(0, len(data)))
    begins = {len(text[:count].encode()) for count in range(len(text) + 1)}
    if place in begins:
        excerpt("f", data, 16, str(place))
    else:
        with pytest.raises(InvalidInput):
            excerpt("f", data, 16, str(place))
