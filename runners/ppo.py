"""Proximal policy optimisation with a reward model and a value model."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="ppo",
    tables=("Prompt",),
    trainer="trl.experimental.ppo:PPOTrainer",
    config="trl.experimental.ppo:PPOConfig",
    about="raise a reward model's score of the model's own answers",
    trl=">=1.8,<=1.12.0",
    needs=frozenset({"reward_model"}),
    own=frozenset({"max_length"}),
    build="fmtkit.training.run.legacy:build_ppo",
    resumes=False,
    instead="or write rl: grpo or rl: rloo, which need no value model",
)
