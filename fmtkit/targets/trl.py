"""TRL: its dataset types in Parquet, tool calls and tools as the values that chat templates render."""

from functools import partial

from fmtkit.columns.exports import KEYS, messages
from fmtkit.columns.problems import Column
from fmtkit.core.tables import Completion, Conversation, Preference, Prompt, Stepwise, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target

held = partial(
    target,
    reads="passthrough",
    holds=(
        "system",
        "developer",
        "turns",
        "tools",
        "tool_calls",
        "tool_call_id",
        "name",
        "reasoning_content",
        "margin",
        "images",
    ),
    images="stored",
    json=(
        "tools",
        "messages.tool_calls",
        "prompt.tool_calls",
        "completion.tool_calls",
        "chosen.tool_calls",
        "rejected.tool_calls",
    ),
    formats=("parquet",),
    keeps=True,
)
"""Declare a target for TRL: all of its dataset types hold the same fields."""


def _spoken(spoken: Column, *, wide: bool) -> Column:
    return messages(spoken, *(KEYS if wide else ()))


@held()
def conversation(table: Conversation, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return {"messages": _spoken(table.messages, wide=wide), "tools": table.tools}


@held()
def completion(table: Completion, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return {
        "prompt": _spoken(table.prompt, wide=wide),
        "completion": _spoken(table.completion, wide=wide),
        "tools": table.tools,
    }


@held()
def prompt(table: Prompt, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-only."""
    return {
        "prompt": _spoken(table.prompt, wide=wide),
        "tools": table.tools,
        "answer": table.answer,
    }


@held()
def preference(table: Preference, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#preference."""
    return {
        "prompt": _spoken(table.prompt, wide=wide),
        "chosen": _spoken(table.chosen, wide=wide),
        "rejected": _spoken(table.rejected, wide=wide),
        "margin": table.margin,
        "tools": table.tools,
    }


@held()
def unpaired(table: Unpaired, *, wide: bool) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference."""
    return {
        "prompt": _spoken(table.prompt, wide=wide),
        "completion": _spoken(table.completion, wide=wide),
        "label": table.label,
        "tools": table.tools,
    }


@held(text=True)
def conversation_text(table: Conversation) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#language-modeling."""
    return {"text": table.messages}


@held(text=True)
def completion_text(table: Completion) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-completion."""
    return {"prompt": table.prompt, "completion": table.completion}


@held(text=True)
def prompt_text(table: Prompt) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#prompt-only."""
    return {"prompt": table.prompt, "answer": table.answer}


@held(text=True)
def preference_text(table: Preference) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#preference."""
    return {
        "prompt": table.prompt,
        "chosen": table.chosen,
        "rejected": table.rejected,
        "margin": table.margin,
    }


@held(text=True)
def unpaired_text(table: Unpaired) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#unpaired-preference."""
    return {"prompt": table.prompt, "completion": table.completion, "label": table.label}


@held(text=True)
def stepwise(table: Stepwise) -> WrittenColumns:
    """https://huggingface.co/docs/trl/dataset_formats#stepwise-supervision."""
    return {"prompt": table.prompt, "completions": table.completions, "labels": table.labels}
