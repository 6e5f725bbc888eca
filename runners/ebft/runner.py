"""Energy-based fine-tuning: https://arxiv.org/abs/2603.12248."""

from dataclasses import replace

from fmtkit.core.runner import HealthLimits, Runner

from ..grpo_features.section import FEATURES

_STRUCTURED = Runner(
    method="ebft",
    tables=("Reference",),
    trainer="fmtkit.runners.ebft.structured:EBFTTrainer",
    config="trl:GRPOConfig",
    about="reward answers for similarity to a reference in a frozen network's features",
    trl=">=1.16,<1.17",
    arguments={"remove_unused_columns": False},
    defaults={"loss_type": "grpo"},
    sections=frozenset({"rl", "vllm", "ebft", "grpo_features"}),
    own=frozenset({"max_length"}),
    features=FEATURES,
    makes_reference=True,
    group=8,
    whole_groups=True,
    metrics=("ebft/alignment", "ebft/alignment_unwhitened"),
    health=HealthLimits(own_scale=frozenset({"ebft"})),
    guessed_from=frozenset({"ebft", "Reference", "Tokens"}),
    build="fmtkit.runners.ebft.build:build_structured",
    variant_key="ebft.mode",
)

_STRIDED = replace(
    _STRUCTURED,
    tables=("Tokens",),
    # Its trainer is derived from transformers' alone.
    trl=">=1.8,<2",
    # Older ones take logits_to_keep for the same tokens of every row.
    transformers=">=5.21",
    instead="or set ebft.mode: structured",
    trainer="fmtkit.runners.ebft.strided:StridedTrainer",
    config="transformers:TrainingArguments",
    about="regenerate short blocks within a text and reward their similarity to it",
    defaults={},
    sections=frozenset({"ebft"}),
    idle=frozenset({"trl", "vllm"}),
    build="fmtkit.runners.ebft.build:build_strided",
)

RUNNER = replace(
    _STRUCTURED,
    tables=("Reference", "Tokens"),
    variants={"structured": _STRUCTURED, "strided": _STRIDED},
)
