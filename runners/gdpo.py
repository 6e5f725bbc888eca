"""Group reward-decoupled policy optimisation: GRPO that scales each reward by itself."""

from dataclasses import replace

from fmtkit.core.runner import OUR_FEATURES, TRL_FEATURES, TRLS_OWN, HealthLimits, Runner

_OURS = Runner(
    method="gdpo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.trainer:FmtkitGRPOTrainer",
    config="trl:GRPOConfig",
    about="raise several rewards of the model's own answers, each on its own scale",
    defaults={"multi_objective_aggregation": "normalize_then_sum"},
    trl=">=1.16,<1.17",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    features=OUR_FEATURES,
    makes_reference=True,
    group=8,
    health=HealthLimits(),
    build="fmtkit.training.rl.grpo.build:build_grpo",
)

RUNNER = replace(
    _OURS,
    variants={
        TRLS_OWN: replace(
            _OURS,
            trainer="trl:GRPOTrainer",
            trl=">=1.8,<2",
            sections=frozenset({"rl", "vllm"}),
            features=TRL_FEATURES,
            build="fmtkit.training.rl.grpo.build:build_trls_own",
        )
    },
)
