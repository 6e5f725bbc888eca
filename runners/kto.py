"""Kahneman-Tversky optimisation, from single desirable or undesirable replies: https://arxiv.org/abs/2402.01306."""

from fmtkit.core.runner import Runner, Settings


def _pairs_in_a_batch(_: Settings) -> str:
    return "micro_batch_size: kto needs at least 2: its KL term takes a reply from another row of the batch"


def _order(config: Settings) -> str | None:
    """Return why no row may be moved; TRL itself says so of the losses that have a KL term."""
    if config.is_true("group_by_length"):
        return (
            "group_by_length: kto reads its rows in order, which fmtkit has shuffled; leave it out"
        )
    return None


RUNNER = Runner(
    method="kto",
    tables=("Unpaired",),
    trainer="trl:KTOTrainer",
    config="trl:KTOConfig",
    about="learn from desirable and undesirable replies, measured against a reference model",
    needs=frozenset({"reference"}),
    mask="unpaired",
    text_ends="text",
    row_variables=True,
    both_labels=True,
    whole_batch=True,
    takes_images=True,
    guessed_from=frozenset({"Unpaired"}),
    refusals={"kto_order": _order},
    advice={
        "kto_batch": ("Actual (not effective) batch size must be > 1", _pairs_in_a_batch),
        "kto_order": ("requires `train_sampling_strategy='sequential'`", _order),
    },
    cuts=frozenset({"truncate-end"}),
)
