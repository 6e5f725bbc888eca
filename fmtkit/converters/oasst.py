"""OpenAssistant's message trees: a prompt whose replies are ranked and have replies themselves."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import polars as pl

from fmtkit.columns import blank, records
from fmtkit.columns.expansion import repeats_too_much, several, too_large
from fmtkit.columns.kinds import (
    BranchKind,
    FlagKind,
    ListKind,
    NumberKind,
    RecordKind,
    TextKind,
    TreeKind,
)
from fmtkit.columns.message_rules import NARROW
from fmtkit.columns.problems import Column, Problem
from fmtkit.core.tables import Conversation, Ranking
from fmtkit.formats.registry import converter

ROLES = {"prompter": "user", "assistant": "assistant", "system": "system"}
MESSAGE = RecordKind(
    {
        "text": TextKind(),
        "role": TextKind(),
        "rank": NumberKind(),
        "deleted": FlagKind(),
        "replies": ListKind(BranchKind("message")),
    },
    frozenset({"rank", "deleted", "replies"}),
)
Tree: TypeAlias = Annotated[Column, TreeKind(MESSAGE, "message")]
FLAT = records(
    {
        "message_id": TextKind(),
        "parent_id": TextKind(),
        "text": TextKind(),
        "role": TextKind(),
        "rank": NumberKind(),
        "deleted": FlagKind(),
    },
    optional=("parent_id", "rank", "deleted"),
)
Flat: TypeAlias = Annotated[Column, FLAT]
Record: TypeAlias = Mapping[str, Any]
TOLD = ("text", "role", "rank", "deleted")
LINKED = pl.Struct(
    {
        "text": pl.String,
        "role": pl.String,
        "rank": pl.Float64,
        "deleted": pl.Boolean,
        "parent": pl.Int64,
    }
)
CONVERSATION = pl.List(NARROW)
RANKING = pl.Struct(
    {"prompt": CONVERSATION, "replies": pl.List(CONVERSATION), "scores": pl.List(pl.Float64)}
)


@converter()
def ranked(prompt: Tree, *, pairs: str = "best-worst") -> Ranking:  # noqa: ARG001
    """https://huggingface.co/datasets/OpenAssistant/oasst1, trees: rank 0 is the best reply.

    Each prompt of the tree with two ranked replies or more is a ranking of its own.
    """
    made = _made(_checked(prompt), _rankings, RANKING)
    asked, replies, scores = (
        several(made.with_value(made.value.list.eval(pl.element().struct.field(name))))
        for name in ("prompt", "replies", "scores")
    )
    return Ranking(asked, replies, scores)


@converter(name="oasst.threads")
def threads(prompt: Tree) -> Conversation:
    """https://huggingface.co/datasets/OpenAssistant/oasst1, trees: each path to a last reply."""
    return Conversation(several(_made(_checked(prompt), _threads, CONVERSATION)))


@converter(name="oasst.rows", rows_by="message_tree_id")
def ranked_rows(rows: Flat, *, pairs: str = "best-worst") -> Ranking:  # noqa: ARG001
    """https://huggingface.co/datasets/OpenAssistant/oasst1: a row for each message of a tree.

    The rows of a tree are adjacent, and each names its parent; each prompt with two ranked
    replies or more is a ranking of its own.
    """
    made = _made(_checked(_as_tree(rows)), _rankings, RANKING)
    asked, replies, scores = (
        several(made.with_value(made.value.list.eval(pl.element().struct.field(name))))
        for name in ("prompt", "replies", "scores")
    )
    return Ranking(asked, replies, scores)


@converter(name="oasst.rows.threads", rows_by="message_tree_id")
def row_threads(rows: Flat) -> Conversation:
    """https://huggingface.co/datasets/OpenAssistant/oasst1, rows: each path to a last reply."""
    return Conversation(several(_made(_checked(_as_tree(rows)), _threads, CONVERSATION)))


def _as_tree(rows: Column) -> Column:
    """Return for each message where in the list its parent is, as a tree that was read from one row does."""
    linked = rows.with_value(
        rows.value.map_batches(_linked, return_dtype=pl.List(LINKED), is_elementwise=True)
    ).once("__tree")
    torn = Problem(
        "value_error",
        "parent_id",
        linked.value.is_null() & rows.value.is_not_null(),
        "these rows are not a single tree: the rows of a tree must be adjacent, with its prompt, and "
        "each message must be there once",
    )
    return linked.with_value(linked.value, torn)


def _linked(column: pl.Series) -> pl.Series:
    lists: list[list[Record] | None] = column.to_list()
    trees = [None if records is None else _tree(records) for records in lists]
    return pl.Series(column.name, trees, dtype=pl.List(LINKED))


