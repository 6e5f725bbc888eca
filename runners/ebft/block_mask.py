"""Which tokens of a row of blocks see which: one predicate, a dense and a FlexAttention mask.

A document token sees the document up to itself. A generated token (step t, block β) sees the
document before its anchor and its own block up to itself; never another block, never what it is
to rewrite.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .block_layout import BlockLayout

Predicate = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def visibility(layout: BlockLayout) -> Predicate:
    """Return allow(row, head, query, key) -> bool, elementwise over index tensors."""
    limits, document, blocks = layout.limits(), layout.document, max(layout.blocks, 1)

    def allow(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:  # noqa: ARG001
        same_block = (query - document) % blocks == (key - document) % blocks
        in_block = (query >= document) & same_block & (key <= query)
        return torch.where(key < document, key < limits[row, query], in_block)

    return allow


def dense_mask(
    layout: BlockLayout, queries: slice = slice(None), keys: int | None = None
) -> Tensor:
    """Return bool (B, 1, Q, K) for some queries (all by default) and the first `keys` tokens."""
    device = layout.anchors.device
    row = torch.arange(layout.anchors.shape[0], device=device)[:, None, None]
    query = torch.arange(layout.size, device=device)[queries][None, :, None]
    key = torch.arange(layout.size if keys is None else keys, device=device)[None, None, :]
    return visibility(layout)(row, row, query, key)[:, None]


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Turn a bool mask into 0 where allowed and the lowest number elsewhere.

    SDPA takes both forms, but eager attention silently adds a bool mask to the scores.
    """
    out = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return out.masked_fill_(~mask, torch.finfo(dtype).min)


def flex_mask(layout: BlockLayout) -> Any:
    """Return the FlexAttention BlockMask of the same predicate."""
    from torch.nn.attention.flex_attention import create_block_mask

    rows, size = layout.anchors.shape[0], layout.size
    device = str(layout.anchors.device)
    return create_block_mask(visibility(layout), rows, None, size, size, device=device)
