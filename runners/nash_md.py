"""Nash learning by mirror descent, judged by a reward model: https://arxiv.org/abs/2312.00886."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="nash_md",
    tables=("Prompt",),
    trainer="trl.experimental.nash_md:NashMDTrainer",
    config="trl.experimental.nash_md:NashMDConfig",
    about="beat a mixture of the model and its reference",
    trl=">=1.9.2,<=1.13.0",
    needs=frozenset({"reward_model"}),
    own=frozenset({"max_length"}),
    build="fmtkit.training.run.legacy:build_online",
    instead="or write rl: online_dpo",
)
