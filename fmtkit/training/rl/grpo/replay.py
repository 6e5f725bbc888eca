"""Replay: groups without a signal give their place to earlier ones that had one.

A group has a signal if an advantage in it is not zero. The stored advantages are used again; the
log-probabilities of the old policy are recomputed, unless the stored ones are asked for.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from trl.models.utils import disable_gradient_checkpointing

from fmtkit.core.errors import OptionError
from fmtkit.training.rl.grpo.importance_ratio import importance_ratio
from fmtkit.training.rl.grpo.padded_rows import TokenRow, placed, rows_of
from fmtkit.training.rl.grpo.replay_buffer import ReplayBuffer

Batch = dict[str, Any]

_SILENT = 1e-6
"""Advantages below it are rounding: those of GDPO are centred over the batch."""


class Replay:
    """Fills batches of one trainer from a buffer; the batch of a process holds whole groups."""

    def __init__(self, trainer: Any, size: int, *, recompute: bool) -> None:
        """Keep `size` groups; `recompute` the old log-probabilities of what comes again."""
        seed = trainer.args.seed + trainer.accelerator.process_index
        self.trainer = trainer
        self.recompute = recompute
        self.buffer: ReplayBuffer[TokenRow] = ReplayBuffer(size, seed)

    def filled(self, batch: Batch, totals: Tensor) -> Batch:
        """Return the batch with its silent groups replaced; `totals` [B] are its rewards."""
        if "pixel_values" in batch:
            raise OptionError(
                "trl.replay_buffer_size: groups with images cannot be kept; set it to 0"
            )
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
        """Renew what depends on the old policy in the rows that came again."""
        if self.recompute and "old_per_token_logps" in batch:
            # Sharded models need the same forward passes on every process: there, of all rows.
            alone = self.trainer.accelerator.num_processes == 1
            every = range(batch["completion_ids"].size(0))
            asked = list(indices) if alone else list(every)
            fresh = dict(zip(asked, self._logps(batch, asked), strict=True))
            for index in indices:
                batch["old_per_token_logps"][index] = fresh[index]
        if "importance_sampling_ratio" in batch:
            batch["importance_sampling_ratio"] = self._ratio(batch)
        return batch

    def _with_old_logps(self, batch: Batch) -> Batch:
        if "old_per_token_logps" in batch:
            return batch
        every = range(batch["completion_ids"].size(0))
        return batch | {"old_per_token_logps": self._logps(batch, list(every))}

    def _logps(self, batch: Batch, indices: list[int]) -> Tensor:
        """Return the log-probabilities [len(indices), T] under the policy as it is."""
        trainer = self.trainer
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)[indices]
        mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)[indices]
        kept = batch["completion_ids"].size(1)
        model, options = trainer.model, trainer.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(model, options):
            logps, _, _ = trainer._get_per_token_logps_and_entropies(
                model, ids, mask, kept, batch_size=trainer.args.per_device_train_batch_size
            )
        found: Tensor = logps
        return found

    def _ratio(self, batch: Batch) -> Tensor:
        """Compute TRL's ratio for the whole batch; for rows that stayed it is what it was."""
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
