"""Sampling of all blocks of a batch of documents, one step of every block at a time."""

from typing import Any

import torch
from torch import Tensor

from .block_layout import BlockLayout
from .block_mask import additive, dense_mask
from .language_model import LanguageModel


def sample(logits: Tensor, temperature: float, top_p: float = 1.0) -> Tensor:
    """Draw one token from each distribution of logits (..., V); temperature 0 takes the likeliest.

    top_p keeps the likeliest tokens whose probabilities reach it, at least one.
    """
    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    if top_p < 1:
        probabilities = _nucleus(probabilities, top_p)
    flat = probabilities.flatten(0, -2)
    return torch.multinomial(flat, 1).view(probabilities.shape[:-1])


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    ordered, order = probabilities.sort(dim=-1, descending=True)
    # A token stays while the mass before it is short of top_p; multinomial needs no renormalising.
    kept = ordered.where(ordered.cumsum(dim=-1) - ordered < top_p, 0.0)
    return torch.zeros_like(probabilities).scatter(-1, order, kept)


@torch.no_grad()
def generate_blocks(
    model: LanguageModel,
    document: Tensor,
    layout: BlockLayout,
    *,
    temperature: float,
    top_p: float = 1.0,
) -> Tensor:
    """Sample the tokens (B, G, M) of all blocks after documents (B, S), right-padded.

    The document is read once into a key-value cache; then each step's M tokens are read together
    under their rows of the mask. There is no end-of-text inside a block, as in the authors' code.
    """
    output = model(
        input_ids=document,
        position_ids=layout.position_ids()[:, : layout.document],
        use_cache=True,
        logits_to_keep=layout.anchors - 1,
    )
    steps = [sample(output.logits, temperature, top_p)]
    while len(steps) < layout.steps:
        output = _read_step(model, steps[-1], len(steps) - 1, layout, output.past_key_values)
        steps.append(sample(output.logits, temperature, top_p))
    return torch.stack(steps, dim=1)


def _read_step(
    model: LanguageModel,
    tokens: Tensor,
    step: int,
    layout: BlockLayout,
    cache: Any,
) -> Any:
    start = layout.document + step * layout.blocks
    stop = start + layout.blocks
    mask = dense_mask(layout, slice(start, stop), keys=stop)
    dtype = next(model.parameters()).dtype
    return model(
        input_ids=tokens,
        attention_mask=additive(mask, dtype),
        position_ids=layout.position_ids(step),
        past_key_values=cache,
        use_cache=True,
    )
