"""Rows as a model would read them: the texts of prompts and replies, and rows that have none.

With a template they are what it writes. Without one they are the contents, joined by line breaks:
no more than a lower bound of what a model reads.
"""

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fmtkit.columns.flat_messages import flatten, keys_of
from fmtkit.core.data_classes import dataclass
from fmtkit.core.message_keys import IMAGE, in_parts
from fmtkit.core.tables import has_images
from fmtkit.findings.conversation_shapes import conversation_names
from fmtkit.rendering import chat
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.content_parts import Cuts

Ints = npt.NDArray[np.int64]

REPLIES = ("chosen", "rejected", "completion")
BREAK = pa.scalar("\n", pa.large_string())


@dataclass(frozen=True)
class Written:
    """The texts of the rows `kept` (their places in the batch)."""

    kept: Ints
    texts: Mapping[str, pa.Array]
    """Column -> text of each row: prompts with the generation prompt, replies without their prompt."""
    lists: Mapping[str, pa.ListArray] = field(default_factory=dict)
    """Column -> texts of each row, tokenized one by one: steps, ranked replies."""
    failures: tuple[chat.Failure, ...] = ()
    warnings: Mapping[str, list[int]] = field(default_factory=dict)
    """Code -> rows of the batch."""
    unthought: tuple[tuple[int, bool], ...] = ()
    """The rows of replies whose reasoning is left out, and whether each is the last of its row."""


def write(table: pa.Table, template: ChatTemplate | None) -> Written:
    """Write the rows of a canonical table in messages form (or of text, which stays as it is)."""
    conversations = conversation_names(table)
    plain = {n: table[n].combine_chunks() for n in table.column_names if _is_text(table, n)}
    if template is not None and conversations:
        made = _render(table, template, conversations)
        plain = {name: text.take(pa.array(made.kept)) for name, text in plain.items()}
        texts = {**made.texts, **plain}
        return replace(made, texts=texts, lists=_lists(table, made.kept))
    texts = {name: contents(table[name].combine_chunks()) for name in conversations}
    everything = np.arange(table.num_rows)
    return Written(everything, {**texts, **plain}, _lists(table, everything))


TEXT_COLUMNS = frozenset({"text", "prompt", "completion", "chosen", "rejected", "ground_truth"})


def _is_text(table: pa.Table, name: str) -> bool:
    kind = table.schema.field(name).type
    return name in TEXT_COLUMNS and (pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _render(table: pa.Table, template: ChatTemplate, conversations: list[str]) -> Written:
    tools = table["tools"] if "tools" in table.column_names else None
    replies = {name: table[name] for name in REPLIES if name in conversations}
    cuts = _cuts(table, conversations) if has_images(table.schema) else None
    if replies:
        pair = chat.render_reply(template, table["prompt"], replies, tools=tools, cuts=cuts)
        texts, failures, warnings = (
            {"prompt": pair.prompt, **pair.replies},
            pair.failures,
            pair.warnings,
        )
        unthought = pair.unthought
    else:
        name = "messages" if "messages" in conversations else "prompt"
        asks = name == "prompt"
        one = chat.render(template, table[name], add_generation_prompt=asks, tools=tools, cuts=cuts)
        texts, failures, warnings = {name: one.text}, one.failures, one.warnings
        unthought = one.unthought
    kept = np.delete(np.arange(table.num_rows), sorted({f.row for f in failures}))
    if failures:
        texts = {name: text.take(pa.array(kept)) for name, text in texts.items()}
    return Written(kept, texts, {}, tuple(failures), warnings, unthought)


def _cuts(table: pa.Table, conversations: list[str]) -> Mapping[int, Cuts]:
    """Return every content of rows with images in parts, as trainers get them (`core.tables.final_rows`)."""
    found: dict[int, dict[str, tuple[str, ...]]] = {}
    for name in conversations:
        flat = flatten(table.column(name))
        contents = keys_of(flat.messages)["content"].to_pylist()
        for row, text in zip(flat.rows.tolist(), contents, strict=True):
            if text is not None:
                found.setdefault(row, {})[text] = tuple(in_parts(text)) or ("",)
    return found


def _lists(table: pa.Table, kept: Ints) -> dict[str, pa.ListArray]:
    found = {}
    if "segments" in table.column_names and pa.types.is_list(table.schema.field("segments").type):
        lists = table["segments"].combine_chunks().take(pa.array(kept))
        offsets = np.append(0, np.cumsum(pc.list_value_length(lists).to_numpy())).astype(np.int32)
        found["segments"] = pa.ListArray.from_arrays(
            pa.array(offsets), pc.list_flatten(lists).field("text")
        )
    for name in ("completions", "replies"):
        if name not in table.column_names:
            continue
        lists = table[name].combine_chunks()
        lists = lists if len(kept) == len(lists) else lists.take(pa.array(kept))
        found[name] = _joined_replies(lists) if name == "replies" else lists
    return found


def _joined_replies(replies: pa.ListArray) -> pa.ListArray:
    sizes = pc.fill_null(pc.list_value_length(replies), 0).to_numpy()
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), contents(pc.list_flatten(replies)).cast(pa.string())
    )


def contents(conversations: pa.ListArray) -> pa.Array:
    """Join the contents of each row's messages by line breaks, without the marks of images."""
    sizes = pc.fill_null(pc.list_value_length(conversations), 0).to_numpy().astype(np.int64)
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int64())
    said = pc.fill_null(pc.list_flatten(conversations).field("content"), "").cast(pa.large_string())
    said = pc.replace_substring(said, IMAGE, "")
    return pc.binary_join(pa.LargeListArray.from_arrays(offsets, said), BREAK)
