"""Where in a trial a call happens, as a scripted model wants to know it.

A request's text is told only to scripted models: nobody else reads it.
"""

from collections.abc import Iterable

from proxy.models import Voice
from proxy.trials import Trial
from proxy.turns import Party
from runtime.compute.protocol import SampleContext
from runtime.formats.codec import spell
from runtime.formats.conversation import Conversation, Message, Text, ToolResult


def sample_context(
    trial: Trial, task: str, party: Party, conversation: Conversation, voice: Voice
) -> SampleContext:
    """The context of a call that is about to begin.

    The last turn is all that came since the model spoke: results, text, system messages.
    """
    if voice.info.backend != "scripted":
        return SampleContext(task, trial.answered)
    messages = conversation.messages
    users = (message for message in messages if message.role == "user")
    last = 1 + max((i for i, one in enumerate(messages) if one.role == "assistant"), default=-1)
    order = trial.order(party.agent)
    begun = voice.family.begun(conversation)
    return SampleContext(
        task,
        trial.answered,
        trial=trial.key.trial,
        agent=party.agent,
        order=order,
        agent_call=trial.agents.get(party.agent, 0),
        opening=_text(list(users)[:1]),
        request=_text(messages[last:]),
        begun=None if begun is None else spell(begun),
    )


def _text(messages: Iterable[Message]) -> str:
    return "\n".join(
        block.text
        for message in messages
        for block in message.blocks
        if isinstance(block, Text | ToolResult)
    )
