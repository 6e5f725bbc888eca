"""The options of an inspection."""

from collections.abc import Mapping

from fmtkit.core.data_classes import dataclass
from fmtkit.core.options import (
    COUNT,
    COUNTS,
    NATURAL,
    NATURALS,
    OPTIONAL_CHOICE,
    PAIRS,
    PATH,
    SHARE,
    SWITCH,
    option,
)
from fmtkit.options.convert_options import SourceOptions
from fmtkit.tokenizers.turn_rule import KEPT


@dataclass(frozen=True)
class InspectOptions(SourceOptions):
    """Options of `fmtkit inspect`: those of sources, and what is looked at."""

    panel = "Looking"

    config: str | None = option(
        PATH, "YAML whose datasets are read, as a run reads them.", flags=("--config", "-c")
    )
    max_length: tuple[int, ...] = option(COUNTS, "Report what this length cuts.", default=())
    loss_budget: float = option(
        SHARE,
        "Share of rows that a suggested length may lose: P% or a number.",
        default=0.01,
        shown="1%",
    )
    sample: int | None = option(COUNT, "Measure the lengths of about N rows only.")
    show_mask: int = option(NATURAL, "Show the first N rows with their masks.", default=0)
    rows: tuple[int, ...] = option(
        NATURALS, "Show row K (0-based).", default=(), flags=("--row",), former=("row",)
    )
    assistant_only: bool = option(
        SWITCH, "Show the masks of TRL's assistant_only_loss.", default=False
    )
    train_on_inputs: bool = option(
        SWITCH, "Show the masks of runs that train on the prompts too.", default=False
    )
    mask_template_tokens: bool = option(
        SWITCH,
        "Show the masks of runs that do not learn what only the template writes.",
        default=False,
    )
    ignore_empty_think: bool = option(
        SWITCH, "Show the masks of runs that do not learn empty think blocks.", default=False
    )
    keep_reasoning: str | None = option(
        OPTIONAL_CHOICE,
        "Show the masks of runs that learn this reasoning.",
        choices=KEPT,
    )
    ebft: Mapping[str, object] = option(
        PAIRS, "KEY=VALUE of a config's ebft: stride, context_length, ...", default={}
    )
