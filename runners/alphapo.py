"""AlphaPO: SimPO with a shaped reward, https://arxiv.org/abs/2501.03884."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="alphapo",
    tables=("Preference",),
    trainer="trl.experimental.cpo:CPOTrainer",
    config="trl.experimental.cpo:CPOConfig",
    about="SimPO with a reward shaped by `alpha`",
    arguments={"loss_type": "alphapo"},
    defaults={"alpha": 0.25},
    build="fmtkit.training.run.exact:build_trainer",
    mask="each_reply",
    text_ends="ids",
    row_variables=True,
    cuts=frozenset({"truncate-end"}),
)
