"""The reward of structured EBFT, as a reward function of TRL's GRPOTrainer."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from fmtkit.core.errors import ColumnMismatchError, FmtkitError, OptionError

from .energy_reward import energy
from .feature_network import FeatureNetwork
from .features import check_finite, layer_indices, pool, token_features
from .language_model import layer_count
from .reference_sequences import Prompt, TokenSequence
from .settings import EbftSettings
from .strided_rollout import reward_weights


class EBFTReward:
    """Reward completions by how well their features match those of the reference (see energy_reward).

    Each instance belongs to one trainer, which attaches itself; the group size, the device and
    the chat template are the trainer's.
    """

    __name__ = "ebft"

    def __init__(self, settings: EbftSettings) -> None:
        """Make a reward that is not attached to a trainer yet."""
        self.settings = settings
        self.network: FeatureNetwork = _no_network
        self.trainer: Any = None

    def __call__(
        self,
        prompts: Sequence[Prompt],
        completions: Sequence[Any],  # noqa: ARG002 - TRL passes it to every reward function
        completion_ids: Sequence[Sequence[int]],
        ground_truth: Sequence[str] | None = None,
        remaining_turns: Sequence[Sequence[Mapping[str, Any]] | None] | None = None,
        **others: Any,
    ) -> list[float | None]:
        """Return one reward per completion, None where there is no reference; prompts come in groups."""
        group = self.trainer.group_size
        truths = check_group_rows(prompts, ground_truth, group)
        renderer = self.trainer.renderer
        owners = range(0, len(prompts), group)
        generated = [
            renderer.generated(*pair) for pair in zip(prompts, completion_ids, strict=True)
        ]
        references = [
            renderer.reference(prompts[i], truths[i], (remaining_turns or {i: ()})[i] or ())
            for i in owners
        ]
        samples = self._embed(generated, "the completions")
        truth = self._embed(references, "the references (one a prompt)")
        rewarded = energy(
            samples.view(len(owners), group, -1), truth, reward_weights(self.settings)
        )
        # Rows without a reference are computed as well: every process makes the same forward passes.
        known = torch.tensor([bool(truths[i].strip()) for i in owners], device=truth.device)
        log_metric = others.get("log_metric")
        if log_metric is not None:
            cut = [s.truncated for s in (*generated, *references)]
            log_metric("ebft/no_reference", float((~known).sum()))
            log_metric("ebft/truncated_frac", sum(cut) / len(cut))
            log_metric("ebft/whitening_failed", float(rewarded.whitening_failed))
        if log_metric is not None and known.any():
            log_metric("ebft/reward", float(rewarded.reward[known].mean()))
            for name, value in rewarded.metrics(known).items():
                log_metric(name, value)
        rewards: list[float] = rewarded.reward.flatten().tolist()
        return [
            reward if truth.strip() else None for reward, truth in zip(rewards, truths, strict=True)
        ]

    def _embed(self, sequences: Sequence[TokenSequence], what: str) -> Tensor:
        size = self.trainer.args.per_device_train_batch_size
        chunks = [sequences[i : i + size] for i in range(0, len(sequences), size)]
        with self.network() as body, self.trainer.accelerator.autocast():
            features = torch.cat([self._features(body, chunk) for chunk in chunks])
        check_finite(features, what)
        return features

    def _features(self, body: Any, sequences: Sequence[TokenSequence]) -> Tensor:
        batch = padded(sequences, self.trainer.accelerator.device)
        features = token_features(
            body,
            batch.ids,
            layer_indices(self.settings.feature_layers, layer_count(body)),
            attention_mask=batch.mask,
        )
        return pool(features, batch.lengths, batch.prompts, self.settings.embed_method)


def _no_network() -> AbstractContextManager[Any]:
    raise OptionError("EBFTReward works only in an EBFTTrainer, which gives it a feature network")


@dataclass(frozen=True)
class PaddedSequences:
    """Sequences padded on the right: ids and mask (B, T), lengths and prompt lengths (B,)."""

    ids: Tensor
    mask: Tensor
    lengths: Tensor
    prompts: Tensor


def padded(sequences: Sequence[TokenSequence], device: torch.device) -> PaddedSequences:
    """Pad sequences on the right, whatever the tokenizer's padding side."""
    ids = pad_sequence([torch.tensor(s.ids) for s in sequences], batch_first=True).to(device)
    lengths = torch.tensor([len(s.ids) for s in sequences], device=device)
    prompts = torch.tensor([s.prompt for s in sequences], device=device)
    mask = torch.arange(ids.shape[1], device=device) < lengths[:, None]
    return PaddedSequences(ids, mask.long(), lengths, prompts)


def check_group_rows(
    prompts: Sequence[Prompt], ground_truth: Sequence[str | None] | None, group: int
) -> Sequence[str]:
    """Return the references, "" for rows without one; raise unless each group has `group` equal prompts."""
    if ground_truth is None:
        raise ColumnMismatchError(
            "the dataset has no column 'ground_truth', which EBFT compares completions with; "
            "convert it with an ebft_ type"
        )
    if len(prompts) % group:
        raise FmtkitError(
            f"{len(prompts)} prompts do not divide into groups of {group} generations"
        )
    for row, prompt in enumerate(prompts):
        if prompt != prompts[row - row % group]:
            raise FmtkitError(
                f"row {row}: its prompt is not that of row {row - row % group}, though they are "
                f"one group of {group} generations; a sampler must keep groups together"
            )
    return [truth or "" for truth in ground_truth]
