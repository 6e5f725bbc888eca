"""Outcome reward models, after Bradley and Terry."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="reward",
    tables=("Preference",),
    trainer="trl:RewardTrainer",
    config="trl:RewardConfig",
    about="score the chosen reply above the rejected one",
    head="score",
    mask="score",
    text_ends="text",
    row_variables=True,
    prepares_rows=True,
    key="reward_model",
)
