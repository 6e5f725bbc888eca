"""Simple preference optimisation: CPO with length-normalised rewards, https://arxiv.org/abs/2405.14734.

The paper's loss is `cpo_alpha: 0`; above it the likelihood of the chosen reply is added.
"""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="simpo",
    tables=("Preference",),
    trainer="trl.experimental.cpo:CPOTrainer",
    config="trl.experimental.cpo:CPOConfig",
    about="prefer the chosen reply by its mean log-probability",
    arguments={"loss_type": "simpo"},
    build="fmtkit.training.run.exact:build_trainer",
    mask="each_reply",
    text_ends="ids",
    row_variables=True,
    cuts=frozenset({"truncate-end"}),
)
