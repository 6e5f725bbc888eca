"""Replay: groups without a signal are replaced by earlier ones that had one.

A group has a signal if an advantage in it is not zero. The stored advantages are used again; the
log-probabilities of the old policy are recomputed, unless the stored ones are asked for.

TRL pads prompts on the left and completions on the right, each batch to its own longest row: a row of
a different batch fits in only after its padding is removed.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import pad

from fmtkit.core.errors import OptionError

from .plan import UNKEPT_IMAGES

Member = TypeVar("Member")


@dataclass(frozen=True, order=True)
class _Entry(Generic[Member]):
    """A group and its score; of two with equal scores the older ranks higher."""

    score: float
    age: int
    members: tuple[Member, ...] = field(compare=False)


class ReplayBuffer(Generic[Member]):
    """The best `size` groups so far. It belongs to one process, and no checkpoint holds it."""

    def __init__(self, size: int, seed: int) -> None:
        """Start empty; draws depend on the seed, and do not touch torch's generator."""
        self.size = size
        self._entries: list[_Entry[Member]] = []
        self._ages = count(0, -1)
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, members: Sequence[Member], score: float) -> None:
        """Keep a group, if its score is above zero and among the best."""
        if score <= 0:
            return
        entry = _Entry(score, next(self._ages), tuple(members))
        if len(self._entries) < self.size:
            heapq.heappush(self._entries, entry)
        else:
            heapq.heappushpop(self._entries, entry)

    def draw(self, wanted: int) -> list[tuple[Member, ...]]:
        """Draw groups by their scores, without replacement; fewer if there are fewer."""
        amount = min(wanted, len(self._entries))
        if not amount:
            return []
        scores = np.array([entry.score for entry in self._entries])
        chosen = self._generator.choice(
            len(scores), size=amount, replace=False, p=scores / scores.sum()
        )
        return [self._entries[index].members for index in chosen]


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
    """Return rows of a batch: [B, P] prompts, [B, T] completions and values, [B] advantages."""
    return [_row(batch, index) for index in indices]


def _row(batch: Mapping[str, Any], index: int) -> TokenRow:
    # A completion that was cut may be masked completely; one masked token keeps its row in shape.
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
    """Replace the rows with these numbers, and pad the whole batch again."""
    batch_rows = [
        rows.get(index) or _row(batch, index) for index in range(batch["completion_ids"].size(0))
    ]
    device = batch["completion_ids"].device

    def padded(parts: list[Tensor], value: Any, side: str) -> Tensor:
        out = pad(parts, padding_value=value, padding_side=side, pad_to_multiple_of=multiple)
        return out.to(device)

    ones = [torch.ones_like(row.prompt) for row in batch_rows]
    out = dict(batch) | {
        "prompt_ids": padded([row.prompt for row in batch_rows], pad_token, "left"),
        "prompt_mask": padded(ones, 0, "left"),
        "completion_ids": padded([row.completion for row in batch_rows], pad_token, "right"),
        "advantages": torch.tensor([row.advantage for row in batch_rows], device=device),
    }
    for name, value in FILLED.items():
        if name in batch:
            out[name] = padded([row.values[name] for row in batch_rows], value, "right")
    return out


Batch = dict[str, Any]

_SILENT = 1e-6
"""Advantages below it are rounding: those of GDPO are centred over the batch."""


