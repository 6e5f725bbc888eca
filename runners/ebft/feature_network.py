"""The frozen network that EBFT takes features from: the model as it was before training.

With LoRA it is the live model under a disabled adapter, which costs no memory. In full
fine-tuning it is a second copy, made before the trainer is built: TRL binds the forward of the
model it is given, and a copy made later would run the live weights.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import nn

from fmtkit.core.errors import OptionError

from .language_model import LanguageModel, decoder_body

FeatureNetwork = Callable[[], AbstractContextManager[nn.Module]]
"""Opens the frozen body: `with network() as body: body(input_ids=…)`; no dropout, no gradients."""


def adapter_network(model: LanguageModel) -> FeatureNetwork:
    """Take features from the base model under a LoRA adapter; other adapters are refused."""
    _check_adapter(model)

    @contextmanager
    def opened() -> Iterator[nn.Module]:
        with evaluating(model), torch.no_grad(), model.disable_adapter():
            yield decoder_body(model)

    return opened


def frozen_network(model: LanguageModel) -> FeatureNetwork:
    """Take features from a model that is not trained: a copy, or one loaded a second time."""
    model.requires_grad_(requires_grad=False)
    model.eval()
    body = decoder_body(model)

    @contextmanager
    def opened() -> Iterator[nn.Module]:
        with torch.no_grad():
            yield body

    return opened


def copied_network(model: LanguageModel, *, device: torch.device | str = "cpu") -> FeatureNetwork:
    """Copy a model for features, on `device`; in half precision unless that is the CPU.

    Call it before the model goes into a trainer. A model on the meta device or sharded over ranks
    cannot be copied: load it a second time and take `frozen_network`.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        raise OptionError(
            "the model has no weights here to copy for EBFT's features; load a second one "
            "from base_model and pass it to frozen_network"
        )
    if "forward" in vars(model):
        raise OptionError(
            "the model was given to a trainer already, and a copy would compute with the live "
            "weights; make the feature network first"
        )
    network = copy.deepcopy(model).to(device)
    if torch.device(device).type != "cpu" and next(network.parameters()).dtype == torch.float32:
        network = network.to(torch.bfloat16)
    return frozen_network(network)


@contextmanager
def evaluating(model: LanguageModel) -> Iterator[None]:
    """Switch dropout off for a while."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def _check_adapter(model: LanguageModel) -> None:
    from peft import LoraConfig

    for name, config in model.peft_config.items():
        if not isinstance(config, LoraConfig):
            raise OptionError(
                f"adapter {name!r} is a {type(config).__name__}; EBFT takes features from the base "
                "model under a LoRA adapter: set adapter: lora, or fine-tune in full"
            )
        if config.bias != "none":
            raise OptionError(
                f"adapter {name!r} trains the base model's biases (bias: {config.bias}), "
                "which EBFT's features come from; set the adapter's bias to none"
            )
