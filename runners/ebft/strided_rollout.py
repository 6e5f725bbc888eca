"""One rollout of strided EBFT: sample every block of a batch, and reward each by its features."""

from dataclasses import dataclass

import torch
from torch import Tensor

from .block_generation import generate_blocks
from .block_layout import BlockLayout
from .block_mask import additive, dense_mask
from .energy_reward import Energy, Weights, advantages, energy
from .feature_network import FeatureNetwork, evaluating
from .features import check_finite, layer_indices, pool_steps, token_features
from .language_model import LanguageModel, layer_count
from .settings import EbftSettings


@dataclass(frozen=True)
class SampledBlocks:
    """Sampled blocks and their advantages; `advantages` and `valid` have one value per block."""

    layout: BlockLayout
    blocks: Tensor
    """(B, G, M) token ids."""
    advantages: Tensor
    """(B, M) float32, 0 where not valid."""
    valid: Tensor
    """(B, M) bool."""
    metrics: dict[str, float]


def reward_weights(settings: EbftSettings) -> Weights:
    """Return the weights of the terms of the reward."""
    return Weights(
        settings.alignment_coef,
        settings.diversity_coef,
        settings.diversity_baseline,
        settings.whitening_space if settings.use_whitening else None,
    )


@torch.no_grad()
def roll_out(
    model: LanguageModel,
    network: FeatureNetwork,
    batch: dict[str, Tensor],
    settings: EbftSettings,
) -> SampledBlocks:
    """Sample N blocks at each anchor of the batch's documents and score them."""
    samples = settings.n_samples_per_prompt
    document, valid = batch["input_ids"], batch["valid"]
    anchors = batch["anchors"].repeat(1, samples)
    layout = BlockLayout(anchors, document.shape[1], settings.generate_max_len)
    with evaluating(model):
        blocks = generate_blocks(
            model, document, layout, temperature=settings.temperature, top_p=settings.top_p
        )
    rewarded = score_blocks(network, document, blocks, layout, settings)
    gains = advantages(rewarded.reward, settings.advantage_estimator) * valid[..., None]
    metrics = rollout_metrics(rewarded, gains, valid)
    flat = gains.transpose(1, 2).flatten(1)
    return SampledBlocks(layout, blocks, flat, valid.repeat(1, samples), metrics)


def score_blocks(
    network: FeatureNetwork,
    document: Tensor,
    blocks: Tensor,
    layout: BlockLayout,
    settings: EbftSettings,
) -> Energy:
    """Reward blocks (B, G, M) by comparison with the windows that they replace; terms are (B, K, N).

    K anchors with N samples each: the group of a reward is one anchor's samples.
    """
    with network() as body:
        dtype = mask_dtype(body, document.device.type)
        features = token_features(
            body,
            layout.join(document, blocks),
            layer_indices(settings.feature_layers, layer_count(body)),
            attention_mask=additive(dense_mask(layout), dtype),
            position_ids=layout.position_ids(),
        )
    check_finite(features, "the batch")
    samples = settings.n_samples_per_prompt
    anchors = layout.blocks // samples
    generated = pool_steps(layout.generated(features), settings.embed_method)
    generated = generated.reshape(-1, samples, anchors, generated.shape[-1]).transpose(1, 2)
    row = torch.arange(document.shape[0], device=document.device)[:, None, None]
    truth = pool_steps(features[row, layout.windows()[:, :anchors]], settings.embed_method)
    return energy(generated, truth, reward_weights(settings))


def mask_dtype(model: LanguageModel, device: str) -> torch.dtype:
    """Return the dtype of attention, which an additive mask must have."""
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    dtype: torch.dtype = next(model.parameters()).dtype
    return dtype


def rollout_metrics(rewarded: Energy, gains: Tensor, valid: Tensor) -> dict[str, float]:
    """Return the metrics, as means over the valid anchors; without any, only the number of blocks."""
    blocks = float(valid.sum()) * gains.shape[-1]
    if not blocks:
        return {"ebft/num_blocks": 0.0}
    return {
        "ebft/num_blocks": blocks,
        "ebft/mean_reward": float(rewarded.reward[valid].mean()),
        **rewarded.metrics(valid),
        "ebft/advantages_std": float(gains[valid].std(correction=0)),
    }
