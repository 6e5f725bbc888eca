"""Structured EBFT: GRPO whose reward is how well an answer's features match the reference's.

TRL samples, normalizes rewards within a group and computes the clipped policy loss. This module adds the
reward, a limit on generation that follows the lengths of the references, rollouts of several turns, and a
cross-entropy loss on the references.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from fmtkit.core.errors import ColumnMismatchError, OptionError
from fmtkit.training.online.group_rule import check_whole_groups
from fmtkit.training.vllm.rollout_settings import RolloutSettings, capped

from ..grpo_features.trainer import FmtkitGRPOTrainer
from .conversation_rollout import roll_out_conversations
from .feature_network import FeatureNetwork, adapter_network
from .language_model import LanguageModel
from .reference_loss import reference_batch, reference_loss
from .reference_sequences import Renderer
from .reward_function import EBFTReward, check_group_rows
from .settings import EbftSettings
from .settings_plan import check_group

LEAST_CAP = 64
"""Tokens of the smallest limit, so that answers may be longer than references of a few words."""


class EBFTTrainer(FmtkitGRPOTrainer):
    """fmtkit's GRPO trainer on a Reference table; EBFT's reward is its first reward function."""

    def __init__(
        self,
        *,
        settings: EbftSettings,
        network: FeatureNetwork | None = None,
        reward_funcs: Sequence[Any] = (),
        sequence_len: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Take the feature network from `network`; without one the model must have a LoRA adapter.

        `reward_funcs` are added to EBFT's own; `sequence_len` truncates the inputs of the network.
        """
        reward = EBFTReward(settings)
        self.settings = settings
        datasets = [kwargs.get("train_dataset"), kwargs.get("eval_dataset")]
        if any(has_turns(dataset) for dataset in datasets):
            if kwargs.get("rollout_func") is not None:
                raise OptionError(
                    "the dataset has remaining_turns, which EBFT rolls out itself; drop the column "
                    "or trl.rollout_func"
                )
            _check_in_step(kwargs.get("rollouts"))
            kwargs["rollout_func"] = roll_out_conversations
        functions: list[Any] = [reward, *reward_funcs]
        super().__init__(reward_funcs=functions, **kwargs)
        self.renderer = self._make_renderer(sequence_len)
        reward.trainer = self
        reward.network = network or adapter_network(self.model)
        self.check()

    @property
    def has_other_losses(self) -> bool:
        """Return whether the loss has a cross-entropy term."""
        return self.settings.ce_coef > 0

    def most_of_all_ranks(self, count: int) -> int:
        """Return the maximum of a number over all ranks."""
        tensor = torch.tensor([count], device=self.accelerator.device)
        return int(self.accelerator.gather(tensor).max())

    def _make_renderer(self, sequence_len: int | None) -> Renderer:
        tokenizer = self.processing_class
        options = {"chat_template": self.chat_template, **self.chat_template_kwargs}
        if self.tools:
            options["tools"] = self.tools
        longest = self.model.config.get_text_config().max_position_embeddings
        ends = {*self.eos_token_ids, tokenizer.pad_token_id}
        return Renderer(tokenizer, ends, sequence_len or longest, options)

    def check(self) -> None:
        """Raise OptionError for arguments or data that it cannot train with."""
        args, settings = self.args, self.settings
        if args.remove_unused_columns:
            raise OptionError(
                "remove_unused_columns is true, which would drop ground_truth; EBFT needs "
                "remove_unused_columns: false"
            )
        check_group(settings, self.num_generations)
        for dataset in (self.train_dataset, self.eval_dataset):
            check_columns(dataset)
        batch = args.per_device_train_batch_size * args.steps_per_generation
        check_whole_groups(batch, self.num_generations, "EBFT")
        if self.eval_dataset is not None:
            check_group(settings, self.num_generations_eval)
            size = args.per_device_eval_batch_size
            check_whole_groups(size, self.num_generations_eval, "EBFT", name="eval_batch_size")

    def _generate(self, prompts: list[Any]) -> Any:
        truths = [row.get("ground_truth") for row in self.rows]
        check_group_rows([row["prompt"] for row in self.rows], truths, self.group_size)
        with self.limited(self.rows):
            return super()._generate(prompts)

    def limited(self, rows: Sequence[dict[str, Any]]) -> AbstractContextManager[None]:
        """Limit max_completion_length to the lengths of these rows' references."""
        return capped(self, self.cap(rows))

    def extended(self, output: dict[str, Any]) -> dict[str, Any]:
        """Return the batch with its references, on which the cross-entropy is computed."""
        if not self.settings.ce_coef:
            return output
        extra = reference_batch(self.rows, self.renderer, self.num_generations)
        device = self.accelerator.device
        output |= {name: tensor.to(device) for name, tensor in extra.items()}
        tokens = (extra["gt_labels"][extra["gt_own"]][:, 1:] != -100).sum()
        output["gt_tokens"] = self.accelerator.gather(tokens.view(1).to(device)).sum().clamp(min=1)
        return output

    def cap(self, inputs: Sequence[dict[str, Any]]) -> int:
        """Return the most tokens of an answer to these rows."""
        longest = self.max_completion_length
        if not self.settings.adaptive_max_tokens:
            return longest
        tokenizer = self.processing_class
        references = list(dict.fromkeys(text for row in inputs for text in answers(row)))
        ids = tokenizer(references, add_special_tokens=False)["input_ids"] if references else []
        most = self.most_of_all_ranks(max(map(len, ids), default=0))
        if not most:
            return longest
        return generation_cap([most], self.settings.gt_length_multiplier, longest)

    def _compute_loss(self, model: LanguageModel, inputs: dict[str, Any]) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)
        if "gt_own" not in inputs:
            return loss
        if not inputs["gt_own"].any() and self.accelerator.num_processes == 1:
            return loss
        total, count = reference_loss(model, inputs)
        world, steps = self.accelerator.num_processes, self.current_gradient_accumulation_steps
        share = inputs["gt_tokens"] / world * steps / self.args.steps_per_generation
        both = self.accelerator.gather(torch.stack([total.detach(), count]).view(1, 2)).sum(0)
        if both[1]:
            self._metrics["train"]["ebft/ce_loss"].append(float(both[0] / both[1]))
        combined: Tensor = loss + self.settings.ce_coef * total / share
        return combined


