"""Strided EBFT: short blocks are sampled at many places of a text and rewarded by their features.

The policy is sampled at every anchor of a document at once, so that a text needs no prompt and no
answer (arXiv 2603.12248, strided sampling). One update is made per rollout: there is no
importance ratio.
"""

import warnings
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer

from fmtkit.core.errors import OptionError

from .attention_support import Attention, attending, check_layers
from .block_loss import cross_entropy, policy_loss, token_log_probs
from .block_mask import additive, dense_mask, flex_mask
from .energy_reward import UNWHITENED
from .feature_network import FeatureNetwork, adapter_network
from .language_model import (
    LanguageModel,
    causal_model,
    checkpoints_activations,
)
from .settings import EbftSettings
from .settings_plan import check_group
from .strided_batch import StridedCollator, survey_rows
from .strided_rollout import SampledBlocks, mask_dtype, roll_out

METRICS = (
    "ebft/rl_loss",
    "ebft/ce_loss",
    "ebft/cfm_loss",
    "ebft/mean_reward",
    "ebft/alignment",
    "ebft/diversity",
    *UNWHITENED,
    "ebft/num_blocks",
    "ebft/advantages_std",
    "ebft/no_anchor_batches",
)
"""All are means over the micro-batches since the last log, the last is their number."""


class StridedTrainer(Trainer):
    """A Trainer whose loss samples blocks of its batch; datasets are Tokens tables."""

    # The losses are means over a micro-batch, so the Trainer divides by the accumulation steps.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        *args: Any,
        settings: EbftSettings,
        network: FeatureNetwork | None = None,
        attention: Attention = "sdpa",
        **kwargs: Any,
    ) -> None:
        """Take `network` from feature_network, made before; without one the model needs LoRA."""
        super().__init__(*args, **kwargs)
        self.settings = settings
        self.network = network or adapter_network(self.model)
        self.attention = attention
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.data_collator = StridedCollator(settings.anchor_rule)
        self.check()
        if checkpoints_activations(self.args):
            # The embeddings before an adapter have no gradient, and checkpoints would pass none on.
            causal_model(self.model).enable_input_require_grads()

    def compute_loss(
        self,
        model: LanguageModel,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,  # noqa: ARG002
    ) -> Any:
        """Return rl_coef·(policy loss of the blocks) + ce_coef·(cross-entropy of the labels)."""
        if return_outputs:
            raise OptionError("strided EBFT has a loss, but no outputs to return")
        # Every rank of several must run the same forwards, or a sharded model waits forever.
        if not inputs["valid"].any() and self.accelerator.num_processes == 1:
            return self._document_only(model, inputs)
        policy = self.accelerator.unwrap_model(model)
        with attending(policy, "eager" if self.attention == "eager" else "sdpa"):
            rollout = roll_out(policy, self.network, inputs, self.settings)
        logits = self._logits(model, inputs["input_ids"], rollout)
        return self._loss(logits, inputs["labels"], rollout)

    def prediction_step(
        self,
        model: LanguageModel,
        inputs: dict[str, Any],
        prediction_loss_only: bool,  # noqa: ARG002 - the Trainer's signature
        ignore_keys: list[str] | None = None,  # noqa: ARG002
    ) -> tuple[Tensor, None, None]:
        """Return the cross-entropy of the labelled tokens; nothing is sampled."""
        batch = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = cross_entropy(self._document_logits(model, batch), batch["labels"])
        return loss, None, None

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log the metrics since the last log with the Trainer's own."""
        if self._sums and "loss" in logs:
            logs = {**logs, **self._averages()}
            self._sums.clear()
        super().log(logs, start_time)

    def check(self) -> None:
        """Raise OptionError for arguments or data that it cannot train with."""
        if self.args.remove_unused_columns:
            raise OptionError(
                "remove_unused_columns is true, which would drop prompt_length and anchor_mask; "
                "strided EBFT needs remove_unused_columns: false"
            )
        check_group(self.settings, self.settings.n_samples_per_prompt)
        rows: Any = self.train_dataset
        if rows is None:
            return
        rule = self.settings.anchor_rule
        longest, short = survey_rows(rule, rows)
        check_layers(self.model, longest + rule.generate_max_len)
        if short:
            warnings.warn(
                f"{len(short)} of {len(rows)} rows are too short for one block "
                f"(the first is row {short[0]}): only ce_coef trains them",
                stacklevel=3,
            )

    def _logits(self, model: LanguageModel, document: Tensor, rollout: SampledBlocks) -> Tensor:
        layout = rollout.layout
        keep = layout.predictors()
        if self.settings.ce_coef:
            places = torch.arange(layout.document - 1, device=document.device)
            keep = torch.cat([keep, places.expand(document.shape[0], -1)], dim=1)
        if self.attention == "flex_attention":
            mask = flex_mask(layout)
        else:
            mask = additive(dense_mask(layout), mask_dtype(model, document.device.type))
        output = model(
            input_ids=layout.join(document, rollout.blocks),
            attention_mask=mask,
            position_ids=layout.position_ids(),
            logits_to_keep=keep,
            use_cache=False,
        )
        logits: Tensor = output.logits
        return logits

    def _loss(self, logits: Tensor, labels: Tensor, rollout: SampledBlocks) -> Tensor:
        settings, blocks = self.settings, rollout.blocks
        generated = logits[:, : blocks[0].numel()]
        log_probs = token_log_probs(generated, blocks.flatten(1), settings.temperature)
        rl = policy_loss(log_probs.view_as(blocks), rollout.advantages, rollout.valid)
        loss = settings.rl_coef * rl
        metrics = {**rollout.metrics, "ebft/rl_loss": float(rl.detach())}
        if settings.ce_coef:
            ce = cross_entropy(logits[:, blocks[0].numel() :], labels)
            loss = loss + settings.ce_coef * ce
            metrics["ebft/ce_loss"] = float(ce.detach())
        self._record(metrics)
        return loss

    def _document_only(self, model: LanguageModel, inputs: dict[str, Tensor]) -> Tensor:
        ce = cross_entropy(self._document_logits(model, inputs), inputs["labels"])
        self._record({"ebft/no_anchor_batches": 1.0, "ebft/ce_loss": float(ce.detach())})
        return self.settings.ce_coef * ce

    def _document_logits(self, model: LanguageModel, inputs: dict[str, Tensor]) -> Tensor:
        ids = inputs["input_ids"]
        # Padding is to the right, where causal attention does not see it.
        logits: Tensor = model(input_ids=ids, use_cache=False).logits
        return logits[:, :-1]

    def _record(self, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._sums[name][0] += value
            self._sums[name][1] += 1

    def _averages(self) -> dict[str, float]:
        local = torch.tensor([self._sums[name] for name in METRICS], device=self.args.device)
        sums = self.accelerator.reduce(local, reduction="sum").tolist()
        means = {
            name: total / count for name, (total, count) in zip(METRICS, sums, strict=True) if count
        }
        if "ebft/no_anchor_batches" in means:
            means["ebft/no_anchor_batches"] = sums[-1][0]
        return means
