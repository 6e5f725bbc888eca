"""What each finding means, and what to do about it."""

ADVICE: dict[str, tuple[str, str]] = {
    "chosen_equals_rejected": (
        "chosen and rejected are the same",
        "drop these pairs; convert leaves them out as no_preference",
    ),
    "equal_after_rendering": (
        "chosen and rejected differ, but not once the template has written them",
        "the template trims or drops the difference: change the template or drop the pairs",
    ),
    "equal_after_cutting": (
        "chosen and rejected are the same once cut to the maximum length",
        "raise --max-length, or drop long rows instead of cutting them",
    ),
    "direction_contradicted": (
        "scores or ranks in the row say that rejected is the better reply",
        "swap the sides, or drop these rows; look at how the pairs were made",
    ),
    "direction_tied": (
        "scores or ranks in the row say that both replies are equally good",
        "drop these rows: they teach noise",
    ),
    "length_bias": (
        "one side is longer far more often than chance",
        "the model may learn length: balance the pairs, or use a loss that normalizes by length",
    ),
    "label_balance": (
        "desired and undesired rows are not in balance",
        "set the weights in the details, so that the two sides weigh 1:1 to 4:3",
    ),
    "one_label": (
        "all rows have the same label",
        "KTO and BCO need both: add rows of the other label",
    ),
    "unread_turns": (
        "columns that the type does not read carry turns, answers, labels or a system text",
        "take a type that reads them, or name them: --map reads, convert --keep carries through",
    ),
    "rendered_text": (
        "texts are full of the control tokens of a chat template: they were rendered already",
        "train on them as text (type text) with the template's tokenizer, or get the messages they "
        "were made of: a template would write its tokens once more",
    ),
    "duplicate_rows": ("the same row again", "drop the copies: they weigh their row double"),
    "prompt_in_splits": (
        "a prompt stands in more than one split",
        "split by prompt (convert --val-size does), or the evaluation measures memory",
    ),
    "control_tokens": (
        "content holds control tokens of the tokenizer",
        "take them out, or tokenize content apart: the model reads them as the end of a turn",
    ),
    "empty_turn": ("a turn has neither text nor tool calls", "drop the turn or the row"),
    "role_order": (
        "turns do not alternate, or the system text is not first",
        "merge turns of one role; a template may refuse or drop them",
    ),
    "unclosed_think": (
        "<think> is opened and not closed",
        "the reply was probably cut while it was made: drop the row",
    ),
    "trailing_user_turn": ("the last turn is the user's", "nothing follows it: drop the turn"),
    "tools_not_uniform": (
        "some rows have tools and others have none",
        "train on both on purpose, or give every row its tools",
    ),
    "soft_labels": (
        "step labels between 0 and 1",
        "a run takes one half and more as right; TRL's own trainer cut 0.7 to 0",
    ),
    "missing_labels": ("a step has no label", "label the step, or drop it"),
    "template_refused": (
        "the template does not render the row",
        "convert quarantines these rows with the template's own words: mend them, or take a "
        "template that knows these roles",
    ),
    "prompt_rewritten": (
        "the template writes the prompt differently once a reply follows",
        "the mask of the reply is off by as much: take the template's training variant or another",
    ),
    "content_dropped": (
        "the template leaves out the text of a message",
        "the model never sees it: look at the row, and at roles that the template does not know",
    ),
    "bos_missing": (
        "the row does not begin with the BOS token that the tokenizer wants",
        "write bos_token in the template",
    ),
    "bos_doubled": (
        "the row has more than one BOS token",
        "take it out of the content, or of the template",
    ),
    "end_not_trained": (
        "the reply ends without a control token: the model does not learn to stop",
        "let the template end replies with its end of turn, inside its generation block",
    ),
    "end_doubled": (
        "the reply ends with the same control token twice",
        "take it out of the content, or of the template",
    ),
    "no_anchor": (
        "no block of strided EBFT fits in the row: it teaches by ce_coef alone, if at all",
        "lower ebft.generate_max_len, context_length or min_completion_prefix, raise sequence_len "
        "where it cuts the reply, or drop the row",
    ),
    "padded_first": (
        "padding stands before a token",
        "pad rows on the right, or not at all: strided EBFT refuses others",
    ),
    "nothing_trained": (
        "no token of the row is trained",
        "drop the row, or look at its reply and labels",
    ),
}
"""Code -> what it means, what to do. `--fail-on CODE` takes these."""