def has_turns(dataset: Any) -> bool:
    """Return whether a row of a dataset (or one of several) has turns after the first answer.

    Functions of the user write the column for rows of one turn too, with null or nothing in it.
    """
    if isinstance(dataset, dict):
        return any(has_turns(one) for one in dataset.values())
    if "remaining_turns" not in (getattr(dataset, "column_names", None) or ()):
        return False
    return any(row["remaining_turns"] for row in dataset.select_columns(["remaining_turns"]))


def answers(row: dict[str, Any]) -> list[str]:
    """Return the reference answers of all turns; an empty list for a row without a reference."""
    later = row.get("remaining_turns") or ()
    contents = [row["ground_truth"], *(m["content"] for m in later if m["role"] == "assistant")]
    return [text for text in contents if text and text.strip()]


def check_columns(dataset: Any) -> None:
    """Refuse a dataset without references."""
    if isinstance(dataset, dict):
        for one in dataset.values():
            check_columns(one)
        return
    columns = getattr(dataset, "column_names", None)
    if columns is not None and "ground_truth" not in columns:
        raise ColumnMismatchError(
            "the dataset has no column 'ground_truth', which EBFT compares completions with; it "
            f"has {', '.join(columns)}: convert it with an ebft_ type"
        )


def _check_in_step(rollouts: RolloutSettings | None) -> None:
    """Refuse async_prefetch for conversations: their later turns are sampled from the model itself."""
    if rollouts is not None and rollouts.async_prefetch:
        raise OptionError(
            "trl.async_prefetch: multi-turn conversations are sampled turn by turn from the model "
            "that trains, so they cannot be prefetched; leave it out, or drop remaining_turns"
        )


def generation_cap(lengths: Sequence[int], multiplier: float, longest: int) -> int:
    """Return the limit for references of these lengths; never above `longest`, which the user set."""
    wanted = min(math.ceil(max(lengths) * multiplier), longest)
    return max(wanted, min(LEAST_CAP, longest))
