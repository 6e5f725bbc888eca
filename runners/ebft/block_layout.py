"""The layout of a document and its generated blocks in one row of tokens.

A row is S document tokens, then G groups of M tokens, step-major: token (step t, block β) is
at S + t·M + β. All N samples of all anchors of a document are blocks of the same row, so the
document is computed once: β = n·(number of anchors) + anchor. F = S + G·M. B rows make a batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class BlockLayout:
    """Indices, positions and visibility of the tokens of a batch of rows."""

    anchors: Tensor
    """(B, M) int64: the document position that each block begins at, at least 1."""
    document: int
    """S, the padded length of the documents."""
    steps: int
    """G, the tokens of a block."""

    @property
    def blocks(self) -> int:
        """M, the blocks of a row."""
        return self.anchors.shape[1]

    @property
    def size(self) -> int:
        """F, the tokens of a row."""
        return self.document + self.steps * self.blocks

    def position_ids(self, step: int | None = None) -> Tensor:
        """Return the positions of all tokens (B, F), or of one step's tokens (B, M)."""
        if step is not None:
            return self.anchors + step
        rows = self.anchors.shape[0]
        document = torch.arange(self.document, device=self.anchors.device).expand(rows, -1)
        return torch.cat([document, *(self.anchors + step for step in range(self.steps))], dim=1)

    def predictors(self) -> Tensor:
        """Return the indices of the logits that predict the generated tokens in order, (B, G·M).

        A block's first token is predicted by the document token before its anchor, a later one by the
        block's token of the previous step, which is M tokens to the left.
        """
        later = torch.arange(self.document, self.size - self.blocks, device=self.anchors.device)
        return torch.cat([self.anchors - 1, later.expand(self.anchors.shape[0], -1)], dim=1)

    def windows(self) -> Tensor:
        """Return the indices of the document tokens that each block replaces, (B, M, G), at most S − 1."""
        steps = torch.arange(self.steps, device=self.anchors.device)
        return (self.anchors[..., None] + steps).clamp(max=self.document - 1)

    def limits(self) -> Tensor:
        """Return how many document tokens each token sees, (B, F)."""
        rows = self.anchors.shape[0]
        document = torch.arange(1, self.document + 1, device=self.anchors.device).expand(rows, -1)
        return torch.cat([document, self.anchors.repeat(1, self.steps)], dim=1)

    def join(self, document: Tensor, blocks: Tensor) -> Tensor:
        """Put document tokens (B, S) and generated ones (B, G, M) into rows (B, F)."""
        return torch.cat([document, blocks.flatten(1)], dim=1)

    def generated(self, values: Tensor) -> Tensor:
        """Return the values (B, F, D) of the generated tokens, as (B, M, G, D)."""
        blocks = values[:, self.document :]
        shape = (values.shape[0], self.steps, self.blocks, values.shape[-1])
        return blocks.reshape(shape).transpose(1, 2)
