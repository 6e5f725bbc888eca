"""Which attention implementation strided EBFT uses, and which models it refuses."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from fmtkit.core.errors import OptionError

from .language_model import LanguageModel, causal_model

Attention = Literal["sdpa", "eager", "flex_attention"]

FULL, SLIDING = "full_attention", "sliding_attention"
STATELESS = ("mlp", "moe")
"""Kinds of layers that treat each token separately."""


def check_layers(model: LanguageModel, longest: int) -> None:
    """Refuse models whose layers would not keep to the mask.

    `longest` is sequence_len + generate_max_len.

    Recurrent layers carry one block's state into the next. A sliding window is applied inside the
    mask that transformers builds, which EBFT's mask replaces.
    """
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or [FULL])
    foreign = sorted(kinds - {FULL, SLIDING, *STATELESS})
    if foreign or getattr(causal_model(model), "_is_stateful", False):
        raise OptionError(
            "ebft.mode: strided cannot train a model with "
            f"{foreign[0] if foreign else 'recurrent'} layers ({config.model_type}): they do not "
            "keep to the mask that separates the blocks; use ebft.mode: structured"
        )
    window = getattr(config, "sliding_window", None)
    if window is not None and window < longest and _slides(config, kinds):
        raise OptionError(
            "ebft.mode: strided needs a sliding window of at least sequence_len + generate_max_len"
            f" = {longest} tokens, and the model's is {window}; lower sequence_len or use "
            "ebft.mode: structured"
        )


def choose_attention(requested: str | None) -> tuple[Attention, str | None]:
    """Return the implementation for the training forward, and a remark if it differs from the model's.

    Flash attention takes no mask of this shape. FlexAttention, which has no backward pass on the CPU, is
    refused in the plan where no CUDA device is to be used (`planning.checks`).
    """
    if requested in {None, "sdpa"}:
        return "sdpa", None
    if requested == "eager":
        return "eager", None
    if requested == "flex_attention":
        return "flex_attention", None
    remark = f"attn_implementation: {requested} cannot take EBFT's mask of blocks"
    return "sdpa", f"{remark}: a dense mask with sdpa is used"


@contextmanager
def attending(model: LanguageModel, implementation: Attention) -> Iterator[None]:
    """Switch the model's attention implementation for a while."""
    before = model.config._attn_implementation
    set_attention(model, implementation)
    try:
        yield
    finally:
        set_attention(model, before)


def set_attention(model: LanguageModel, implementation: str) -> None:
    """Switch every layer of a plain or PEFT model to one attention implementation."""
    causal = causal_model(model)
    if causal.config._attn_implementation != implementation:
        causal.set_attn_implementation(implementation)


def _slides(config: object, kinds: set[str]) -> bool:
    if getattr(config, "layer_types", None) is None:
        return bool(getattr(config, "use_sliding_window", True))
    return SLIDING in kinds
