"""Group reward-decoupled policy optimisation: GRPO that scales each reward by itself."""

from fmtkit.core.runner import OUR_FEATURES, HealthLimits, Runner

RUNNER = Runner(
    method="gdpo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.trainer:FmtkitGRPOTrainer",
    config="trl:GRPOConfig",
    about="raise several rewards of the model's own answers, each on its own scale",
    defaults={"multi_objective_aggregation": "normalize_then_sum"},
    trl=">=1.16,<1.17",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm", "nemo_gym", "verifiers"}),
    own=frozenset({"max_length"}),
    features=OUR_FEATURES,
    makes_reference=True,
    group=8,
    health=HealthLimits(),
    build="fmtkit.training.rl.grpo.build:build_grpo",
)
