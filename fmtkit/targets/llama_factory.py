"""LLaMA-Factory: ShareGPT as its loader takes it, with the dataset_info.json that reads it."""

import json
from pathlib import PurePath

from fmtkit.columns.exports import (
    alternating,
    must_be_one_message,
    must_have_reply,
    only_item,
    sharegpt,
    whole,
)
from fmtkit.core.tables import Conversation, Preference, Unpaired
from fmtkit.formats.target_registry import WrittenColumns, target

INFO = "dataset_info.json"


def dataset_info(name: str, rows: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """Return LLaMA-Factory's list of datasets with one entry: rows that are beside it."""
    named = {"conversations": "messages"}
    entry: dict[str, object] = {"file_name": PurePath(rows).name, "formatting": "sharegpt"}
    if "chosen" in columns:
        entry["ranking"] = True
    entry["columns"] = {named.get(column, column): column for column in columns}
    return INFO, json.dumps({name: entry}, indent=2) + "\n"


@target(
    reads="sharegpt",
    holds=("system", "turns", "tools", "tool_calls", "images"),
    calls="bare",
    images="paths",
    beside=dataset_info,
)
def chat(table: Conversation) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, ShareGPT format."""
    turns = alternating(must_have_reply(table.messages), ends_with_reply=True)
    return {"conversations": sharegpt(turns), "tools": table.tools}


@target(
    reads="sharegpt_preference",
    holds=("system", "turns", "images"),
    images="paths",
    beside=dataset_info,
)
def preference(table: Preference) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, preference dataset."""
    return {
        "conversations": sharegpt(alternating(table.prompt, ends_with_reply=False)),
        "chosen": only_item(sharegpt(must_be_one_message(table.chosen))),
        "rejected": only_item(sharegpt(must_be_one_message(table.rejected))),
    }


@target(reads="sharegpt", holds=("system", "turns", "images"), images="paths", beside=dataset_info)
def unpaired(table: Unpaired) -> WrittenColumns:
    """https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md, KTO dataset."""
    turns = whole(table.prompt, must_be_one_message(table.completion))
    return {
        "conversations": sharegpt(alternating(turns, ends_with_reply=True)),
        "kto_tag": table.label,
    }
