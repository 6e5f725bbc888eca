"""Control tokens inside content: text that a template's or a tokenizer's control tokens could be taken for.

A row is kept and counted: whether `<|im_end|>` in an answer is an attack or a lesson on chat formats is
for its owner to say.
"""

import re
from collections.abc import Sequence

import polars as pl
import pyarrow as pa

from fmtkit.sources.blocks import Block, JsonBlock
from fmtkit.tables import DIALOG_COLUMNS

ESCAPE = b"\\u00"
ESCAPED = ("\\u003c", "\\u003C", "\\u005b", "\\u005B", "\\u007c", "\\u007C")
_LOOKS = re.compile(
    r"<\|[^|<>\s{}]{1,40}\|>|</?s>|\[/?INST\]|\[/?SYSTEM_PROMPT\]|<(?:start|end)_of_turn>|<[a-z]*\|?turn\|?>"
    r"|<(?:bos|eos|pad)>|<｜[^｜<>]{1,40}｜>"
)


def tokens_in(source: str, special: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the control tokens that a template's source writes, and these special tokens."""
    found = set(_LOOKS.findall(source)) | {token for token in special if len(token) > 1}
    return tuple(sorted(found))


def may_hold(block: Block, tokens: Sequence[str]) -> bool:
    """Tell whether a block's bytes may hold any of the tokens.

    Looks for their first two bytes before it looks for each. A JSON escape may hide one, so a block
    that escapes `<`, `[` or `|` may hold any.
    """
    if not tokens:
        return False
    if not isinstance(block, JsonBlock):
        return True
    beginnings = {token[:2].encode() for token in tokens} | {ESCAPE}
    if not any(beginning in block.data for beginning in beginnings):
        return False
    return any(token.encode() in block.data for token in (*tokens, *ESCAPED))


def count_rows(table: pa.Table, tokens: Sequence[str]) -> int:
    """Count the rows of a canonical table (messages or text) with a token inside content."""
    frame = pl.from_arrow(table.select([n for n in table.schema.names if n in DIALOG_COLUMNS]))
    assert isinstance(frame, pl.DataFrame)
    tests = []
    for name, dtype in frame.schema.items():
        if dtype == pl.String:
            continue
        content = pl.element().struct.field("content")
        tests.append(pl.col(name).list.eval(content.str.contains_any(list(tokens))).list.any())
    if not tests:
        return 0
    return int(frame.select(pl.any_horizontal(tests).fill_null(value=False).sum()).item())
