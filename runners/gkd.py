"""Generalised knowledge distillation: https://arxiv.org/abs/2306.13649."""

from fmtkit.core.runner import Runner, Settings


def _packing(config: Settings) -> str | None:
    for key in ("sample_packing", "padding_free", "dpo_padding_free"):
        if config.is_true(key):
            return (
                f"{key}: gkd's own collator pads its rows, and TRL refuses another one with rows that "
                "need no padding; leave it out"
            )
    return None


RUNNER = Runner(
    method="gkd",
    tables=("Conversation", "Completion"),
    trainer="trl.experimental.gkd:GKDTrainer",
    config="trl.experimental.gkd:GKDConfig",
    about="follow a teacher on the data and on the model's own answers",
    needs=frozenset({"teacher"}),
    mask="teacher",
    whole_conversations=True,
    refusals={"gkd_packing": _packing},
    advice={"gkd_packing": ("`padding_free=True` without packing", _packing)},
)
