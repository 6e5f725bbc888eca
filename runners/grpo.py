"""Group relative policy optimisation: https://arxiv.org/abs/2402.03300."""

from fmtkit.training.runner import Runner

RUNNER = Runner(
    method="grpo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.trainer:FmtkitGRPOTrainer",
    config="trl:GRPOConfig",
    about="raise the rewards of the model's own answers, group by group",
    trl=">=1.16,<1.17",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm", "nemo_gym"}),
    own=frozenset({"max_length"}),
    build="fmtkit.training.rl.grpo.build:build_grpo",
)
