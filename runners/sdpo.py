"""Self-distillation policy optimisation: https://arxiv.org/abs/2601.20802."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="sdpo",
    tables=("Prompt",),
    trainer="trl.experimental.sdpo:SDPOTrainer",
    config="trl.experimental.sdpo:SDPOConfig",
    about="follow the model itself, as it answers when it is also shown an answer that was rewarded",
    trl=">=1.16,<2",
    needs=frozenset({"rewards"}),
    makes_reference=True,
    sections=frozenset({"rl"}),
    own=frozenset({"max_length"}),
    group=8,
)
