"""Group reward-decoupled policy optimisation: GRPO that scales each reward by itself."""

from fmtkit.core.runner import TRL_FEATURES, HealthLimits, Runner

RUNNER = Runner(
    method="gdpo",
    tables=("Prompt",),
    trainer="trl:GRPOTrainer",
    config="trl:GRPOConfig",
    about="raise several rewards of the model's own answers, each on its own scale",
    defaults={"multi_objective_aggregation": "normalize_then_sum"},
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    features=TRL_FEATURES,
    makes_reference=True,
    group=8,
    takes_images=True,
    mixes_images=False,
    health=HealthLimits(),
)
