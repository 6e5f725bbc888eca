"""What each finding means, what to do about it, and how much it weighs."""

from typing import NamedTuple


class Advice(NamedTuple):
    """What is said of a finding."""

    message: str
    advice: str
    severity: str
    """`error`: rows teach something wrong, or not what they hold; `warning`: they teach less than they
    could; `note`: it may well be meant."""


SEVERITIES = ("error", "warning", "note")
"""The worst first."""

ADVICE: dict[str, Advice] = {
    "chosen_equals_rejected": Advice(
        "chosen and rejected are the same",
        "drop these pairs; convert leaves them out as no_preference",
        "error",
    ),
    "equal_after_rendering": Advice(
        "chosen and rejected differ, but not once the template has written them",
        "the template trims or drops the difference: change the template or drop the pairs",
        "error",
    ),
    "equal_after_cutting": Advice(
        "chosen and rejected are the same once cut to the maximum length",
        "raise --max-length, or drop long rows instead of cutting them",
        "error",
    ),
    "direction_contradicted": Advice(
        "scores or ranks in the row say that rejected is the better reply",
        "swap the sides, or drop these rows; look at how the pairs were made",
        "error",
    ),
    "direction_tied": Advice(
        "scores or ranks in the row say that both replies are equally good",
        "drop these rows: they are noise",
        "warning",
    ),
    "length_bias": Advice(
        "one side is longer far more often than chance",
        "the model may learn length: balance the pairs, or use a loss that normalizes by length",
        "warning",
    ),
    "label_balance": Advice(
        "desirable and undesirable rows are imbalanced",
        "set the weights in the details, so that the two sides weigh 1:1 to 4:3",
        "note",
    ),
    "one_label": Advice(
        "all rows have the same label",
        "KTO and BCO need both: add rows of the other label",
        "error",
    ),
    "unread_turns": Advice(
        "columns that the type does not read carry turns, answers, labels or a system prompt",
        "take a type that reads them, or name them: --map reads, convert --keep carries through",
        "error",
    ),
    "rendered_text": Advice(
        "texts are full of the control tokens of a chat template: they were rendered already",
        "train on them as text (type text) with the template's tokenizer, or get the "
        "messages they were made of: a template would write its tokens once more",
        "error",
    ),
    "mixed_layouts": Advice(
        "the rows are of two layouts, and one type reads only its own",
        "split the file by layout and convert each part, or name one type and lose the other's rows",
        "error",
    ),
    "transcript": Advice(
        "a text, or a user turn, holds a whole conversation: USER: and ASSISTANT: or the like",
        "make turns of it with type transcript, unless it is a quotation: as it is, one turn is trained on",
        "warning",
    ),
    "duplicate_rows": Advice(
        "duplicate row",
        "drop the duplicates: they double the weight of their row",
        "warning",
    ),
    "prompt_in_splits": Advice(
        "a prompt occurs in more than one split",
        "split by prompt (convert --val-size does), or the evaluation measures memorization",
        "error",
    ),
    "control_tokens": Advice(
        "content holds control tokens of the template or the tokenizer",
        "take them out, or tokenize content apart: the model reads them as the end of a turn",
        "error",
    ),
    "empty_turn": Advice(
        "a turn has neither text nor tool calls",
        "drop the turn or the row",
        "error",
    ),
    "role_order": Advice(
        "turns do not alternate, or the system prompt is not first",
        "merge turns of one role; a template may refuse or drop them",
        "warning",
    ),
    "unclosed_think": Advice(
        "<think> is opened and not closed",
        "the reply was probably cut off during generation: drop the row",
        "warning",
    ),
    "trailing_user_turn": Advice(
        "the last turn is the user's",
        "nothing follows it: drop the turn",
        "warning",
    ),
    "tools_not_uniform": Advice(
        "some rows have tools and others have none",
        "train on both on purpose, or give every row its tools",
        "note",
    ),
    "soft_labels": Advice(
        "step labels between 0 and 1",
        "a run takes one half and more as right; TRL's own trainer cut 0.7 to 0",
        "note",
    ),
    "missing_labels": Advice(
        "a step has no label",
        "label the step, or drop it",
        "error",
    ),
    "template_refused": Advice(
        "the template does not render the row",
        "convert quarantines these rows with the template's own words: repair them, or take a "
        "template that knows these roles",
        "error",
    ),
    "prompt_rewritten": Advice(
        "the template writes the prompt differently once a reply follows",
        "the mask of the reply is off by as much: take the template's training variant or another",
        "error",
    ),
    "content_dropped": Advice(
        "the template leaves out the text of a message",
        "the model never sees it: look at the row, and at roles that the template does not know",
        "error",
    ),
    "bos_missing": Advice(
        "the row does not begin with the BOS token that the tokenizer expects",
        "write bos_token in the template",
        "warning",
    ),
    "bos_doubled": Advice(
        "the row has more than one BOS token",
        "take it out of the content, or of the template",
        "warning",
    ),
    "end_not_trained": Advice(
        "the reply ends without a control token: the model does not learn to stop",
        "let the template end replies with its end of turn, inside its generation block",
        "error",
    ),
    "end_doubled": Advice(
        "the reply ends with the same control token twice",
        "take it out of the content, or of the template",
        "warning",
    ),
    "no_anchor": Advice(
        "no block of strided EBFT fits in the row: only ce_coef trains it, if at all",
        "lower ebft.generate_max_len, context_length or min_completion_prefix, raise sequence_len "
        "where it cuts the reply, or drop the row",
        "warning",
    ),
    "padded_first": Advice(
        "padding comes before a token",
        "pad rows on the right, or not at all: strided EBFT refuses others",
        "error",
    ),
    "nothing_trained": Advice(
        "no token of the row is trained",
        "drop the row, or look at its reply and labels",
        "error",
    ),
}
"""Code -> what is said of it. `--fail-on CODE` takes these."""
