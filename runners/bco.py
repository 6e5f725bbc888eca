"""Binary classifier optimisation, from single desirable or undesirable replies: https://arxiv.org/abs/2404.04656."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="bco",
    tables=("Unpaired",),
    trainer="trl.experimental.bco:BCOTrainer",
    config="trl.experimental.bco:BCOConfig",
    about="learn from desirable and undesirable replies by a classifier",
    trl=">=1.8,<=1.13.0",
    needs=frozenset({"reference"}),
    mask="unpaired",
    both_labels=True,
    build="fmtkit.training.run.legacy:build_bco",
    instead="for pairs write rl: dpo with loss_type: bco_pair, for single replies rl: kto",
)