def _tree(records: Sequence[Record]) -> list[Record] | None:
    """Return the messages of a tree, each after its parent; None if they are not a single tree."""
    replies: dict[str | None, list[Record]] = {}
    for record in records:
        replies.setdefault(record["parent_id"], []).append(record)
    tree: list[Record] = []
    waiting: list[tuple[Record, int | None]] = [(one, None) for one in replies.get(None, ())]
    if len(waiting) != 1 or len({record["message_id"] for record in records}) < len(records):
        return None
    while waiting:
        record, parent = waiting.pop()
        below = replies.get(record["message_id"], ())
        waiting += [(one, len(tree)) for one in reversed(below)]
        tree.append({name: record[name] for name in TOLD} | {"parent": parent})
    return tree if len(tree) == len(records) else None


def _checked(tree: Column) -> Column:
    field = pl.element().struct.field
    there = ~field("deleted").fill_null(value=False)

    def any_record(wrong: pl.Expr) -> pl.Expr:
        return tree.value.list.eval(there & wrong).list.any()

    return tree.with_value(
        tree.value,
        Problem(
            "unknown_role",
            "prompt.role",
            any_record(~field("role").is_in(list(ROLES))),
            f"a role of the tree is none of {', '.join(ROLES)}",
        ),
        Problem("empty_field", "prompt.text", any_record(blank(field("text"))), "a text is blank"),
    )


def _made(
    tree: Column, made: Callable[[Sequence[Record]], list[Any] | None], dtype: pl.DataType
) -> Column:
    """Make a list of each tree, row by row: a tree has no shape that columns could share."""

    def of_all(column: pl.Series) -> pl.Series:
        lists = [None if records is None else made(records) for records in column.to_list()]
        return pl.Series(column.name, lists, dtype=pl.List(dtype))

    value = tree.value.map_batches(of_all, return_dtype=pl.List(dtype), is_elementwise=True)
    column = tree.with_value(value).once("__made")
    is_large = column.value.is_null() & tree.value.is_not_null()
    return column.with_value(column.value, too_large("tree", "prompt", is_large))


def _rankings(records: Sequence[Record]) -> list[Any] | None:
    """Rank the replies of each prompt; those without a rank, or deleted, are left out."""
    replies: dict[int, list[int]] = {}
    for place in _kept(records):
        if records[place]["role"] == "assistant" and records[place]["rank"] is not None:
            replies.setdefault(records[place]["parent"], []).append(place)
    replies = {asked: places for asked, places in replies.items() if len(places) > 1}
    if not _few(records, replies):
        return None
    return [
        {
            "prompt": _path(records, asked),
            "replies": [[_message(records[place])] for place in places],
            "scores": [0 - records[place]["rank"] for place in places],
        }
        for asked, places in sorted(replies.items())
    ]


def _threads(records: Sequence[Record]) -> list[Any] | None:
    """Follow the tree to each reply that has no reply itself."""
    spoken = [place for place in _kept(records) if records[place]["role"] == "assistant"]
    inner: set[int] = set()
    for place in spoken:
        above = records[place]["parent"]
        # What leads to a place that is known to be within the tree is known to be so too.
        while above is not None and above not in inner:
            inner.add(above)
            above = records[above]["parent"]
    last = [place for place in spoken if place not in inner]
    return [_path(records, place) for place in last] if _few(records, last) else None


def _few(records: Sequence[Record], places: Iterable[int]) -> bool:
    """Return whether the paths to these places are short enough to be written one by one."""
    depths: list[int] = []
    sizes: list[int] = []
    for record in records:
        above, size = record["parent"], len(record["text"].encode())
        depths.append(1 if above is None else depths[above] + 1)
        sizes.append(size if above is None else sizes[above] + size)
    placed = [*places]
    messages, text_bytes = (sum(found[place] for place in placed) for found in (depths, sizes))
    return not repeats_too_much(messages, text_bytes)


def _kept(records: Sequence[Record]) -> list[int]:
    """Return the places of the records that are not deleted, nor below one that is."""
    kept: set[int] = set()
    for place, record in enumerate(records):
        if not record["deleted"] and (record["parent"] is None or record["parent"] in kept):
            kept.add(place)
    return sorted(kept)


def _path(records: Sequence[Record], place: int) -> list[dict[str, str]]:
    return [_message(records[above]) for above in reversed(_above(records, place))]


def _above(records: Sequence[Record], place: int) -> list[int]:
    """Return a record's place and those that lead to it, the root last."""
    places = [place]
    while (parent := records[places[-1]]["parent"]) is not None:
        places.append(parent)
    return places


def _message(record: Record) -> dict[str, str]:
    return {"role": ROLES.get(record["role"], ""), "content": record["text"]}
