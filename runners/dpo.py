"""Direct preference optimisation: https://arxiv.org/abs/2305.18290."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="dpo",
    tables=("Preference",),
    trainer="trl:DPOTrainer",
    config="trl:DPOConfig",
    about="prefer the chosen reply, measured against a reference model",
    needs=frozenset({"reference"}),
    mask="preference",
    text_ends="text",
    row_variables=True,
    prepares_rows=True,
    takes_images=True,
    ignores={"padding_free": "TRL's DPO trainer turns it off, and pads its rows"},
    guessed_from=frozenset({"Preference", "Ranking", "rl_adapter_ref_model", "ref_model"}),
    cuts=frozenset({"truncate-end", "truncate-start"}),
)
