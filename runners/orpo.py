"""Odds ratio preference optimisation, without a reference: https://arxiv.org/abs/2403.07691."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="orpo",
    tables=("Preference",),
    trainer="trl.experimental.orpo:ORPOTrainer",
    config="trl.experimental.orpo:ORPOConfig",
    about="learn the chosen reply and prefer it, without a reference model",
    build="fmtkit.training.run.exact:build_trainer",
    mask="each_reply",
    text_ends="ids",
    row_variables=True,
    cuts=frozenset({"truncate-end"}),
)
