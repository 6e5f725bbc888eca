"""Contrastive preference optimisation, without a reference: https://arxiv.org/abs/2401.08417."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="cpo",
    tables=("Preference",),
    trainer="trl.experimental.cpo:CPOTrainer",
    config="trl.experimental.cpo:CPOConfig",
    about="prefer the chosen reply and keep it likely, without a reference model",
    build="fmtkit.training.run.exact:build_trainer",
    mask="each_reply",
    text_ends="ids",
    row_variables=True,
    cuts=frozenset({"truncate-end"}),
)
