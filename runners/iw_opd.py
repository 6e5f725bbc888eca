"""Importance-weighted on-policy distillation: https://arxiv.org/abs/2606.22600."""

from fmtkit.core.runner import Runner

from .gkd import RUNNER as _TAUGHT  # whose collator it has

RUNNER = Runner(
    method="iw_opd",
    tables=("Conversation", "Completion"),
    trainer="trl.experimental.iw_opd:IWOPDTrainer",
    config="trl.experimental.iw_opd:IWOPDConfig",
    about="follow a teacher on the model's own answers, weighted by how likely they still are",
    trl=">=1.16,<2",
    needs=frozenset({"teacher"}),
    mask="teacher",
    whole_conversations=True,
    refusals=_TAUGHT.refusals,
)
