"""REINFORCE with a leave-one-out baseline: https://arxiv.org/abs/2402.14740."""

from fmtkit.core.runner import HealthLimits, Runner

RUNNER = Runner(
    method="rloo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.rloo:FmtkitRLOOTrainer",
    config="trl:RLOOConfig",
    about="raise the rewards of the model's own answers against each other",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm", "nemo_gym"}),
    own=frozenset({"max_length"}),
    features=frozenset({"dynamic_sampling", "max_failed_share"}),
    makes_reference=True,
    group=2,
    build="fmtkit.training.rl.grpo.build:build_rloo",
    health=HealthLimits(),
)
