"""Control tokens inside content: text that a template or tokenizer may read as its own control tokens.

A row is kept and counted: whether `<|im_end|>` in an answer is an attack or a lesson on chat formats is
for its owner to say.
"""

import re
from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from fmtkit.columns.image_values import PLACEHOLDER
from fmtkit.core.tables import CONVERSATION_COLUMNS
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.sources.structure import places_of

LOOKS = re.compile(
    r"<\|[^|<>\s{}]{1,40}\|>|</?s>|\[/?INST\]|\[/?SYSTEM_PROMPT\]|<(?:start|end)_of_turn>|<[a-z]*\|?turn\|?>"
    r"|<(?:bos|eos|pad)>|<｜[^｜<>]{1,40}｜>"
)


def tokens_in(source: str, special: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the control tokens that a template's source writes, and these special tokens."""
    found = set(LOOKS.findall(source)) | {token for token in special if len(token) > 1}
    return tuple(sorted(found))


def written_by(template: ChatTemplate) -> tuple[str, ...]:
    """Return the control tokens of a template: those that its source writes, and its special tokens.

    The placeholder of images is not among them: in a row without images it is a separate fault.
    """
    special = [token for token in template.special_tokens.values() if token != PLACEHOLDER]
    return tokens_in(template.source, special)


def count_rows(table: pa.Table, tokens: Sequence[str]) -> int:
    """Count the rows of a canonical table with a token inside content."""
    names = [name for name in table.schema.names if name in CONVERSATION_COLUMNS]
    conversations = [name for name in names if pa.types.is_list(table.schema.field(name).type)]
    suspects = [name for name in conversations if _may_hold(table.column(name), tokens)]
    if not suspects:
        return 0
    frame = pl.from_arrow(table.select(suspects))
    assert isinstance(frame, pl.DataFrame)
    content = pl.element().struct.field("content")
    tests = [
        pl.col(name).list.eval(content.str.contains_any(list(tokens))).list.any()
        for name in suspects
    ]
    return int(frame.select(pl.any_horizontal(tests).fill_null(value=False).sum()).item())


def _may_hold(conversations: pa.ChunkedArray, tokens: Sequence[str]) -> bool:
    """Return whether the first two bytes of a token occur in the contents.

    That takes 0.8 ms for 4 MiB without any; a search for each token takes 4.6 ms.
    """
    pairs = {token.encode()[:2] for token in tokens}
    for chunk in conversations.chunks:
        contents = chunk.values.field("content").buffers()[2]
        data = np.frombuffer(contents or b"", dtype=np.uint8)
        for pair in pairs:
            places = places_of(data[:-1], pair[0])
            if (data[places + 1] == pair[1]).any():
                return True
    return False
