"""The parts of a transformers model that EBFT uses, plain or under a PEFT adapter."""

from typing import Any

from torch import nn

LanguageModel = Any
"""A causal model of transformers, or a PeftModel around one; neither types its attributes."""


def causal_model(model: LanguageModel) -> LanguageModel:
    """Return the transformers model itself, adapter layers included."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def decoder_body(model: LanguageModel) -> nn.Module:
    """Return the decoder without its language-modelling head.

    Only the body may be called for features: TRL replaces the forward of the whole model by one
    that is bound to the policy, and a deep copy keeps that binding.
    """
    body: nn.Module = causal_model(model).base_model
    return body


def layer_count(model: LanguageModel) -> int:
    """Return the number of decoder layers."""
    return int(model.config.get_text_config().num_hidden_layers)


def checkpoints_activations(arguments: Any) -> bool:
    """Return whether training recomputes activations; its name differs in older transformers 5."""
    names = ("activation_checkpointing", "gradient_checkpointing")
    return bool(getattr(arguments, next(name for name in names if hasattr(arguments, name))))
