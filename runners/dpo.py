"""Direct preference optimisation: https://arxiv.org/abs/2305.18290."""

from fmtkit.training.runner import Runner

RUNNER = Runner(
    method="dpo",
    tables=("Preference",),
    trainer="trl:DPOTrainer",
    config="trl:DPOConfig",
    about="prefer the chosen reply, measured against a reference model",
    needs=frozenset({"reference"}),
)
