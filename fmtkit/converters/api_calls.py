"""Logs of an API of chats: what was asked of it and what it said, as proxies and tracers write them.

The request is `request.messages`, the response `response.choices`; `--map` says where they are elsewhere
(`--map messages=request.body.messages --map choices=response.body.choices`).
"""

from typing import Annotated, TypeAlias

from fmtkit.columns import ABSENT, Tools, WideMessages, records
from fmtkit.columns.conversations import completion, must_end_with_prompt
from fmtkit.columns.kinds import ConversationKind
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Completion
from fmtkit.formats.registry import converter

Choices: TypeAlias = Annotated[
    Column, records({"message": ConversationKind(accepts=frozenset({"message"}), wide=True)})
]


@converter(
    wide=True,
    paths={
        "messages": "request.messages",
        "choices": "response.choices",
        "tools": "request.tools",
    },
    harmless=("id", "usage", "model"),
)
def chat(messages: WideMessages, choices: Choices, tools: Tools = ABSENT) -> Completion:
    """https://platform.openai.com/docs/api-reference/chat; of several choices the first is the reply."""
    first = choices.with_value(choices.value.list.first().struct.field("message"))
    return completion(must_end_with_prompt(messages, "messages"), first, tools)
