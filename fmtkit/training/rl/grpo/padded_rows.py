"""A scored batch as rows of their own lengths, and rows as a batch again.

TRL pads prompts on the left and completions on the right, each batch to its own longest row: a row of
another batch fits in only after its padding is taken off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl.trainer.utils import pad

FILLED = {
    "completion_mask": 0,
    "tool_mask": 1,
    "old_per_token_logps": 0.0,
    "ref_per_token_logps": 0.0,
    "sampling_per_token_logps": 0.0,
}
"""What TRL 1.16 keeps for each token of a completion -> the value of its padding."""


@dataclass(frozen=True)
class TokenRow:
    """One prompt with its completion, without padding, on the CPU; `values` are per token."""

    prompt: Tensor
    completion: Tensor
    advantage: float
    values: Mapping[str, Tensor]


def rows_of(batch: Mapping[str, Any], indices: Sequence[int]) -> list[TokenRow]:
    """Take rows out of a batch: [B, P] prompts, [B, T] completions and values, [B] advantages."""
    return [_row(batch, index) for index in indices]


def _row(batch: Mapping[str, Any], index: int) -> TokenRow:
    # A completion that was cut may be masked as a whole; one masked token keeps its row in shape.
    length = max(1, int(batch["completion_mask"][index].sum()))
    return TokenRow(
        prompt=batch["prompt_ids"][index][batch["prompt_mask"][index].bool()].cpu(),
        # A view would keep the whole batch in memory for as long as the row is kept.
        completion=batch["completion_ids"][index][:length].clone().cpu(),
        advantage=float(batch["advantages"][index]),
        values={
            name: batch[name][index][:length].detach().clone().cpu()
            for name in FILLED
            if name in batch
        },
    )


def placed(
    batch: Mapping[str, Any],
    rows: Mapping[int, TokenRow],
    *,
    pad_token: int,
    multiple: int | None = None,
) -> dict[str, Any]:
    """Put rows in the place of those with these numbers, and pad the whole batch anew."""
    whole = [
        rows.get(index) or _row(batch, index) for index in range(batch["completion_ids"].size(0))
    ]
    device = batch["completion_ids"].device

    def padded(parts: list[Tensor], value: Any, side: str) -> Tensor:
        out = pad(parts, padding_value=value, padding_side=side, pad_to_multiple_of=multiple)
        return out.to(device)

    ones = [torch.ones_like(row.prompt) for row in whole]
    out = dict(batch) | {
        "prompt_ids": padded([row.prompt for row in whole], pad_token, "left"),
        "prompt_mask": padded(ones, 0, "left"),
        "completion_ids": padded([row.completion for row in whole], pad_token, "right"),
        "advantages": torch.tensor([row.advantage for row in whole], device=device),
    }
    for name, value in FILLED.items():
        if name in batch:
            out[name] = padded([row.values[name] for row in whole], value, "right")
    return out
