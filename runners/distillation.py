"""On-policy distillation: learn from a teacher's probabilities on the model's own answers."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="distillation",
    tables=("Prompt",),
    trainer="trl:DistillationTrainer",
    config="trl:DistillationConfig",
    about="follow a teacher on the model's own answers",
    trl=">=1.10,<2",
    needs=frozenset({"teacher"}),
    sections=frozenset({"vllm"}),
    own=frozenset({"max_length", "vllm_sync", "vllm_request_timeout"}),
    build="fmtkit.training.online.build:build_sampling",
)
