"""REINFORCE with a leave-one-out baseline: https://arxiv.org/abs/2402.14740."""

from dataclasses import replace

from fmtkit.core.runner import TRLS_OWN, HealthLimits, Runner

_OURS = Runner(
    method="rloo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.rloo:FmtkitRLOOTrainer",
    config="trl:RLOOConfig",
    about="raise the rewards of the model's own answers against each other",
    trl=">=1.16,<1.17",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    features=frozenset({"dynamic_sampling", "max_failed_share", "vllm_sync"}),
    makes_reference=True,
    group=2,
    build="fmtkit.training.rl.grpo.build:build_rloo",
    health=HealthLimits(),
)

RUNNER = replace(
    _OURS,
    variants={
        TRLS_OWN: replace(
            _OURS,
            trainer="trl:RLOOTrainer",
            trl=">=1.8,<2",
            sections=frozenset({"rl", "vllm"}),
            features=frozenset(),
            build="fmtkit.training.rl.grpo.build:build_trls_own",
        )
    },
)
