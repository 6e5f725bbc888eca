"""Exploratory preference optimisation, judged by a reward model: https://arxiv.org/abs/2405.21046."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="xpo",
    tables=("Prompt",),
    trainer="trl.experimental.xpo:XPOTrainer",
    config="trl.experimental.xpo:XPOConfig",
    about="online preference learning with a bonus for exploration",
    trl=">=1.8,<=1.13.0",
    needs=frozenset({"reward_model"}),
    own=frozenset({"max_length"}),
    build="fmtkit.training.run.legacy:build_online",
    instead="or write rl: online_dpo",
)
