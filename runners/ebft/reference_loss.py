"""Cross-entropy on the references of structured EBFT: one copy of each group's."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .block_loss import token_log_probs
from .language_model import LanguageModel
from .reference_sequences import Renderer


def reference_batch(
    rows: Sequence[Mapping[str, Any]], renderer: Renderer, group: int
) -> dict[str, Tensor]:
    """Return gt_ids, gt_mask and gt_labels (N, T), right-padded, and gt_own (N,) bool.

    The first row of a group owns its reference; the other rows only keep the batch's shape while
    TRL shuffles and splits it. A group without a reference has no owner. Trained on are the reference
    and the end-of-text after it.
    """
    sequences, prompts, known = [], [], []
    for start in range(0, len(rows), group):
        row = rows[start]
        truth = row["ground_truth"] or ""
        known.append(bool(truth.strip()))
        sequence = renderer.reference(row["prompt"], truth)
        sequences.append(torch.tensor([*sequence.ids, renderer.tokenizer.eos_token_id]))
        prompts.append(sequence.prompt)
    ids = pad_sequence(sequences, batch_first=True)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    position = torch.arange(ids.shape[1])
    mask = position < lengths[:, None]
    trained = mask & (position >= torch.tensor(prompts)[:, None])
    batch = {"gt_ids": ids, "gt_mask": mask.long(), "gt_labels": ids.where(trained, -100)}
    first = (torch.arange(len(rows)) % group == 0) & torch.tensor(known).repeat_interleave(group)
    return {**{k: v.repeat_interleave(group, dim=0) for k, v in batch.items()}, "gt_own": first}


def reference_loss(model: LanguageModel, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the summed −log p of the owned references' tokens, and their number.

    The plain forward at temperature 1: TRL's fused one divides by the sampling temperature.
    Without an owned row the sum is a zero that has a gradient, so that every rank runs the same
    forward.
    """
    chosen = batch["gt_own"]
    rows = chosen if chosen.any() else torch.arange(len(chosen), device=chosen.device) == 0
    ids, mask = batch["gt_ids"][rows], batch["gt_mask"][rows]
    labels = batch["gt_labels"][rows] if chosen.any() else torch.full_like(ids, -100)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
    targets = labels[:, 1:]
    wanted = targets != -100
    log_probs = token_log_probs(logits, targets.where(wanted, 0))
    return -(log_probs * wanted).sum(), wanted.sum()
