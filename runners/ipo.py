"""Identity preference optimisation: DPO with a squared loss, https://arxiv.org/abs/2310.12036."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="ipo",
    tables=("Preference",),
    trainer="trl:DPOTrainer",
    config="trl:DPOConfig",
    about="prefer the chosen reply by a fixed margin",
    arguments={"loss_type": ["ipo"]},
    needs=frozenset({"reference"}),
    mask="preference",
    text_ends="text",
    ignores={"padding_free": "TRL's DPO trainer turns it off, and pads its rows"},
    row_variables=True,
    prepares_rows=True,
    takes_images=True,
    cuts=frozenset({"truncate-end", "truncate-start"}),
)
