"""Every request that the real Claude Code was seen to send is accepted and rendered."""

import pytest

from proxy.dialects.anthropic import MESSAGES
from runtime.formats.codec import FileCodec
from runtime.formats.conversation import Thinking, ToolResult, ToolUse
from runtime.formats.families.chatml import ChatML
from tests.proxy.fixtures.recorded import Recorded, conversations
from tests.proxy.world import TOKENIZER, ids_text

CODEC = FileCodec(TOKENIZER)
FAMILY = ChatML(CODEC)
RECORDED = conversations()


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_conversation_is_read_and_rendered(name: str) -> None:
    for recorded in RECORDED[name]:
        if recorded.path.endswith("count_tokens"):
            conversation = MESSAGES.read_count(recorded.data)
        else:
            request = MESSAGES.read(recorded.data)
            assert request.stream == recorded.body.get("stream", False)
            conversation = request.conversation
        assert len(conversation.messages) == len(recorded.body["messages"])
        text = ids_text(CODEC.encode(FAMILY.prompt(conversation)))
        assert text.endswith("<|im_start|>assistant\n")
        assert "x-anthropic-billing-header" not in text
        for message in recorded.body["messages"]:
            if isinstance(message["content"], str):
                assert message["content"] in text


def test_nothing_of_a_recording_is_changed_without_a_record() -> None:
    """What the normal form leaves out of any recorded request is exactly this."""
    notes = {
        note
        for found in RECORDED.values()
        for one in found
        if one.path == "/v1/messages"
        for note in MESSAGES.read(one.data).normalisations
    }
    assert notes == {
        "dropped:billing_header",
        "dropped:is_error",
        "dropped:tool:web_search_20250305",
        "ignored:context_management",
        "ignored:output_config",
        "ignored:tools.defer_loading",
        "replaced:image",
        "replaced:tool_reference",
    }


def test_system_messages_stay_where_they_were_sent() -> None:
    (request,) = RECORDED["text"]
    conversation = MESSAGES.read(request.data).conversation
    assert [one.role for one in conversation.messages] == ["user", "system"]


def test_thinking_comes_back_with_and_without_its_signature() -> None:
    def thoughts(found: list[Recorded]) -> set[str]:
        return {
            block.signature
            for one in found
            for message in MESSAGES.read(one.data).conversation.messages
            for block in message.blocks
            if isinstance(block, Thinking)
        }

    assert thoughts(RECORDED["thinking_no_signature"]) == {""}
    assert thoughts(RECORDED["bash_edit"]) == {"sig"}


def test_results_stand_in_the_order_of_their_calls() -> None:
    last = MESSAGES.read(RECORDED["parallel_tools"][-1].data).conversation.messages
    calls = [block.id for block in last[-2].blocks if isinstance(block, ToolUse)]
    results = [block.call for block in last[-1].blocks if isinstance(block, ToolResult)]
    assert len(results) > 1
    assert results == [name for name in calls if name in results]
