"""Group relative policy optimisation: https://arxiv.org/abs/2402.03300."""

from fmtkit.training.runner import Runner

RUNNER = Runner(
    method="grpo",
    tables=("Prompt",),
    trainer="trl:GRPOTrainer",
    config="trl:GRPOConfig",
    about="raise the rewards of the model's own answers, group by group",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm", "nemo_gym"}),
    own=frozenset({"max_length"}),
)
