"""What a run says of its masks: its method, and the keys that move them."""

from dataclasses import field

from fmtkit.core import runner
from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import MaskRule, TextEnds
from fmtkit.core.tables import STEP_SEPARATOR
from fmtkit.counting.anchors import AnchorRule
from fmtkit.tokenizers.turn_rule import AS_MASKED, USUAL_TURNS, OriginRule, TurnRule

DEFAULT_RULES = {"Preference": "preference", "Unpaired": "unpaired", "Completion": "completion"}
"""Table -> the rule where no method is named, or its runner names none."""


@dataclass(frozen=True)
class Masking:
    """What a run says of its masks: its method, and the keys that move them."""

    method: str | None = None
    train_on_inputs: bool = False
    """Whether rows are trained on with their prompts."""
    assistant_only: bool = False
    """TRL's `assistant_only_loss`, for prompts with completions too."""
    all_of: frozenset[str] = frozenset()
    """Tables of which every token is trained on, whatever `train_on_inputs` says."""
    turns: TurnRule = USUAL_TURNS
    """Which turns of a conversation are trained on, and which of their ends."""
    max_length: int | None = None
    """Where a document of raw text is cut into several rows."""
    step_separator: str = STEP_SEPARATOR
    train_on_last_step_only: bool = False
    by_origin: OriginRule = AS_MASKED
    anchors: AnchorRule = field(default_factory=AnchorRule)

    @property
    def rule(self) -> MaskRule:
        """Return the rule of the method; empty where it names none."""
        return runner.find(self.method).mask if self.method else ""

    def text_ends(self, table: str) -> TextEnds:
        """Return what the method's trainer puts around text of a table; without a method what most do."""
        return runner.text_ends_of(self.method, table)

    def rule_of(self, table: str) -> str:
        """Return the rule of a table of prompts and replies."""
        return self.rule or DEFAULT_RULES[table]

    def learns_all(self, table: str) -> bool:
        """Return whether every token of a table's rows is trained on."""
        return (self.train_on_inputs and not self.assistant_only) or table in self.all_of


USUAL = Masking()
