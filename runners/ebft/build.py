"""From a job to the trainer of EBFT, in either mode."""

import warnings
from dataclasses import replace
from typing import Any

import torch

from fmtkit.training.building.build import Parts, load_class, load_model, trainer_inputs
from fmtkit.training.online.build import watched
from fmtkit.training.planning.job import Job

from ..grpo_features.build import online_inputs
from .attention_support import choose_attention, set_attention
from .feature_network import FeatureNetwork, copied_network, frozen_network
from .language_model import checkpoints_activations
from .settings_plan import plan_settings, scale_rewards


def build_structured(job: Job, parts: Parts) -> Any:
    """Make the trainer of structured mode."""
    plan = plan_settings(job.sections.get("ebft"), num_generations=parts.arguments.num_generations)
    wanted = scale_rewards(job.sections.get("ebft"))
    if wanted is not None and "scale_rewards" not in job.trainer:
        parts.arguments.scale_rewards = wanted
    trainer = load_class(parts.runner.trainer)(
        **online_inputs(job, parts),
        settings=plan.settings,
        network=_network(job, parts),
        sequence_len=job.max_length,
    )
    return watched(job, trainer)


def build_strided(job: Job, parts: Parts) -> Any:
    """Make the trainer of strided mode."""
    plan = plan_settings(job.sections.get("ebft"))
    requested = job.model_arguments.get("attn_implementation")
    attention, remark = choose_attention(str(requested) if requested else None)
    if remark:
        warnings.warn(remark, stacklevel=2)
    set_attention(parts.model, attention)
    network = _network(job, parts)
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, replace(parts, model=_adapted(parts)), trainer_class)
    inputs.pop("peft_config", None)
    return trainer_class(**inputs, settings=plan.settings, network=network, attention=attention)


def _network(job: Job, parts: Parts) -> FeatureNetwork | None:
    """Load the frozen network of a full fine-tuning; None where an adapter can be disabled."""
    if parts.peft is not None or hasattr(parts.model, "peft_config"):
        return None
    device = parts.arguments.device
    if not isinstance(parts.model, str):
        return copied_network(parts.model, device=device)
    model = load_model(job, parts.runner).to(device)
    # Features are normalised in single precision; half is enough for the network itself.
    return frozen_network(model if device.type == "cpu" else model.to(torch.bfloat16))


def _adapted(parts: Parts) -> Any:
    model = parts.model
    if parts.peft is None:
        return model
    from peft import get_peft_model, prepare_model_for_kbit_training

    if parts.quantization is not None:
        model = prepare_model_for_kbit_training(  # type: ignore[no-untyped-call]
            model, use_gradient_checkpointing=checkpoints_activations(parts.arguments)
        )
    return get_peft_model(model, parts.peft)
