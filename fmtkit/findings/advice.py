"""The meaning of each finding, what to do about it, and its severity."""

from typing import NamedTuple


class Advice(NamedTuple):
    """The message, advice and severity of a finding."""

    message: str
    advice: str
    severity: str
    """`error`: training on the rows teaches something wrong; `warning`: it teaches less than it could;
    `note`: it may be intended."""


SEVERITIES = ("error", "warning", "note")
"""From worst to least."""

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
        "use a type that reads them, map them to its columns (--map), or carry them through (convert --keep)",
        "error",
    ),
    "open_columns": Advice(
        "columns that nothing reads could be labels, scores, contexts, turns, tools or media",
        "read them as one of the commands below does, carry them through (convert --keep), or say that "
        "they are not needed (--ignore)",
        "warning",
    ),
    "open_keys": Advice(
        "keys of messages that nothing reads could be labels, scores or text, by the first rows",
        "move what is needed into columns that a type reads, or say that it is not needed (--ignore "
        "'messages[].rating')",
        "warning",
    ),
    "rendered_text": Advice(
        "texts are full of the control tokens of a chat template: they were rendered already",
        "train on them as text (type text) with the template's tokenizer, or get the "
        "messages they were made from: a template would add its control tokens a second time",
        "error",
    ),
    "mixed_layouts": Advice(
        "the rows are of two layouts, and one type reads only its own",
        "split the file by layout and convert each part; with one type, the rows of the other are bad",
        "error",
    ),
    "transcript": Advice(
        "a text, or a user turn, holds a whole conversation: USER: and ASSISTANT: or the like",
        "convert it with type transcript, unless it is a quotation; otherwise it is trained on as one turn",
        "warning",
    ),
    "secrets": Advice(
        "texts hold what looks like a key, a token or a password",
        "revoke what is real, and replace it before anybody trains on the rows or gets them: a model can "
        "repeat it. Pages and terminals show stars in its place; files that convert writes have it",
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
        "remove them, or tokenize content separately: the model reads them as the end of a turn",
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
        "check that this is intended, or give every row its tools",
        "note",
    ),
    "thinking_mixed": Advice(
        "the replies of some rows have reasoning and those of others have none",
        "a model that is to think always, or never, learns both: check that it is intended, and that the "
        "prompts tell the two apart",
        "note",
    ),
    "reasoning_dropped": Advice(
        "the template leaves out the reasoning of a reply: it is not trained on",
        "templates of reasoning models leave out that of earlier turns on purpose; to train on it take a "
        "template that keeps it, or make a row of each turn",
        "note",
    ),
    "template_tokens_trained": Advice(
        "of the rows whose masks were counted: tokens are trained that the template writes and the model "
        "never does, such as an empty think block or what follows the end of a turn",
        "give the rows their reasoning, or use a template that marks replies from their text to the end of "
        "turn, or set `mask_template_tokens: true`; `--show-mask 3` shows the tokens",
        "note",
    ),
    "soft_labels": Advice(
        "step labels between 0 and 1",
        "fmtkit trains labels of 0.5 and more as correct; TRL's own trainer would truncate 0.7 to 0",
        "note",
    ),
    "missing_labels": Advice(
        "a step has no label",
        "label the step, or drop it",
        "error",
    ),
    "template_refused": Advice(
        "the template does not render the row",
        "convert quarantines these rows with the template's message: repair them, or use a "
        "template that supports these roles",
        "error",
    ),
    "prompt_rewritten": Advice(
        "the template writes the prompt differently once a reply follows",
        "the loss mask is shifted by the difference: use the template's training variant, or another one",
        "error",
    ),
    "content_dropped": Advice(
        "the template leaves out the text of a message",
        "the model never sees it: look at the row, and at roles that the template does not support",
        "error",
    ),
    "bos_missing": Advice(
        "the row does not begin with the BOS token that the tokenizer expects",
        "let the template write bos_token",
        "warning",
    ),
    "bos_doubled": Advice(
        "the row has more than one BOS token",
        "remove it from the content or from the template",
        "warning",
    ),
    "end_not_trained": Advice(
        "the reply ends without a control token: the model does not learn to stop",
        "let the template end replies with its end of turn, inside its generation block",
        "error",
    ),
    "end_doubled": Advice(
        "the reply ends with the same control token twice",
        "remove it from the content or from the template",
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
    "image_refused": Advice(
        "the model's processor refuses the size of an image",
        "crop or resize these images, or drop the rows: training ends at the first of them",
        "error",
    ),
    "boxes_outside": Advice(
        "a box reaches out of its image, or is none",
        "look at what its numbers count (bbox_type: real is pixels, norm1 is 0 to 1), and whether the image "
        "was resized after it was labelled",
        "warning",
    ),
    "same_images": Advice(
        "all images are the same bytes: a placeholder, or a broken export",
        "look at the images and at the file that they came from: nothing is learned from them",
        "error",
    ),
    "image_losses": Advice(
        "images of which a model sees less than there is: frames, transparency, colours, or size",
        "the details say what becomes of them; convert what matters to RGB of 8 bits",
        "warning",
    ),
    "nothing_trained": Advice(
        "no token of the row is trained",
        "drop the row, or look at its reply and labels",
        "error",
    ),
}
"""Code -> its advice. `--fail-on CODE` takes these codes."""
