"""Which tokens of a row are trained: the ids and masks that `fmtkit train` makes of it.

Tests compare them with the batches of fmtkit's own runs, and with TRL's trainers and collators.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fmtkit.core import runner
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import MaskRule
from fmtkit.counting.anchors import AnchorRule
from fmtkit.inspection.dialog_masks import (
    mask_answer,
    mask_context,
    mask_conversation,
    mask_each_reply,
    mask_replies,
    mask_score,
)
from fmtkit.inspection.masked import Masked
from fmtkit.inspection.segment_masks import mask_segments
from fmtkit.inspection.step_masks import mask_steps
from fmtkit.inspection.token_masks import mask_tokens
from fmtkit.rendering.row_templates import Message, RowTemplate
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.tokenizers.turn_rule import USUAL_TURNS, TurnRule

DEFAULT_RULES = {"Preference": "preference", "Unpaired": "unpaired", "Completion": "completion"}
"""Table -> the rule where no method is named, or its runner names none."""

ANSWERLESS = ("Prompt", "Reference", "Ranking")
"""Tables whose rows are context alone."""


@dataclass(frozen=True)
class Masking:
    """What a run says of its masks: its method, and the keys that move them."""

    method: str | None = None
    train_on_inputs: bool = False
    """Whether a conversation is trained on with its prompts."""
    assistant_only: bool = False
    """TRL's `assistant_only_loss`, for prompts with completions too."""
    turns: TurnRule = USUAL_TURNS
    """Which turns of a conversation are trained on, and which of their ends."""
    max_length: int | None = None
    """Where a document of raw text is cut into several rows."""
    step_separator: str = "\n"
    train_on_last_step_only: bool = False
    anchors: AnchorRule = field(default_factory=AnchorRule)

    @property
    def rule(self) -> MaskRule:
        """Return the rule of the method; empty where it names none."""
        return runner.find(self.method).mask if self.method else ""

    @property
    def words_prompts(self) -> bool:
        """Tell whether the method makes a message of the text of a prompt."""
        return self.method is not None and runner.find(self.method).words_prompts


USUAL = Masking()


def mask_row(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate | None = None,
    masking: Masking = USUAL,
) -> tuple[Masked, ...]:
    """Return the sequences of one canonical row, in the order chosen, rejected.

    Raises OptionError where the table needs a template and there is none, TemplateError where the
    template refuses the messages.
    """
    if table == "Tokens":
        return (mask_tokens(row, tokenizer, masking.anchors),)
    if table == "Stepwise":
        one = mask_steps(
            row,
            tokenizer,
            step_separator=masking.step_separator,
            train_on_last_step_only=masking.train_on_last_step_only,
        )
        return (one,)
    if table == "Segments":
        return mask_segments(row, tokenizer, masking.max_length, everything=masking.train_on_inputs)
    if template is None:
        raise OptionError(f"masks of a {table} table need a chat template: --chat-template NAME")
    if table in ANSWERLESS:
        return (mask_context(row["prompt"], row.get("tools"), tokenizer, template),)
    if table == "Conversation":
        return (_conversation(row, tokenizer, template, masking),)
    return _replies(row, table, tokenizer, template, masking)


def _conversation(
    row: Mapping[str, Any], tokenizer: Tokenizer, template: RowTemplate, masking: Masking
) -> Masked:
    messages, tools = row["messages"], row.get("tools")
    if masking.rule == "teacher":
        return mask_answer(messages, tools, tokenizer, template)
    everything = masking.train_on_inputs
    return mask_conversation(
        messages, tools, tokenizer, template, everything=everything, turns=masking.turns
    )


def _replies(
    row: Mapping[str, Any],
    table: str,
    tokenizer: Tokenizer,
    template: RowTemplate,
    masking: Masking,
) -> tuple[Masked, ...]:
    prompt, tools = row["prompt"], row.get("tools")
    sides = ("chosen", "rejected") if table == "Preference" else ("completion",)
    replies: list[list[Message]] = [row[side] for side in sides]
    rule: str = masking.rule or DEFAULT_RULES[table]
    if rule == "completion" and (masking.turns != USUAL_TURNS or masking.train_on_inputs):
        whole = {"messages": prompt + replies[0], "tools": tools}
        return (_conversation(whole, tokenizer, template, masking),)
    if rule == "score":
        made = [mask_score(prompt + reply, tools, tokenizer, template) for reply in replies]
    elif rule == "teacher":
        made = [mask_answer(prompt + reply, tools, tokenizer, template) for reply in replies]
    else:
        mask = mask_each_reply if rule == "each_reply" else mask_replies
        made = mask(prompt, replies, tools, tokenizer, template)
    if rule == "completion" and masking.assistant_only:
        whole = prompt + replies[0]
        marked = mask_conversation(whole, tools, tokenizer, template, everything=False)
        length, both = made[0].prompt_length, made[0].trained & marked.trained
        made, rule = [replace(marked, trained=both, prompt_length=length)], "assistant"
    rule = "preference" if rule == "each_reply" else rule
    names = sides if len(sides) > 1 else ("",)
    return tuple(replace(one, side=s, rule=rule) for one, s in zip(made, names, strict=True))