class Replay:
    """Fills batches of one trainer from a buffer; the batch of a process holds complete groups."""

    def __init__(self, trainer: Any, size: int, *, recompute: bool) -> None:
        """Keep `size` groups; `recompute` the old log-probabilities of what comes again."""
        seed = trainer.args.seed + trainer.accelerator.process_index
        self.trainer = trainer
        self.recompute = recompute
        self.buffer: ReplayBuffer[TokenRow] = ReplayBuffer(size, seed)

    def filled(self, batch: Batch, totals: Tensor) -> Batch:
        """Return the batch with its silent groups replaced; `totals` [B] are its rewards."""
        if "pixel_values" in batch:
            raise OptionError(UNKEPT_IMAGES)
        if not self.recompute:
            batch = self._with_old_logps(batch)
        silent = self._silent_groups(batch)
        drawn = self.buffer.draw(len(silent))
        self._keep(batch, totals, silent)
        indices = [i for start in silent[: len(drawn)] for i in self._group(start)]
        rows = dict(zip(indices, (row for group in drawn for row in group), strict=True))
        batch = self._placed(batch, rows)
        metrics = self.trainer._metrics["train"]
        metrics["replay/replaced"].append(float(len(drawn)))
        metrics["replay/size"].append(float(len(self.buffer)))
        return batch

    def _group(self, start: int) -> range:
        return range(start, start + self.trainer.num_generations)

    def _starts(self, batch: Batch) -> range:
        return range(0, batch["advantages"].size(0), self.trainer.num_generations)

    def _silent_groups(self, batch: Batch) -> list[int]:
        advantages = batch["advantages"].abs()
        return [
            start
            for start in self._starts(batch)
            if float(advantages[start : start + self.trainer.num_generations].max()) <= _SILENT
        ]

    def _keep(self, batch: Batch, totals: Tensor, silent: Sequence[int]) -> None:
        for start in self._starts(batch):
            if start in silent:
                continue
            group = slice(start, start + self.trainer.num_generations)
            spread = float(totals[group].nan_to_num(0.0).std())
            score = float(batch["advantages"][group].abs().sum()) * spread
            self.buffer.add(rows_of(batch, self._group(start)), score)

    def _placed(self, batch: Batch, rows: dict[int, TokenRow]) -> Batch:
        """Put rows in; every process takes part in what follows, whether it has some or not."""
        trainer = self.trainer
        if rows:
            batch = placed(
                batch,
                rows,
                pad_token=trainer._tokenizer.pad_token_id,
                multiple=trainer.pad_to_multiple_of,
            )
        if self._anywhere(bool(rows)):
            batch = self._recomputed(batch, sorted(rows))
        mask = loss_mask(batch)
        batch["num_items_in_batch"] = trainer.accelerator.gather(mask.sum()).sum()
        return batch

    def _anywhere(self, here: bool) -> bool:
        accelerator = self.trainer.accelerator
        if accelerator.num_processes == 1:
            return here
        flag = torch.tensor([here], device=accelerator.device)
        return bool(accelerator.gather(flag).any())

    def _recomputed(self, batch: Batch, indices: Sequence[int]) -> Batch:
        """Recompute what depends on the old policy in the replayed rows."""
        if self.recompute and "old_per_token_logps" in batch:
            # Sharded models need the same forward passes on every process, so all rows are recomputed there.
            is_single = self.trainer.accelerator.num_processes == 1
            every = range(batch["completion_ids"].size(0))
            asked = list(indices) if is_single else list(every)
            fresh = dict(zip(asked, self.log_probs(batch, asked), strict=True))
            for index in indices:
                batch["old_per_token_logps"][index] = fresh[index]
        if "importance_sampling_ratio" in batch:
            batch["importance_sampling_ratio"] = self._ratio(batch)
        return batch

    def _with_old_logps(self, batch: Batch) -> Batch:
        if "old_per_token_logps" in batch:
            return batch
        every = range(batch["completion_ids"].size(0))
        return batch | {"old_per_token_logps": self.log_probs(batch, list(every))}

    def log_probs(self, batch: Batch, indices: list[int]) -> Tensor:
        """Return the log-probabilities [len(indices), T] under the current policy."""
        trainer = self.trainer
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)[indices]
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)[indices]
        kept = batch["completion_ids"].size(1)
        model, options = trainer.model, trainer.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(model, options):
            logps, _, _ = trainer._get_per_token_logps_and_entropies(
                model, ids, mask, kept, batch_size=trainer.args.per_device_train_batch_size
            )
        result: Tensor = logps
        return result

    def _ratio(self, batch: Batch) -> Tensor:
        """Compute TRL's ratio for the whole batch; for rows that stayed it is unchanged."""
        trainer = self.trainer
        return importance_ratio(
            batch["old_per_token_logps"],
            batch["sampling_per_token_logps"],
            loss_mask(batch),
            mode=trainer.vllm_importance_sampling_mode,
            clip_min=trainer.vllm_importance_sampling_clip_min,
            clip_max=trainer.vllm_importance_sampling_clip_max,
        )


def loss_mask(batch: Batch) -> Tensor:
    """Return which tokens of the completions are trained on [B, T]."""
    mask: Tensor = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


def importance_ratio(
    old: Tensor,
    sampled: Tensor,
    mask: Tensor,
    *,
    mode: str,
    clip_min: float | None,
    clip_max: float | None,
) -> Tensor:
    """Return the ratio per token [B, T] or per sequence [B, 1] for log-probabilities [B, T].

    `*_truncate` modes clamp a ratio that is out of bounds, `*_mask` modes make it zero. A token whose
    sampled log-probability is unknown (NaN) has the ratio 1.
    """
    difference = torch.nan_to_num((old - sampled) * mask, nan=0.0)
    if mode.startswith("sequence"):
        difference = difference.sum(dim=-1, keepdim=True)
    ratio = torch.exp(difference)
    if mode.endswith("truncate"):
        return torch.clamp(ratio, min=clip_min, max=clip_max)
    low = -math.inf if clip_min is None else clip_min
    high = math.inf if clip_max is None else clip_max
    return ratio.masked_fill((ratio < low) | (ratio > high), 0.0)
