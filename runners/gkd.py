"""Generalised knowledge distillation: https://arxiv.org/abs/2306.13649."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="gkd",
    tables=("Conversation", "Completion"),
    trainer="trl.experimental.gkd:GKDTrainer",
    config="trl.experimental.gkd:GKDConfig",
    about="follow a teacher on the data and on the model's own answers",
    needs=frozenset({"teacher"}),
    mask="teacher",
    whole_dialogs=True,
)
