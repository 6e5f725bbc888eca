"""Online DPO: pairs of the model's own answers, ranked by a reward: https://arxiv.org/abs/2402.04792."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="online_dpo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.online_dpo:FmtkitOnlineDPOTrainer",
    config="trl.experimental.online_dpo:OnlineDPOConfig",
    about="prefer the better of the model's own answers",
    needs=frozenset({"rewards", "reference"}),
    sections=frozenset({"rl", "vllm"}),
    features=frozenset({"max_failed_share"}),
    build="fmtkit.training.rl.grpo.build:build_online_dpo",
)
