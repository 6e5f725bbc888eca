"""Geometric-mean policy optimisation: https://arxiv.org/abs/2507.20673."""

from fmtkit.core.runner import TRL_FEATURES, HealthLimits, Runner

RUNNER = Runner(
    method="gmpo",
    tables=("Prompt",),
    trainer="trl.experimental.gmpo:GMPOTrainer",
    config="trl.experimental.gmpo:GMPOConfig",
    about="GRPO with the geometric mean of the tokens' ratios, which clips more widely",
    trl=">=1.16,<2",
    needs=frozenset({"rewards"}),
    makes_reference=True,
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    features=TRL_FEATURES,
    group=8,
    health=HealthLimits(),
)
