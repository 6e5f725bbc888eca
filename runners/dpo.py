"""Direct preference optimisation: https://arxiv.org/abs/2305.18290."""

from fmtkit.runner import Runner

_LOSSES = frozenset(
    {
        "sigmoid",
        "hinge",
        "ipo",
        "exo_pair",
        "nca_pair",
        "robust",
        "bco_pair",
        "sppo_hard",
        "aot",
        "aot_unpaired",
        "apo_zero",
        "apo_down",
        "discopop",
        "sft",
        "sigmoid_norm",
    }
)

RUNNER = Runner(
    method="dpo",
    tables=("Preference",),
    trainer="trl:DPOTrainer",
    config="trl:DPOConfig",
    about="prefer the chosen reply, measured against a reference model",
    needs=frozenset({"reference"}),
    mask="preference",
    row_variables=True,
    losses=_LOSSES,
    several_losses=True,
    guessed_from=frozenset({"Preference", "Ranking", "rl_adapter_ref_model", "ref_model"}),
)
