"""REINFORCE with a leave-one-out baseline: https://arxiv.org/abs/2402.14740."""

from fmtkit.core.runner import HealthLimits, Runner

RUNNER = Runner(
    method="rloo",
    tables=("Prompt",),
    trainer="trl:RLOOTrainer",
    config="trl:RLOOConfig",
    about="raise the rewards of the model's own answers against each other",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    makes_reference=True,
    group=2,
    takes_images=True,
    health=HealthLimits(),
)
