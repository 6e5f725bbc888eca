"""Self-distillation fine-tuning: https://arxiv.org/abs/2601.19897."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="sdft",
    tables=("Prompt",),
    trainer="trl.experimental.sdft:SDFTTrainer",
    config="trl.experimental.sdft:SDFTConfig",
    about="follow the model itself, as it answers when it is also shown privileged_context",
    trl=">=1.16,<2",
    own=frozenset({"max_length"}),
    columns=frozenset({"privileged_context"}),
)
