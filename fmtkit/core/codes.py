"""The codes of bad rows and of warnings, and the reject: a row that could not be converted.

A row with several faults gets the code that comes first here. Codes are the same for every source. Plugins
register codes of their own, which come after these.
"""

import re
import sys
from collections.abc import Iterable

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code, and what to do about a row that has it."""

    means: str
    advice: str


BAD_ROWS: dict[str, Code] = {
    "missing_field": Code(
        "a required column is absent from the row",
        "If the key is misspelled in the file, repair it; if the column has a different name, use"
        " `--map`. A column that no row has is a usage error before anything is converted.",
    ),
    "null_field": Code(
        "a required column is null",
        "Fill the value or drop the row.",
    ),
    "type_error": Code(
        "a value has a different kind from its column",
        "Write the value as the kind requires: a string in quotes, a label as true or false. Labels"
        " that are strings need `--option label_map=…`.",
    ),
    "empty_field": Code(
        "a required text or list is empty or blank",
        "Fill the text or drop the row: there is nothing to train on.",
    ),
    "value_error": Code(
        "a value is out of its range",
        "Correct the value; the message names the range.",
    ),
    "role_order": Code(
        "the turns are not in an order that can be trained on",
        "The system turn comes first, and a reply follows a question: put the turns in order,"
        " or drop the row.",
    ),
    "unknown_role": Code(
        "a turn has a role that no template knows",
        'Name the speakers: `--option roles=\'{"assistant": ["bot"]}\'`.',
    ),
    "context_mismatch": Code(
        "the two replies do not answer the same turns",
        "Chosen and rejected must answer the same turns. Look for an edited question or a "
        "missing turn.",
    ),
    "no_preference": Code(
        "chosen equals rejected, or neither won",
        "Drop the pair: there is nothing to prefer.",
    ),
    "no_place": Code(
        "the target of --to cannot hold the row",
        "The message names the field that has no place there. `--allow-loss FIELD` writes such rows"
        " without it, and counts them; another target may hold it (docs/targets.md).",
    ),
    "length_mismatch": Code(
        "two lists that belong together differ in length",
        "Give each step a label and each reply a score.",
    ),
    "too_long": Code(
        "the row has more tokens than --max-length",
        "Raise `--max-length`, or choose another `--on-overlong`.",
    ),
    "too_short": Code(
        "the row has fewer tokens than --min-length",
        "Lower `--min-length` (`min_sample_len` in a config), or leave it out.",
    ),
    "json_syntax": Code(
        "the line is not JSON",
        "The line is cut off or has stray characters; the message gives the position. Often two "
        "files were joined without a newline, or the program that wrote the file was stopped.",
    ),
    "not_an_object": Code(
        "the line is JSON, but not an object",
        "Each line must be one `{…}`. A list of rows in one file is read too, if the file "
        "begins with `[`.",
    ),
    "duplicate_key": Code(
        "an object has the same key twice",
        "Remove the wrong one: JSON readers differ in which of the two they use.",
    ),
    "json_nonfinite": Code(
        "NaN or Infinity, which JSON does not have",
        "Write null, or drop the row: JSON has no NaN.",
    ),
    "number_overflow": Code(
        "a number beyond 64 bits",
        "Write such a number as a string.",
    ),
    "invalid_utf8": Code(
        "bytes that are not UTF-8",
        "Convert the file to UTF-8 (`iconv -f latin1 -t utf-8`). The row's bytes are in "
        "`raw_base64`.",
    ),
    "invalid_unicode": Code(
        "an escape that is half a surrogate pair",
        "A character, often an emoji, was cut in half: write both halves, or drop the row.",
    ),
    "json_control_char": Code(
        "a raw control character inside a string",
        "Escape it: a newline within a string is `\\n`.",
    ),
    "json_too_deep": Code(
        "more than 100 nested arrays or objects",
        "No dataset needs such nesting; look at the program that wrote the row.",
    ),
    "line_too_long": Code(
        "a line longer than the limit",
        "The limit is 16 MiB. Usually newlines are missing between the rows.",
    ),
    "unsupported": Code(
        "images, audio, video or a message field that the type cannot carry",
        "fmtkit converts text, and images of conversations that stay messages (docs/images.md). A row with"
        " audio or video is never converted without it, nor is one with images where they have no place.",
    ),
    "image_count": Code(
        "a row shows more or fewer images than it has",
        "Each `<image>` in the text of a user, or each part of type image, needs one image; images that no"
        " text shows come first in the first turn of a user. Replies show none.",
    ),
    "image_missing": Code(
        "an image that is not there",
        "Paths begin at the folder of the source, or at `--image-folder DIR`. `--fetch-images` fetches"
        " images that are URLs.",
    ),
    "image_unreadable": Code(
        "a file or bytes that are no image, or none that a model can be shown",
        "The message says what it is. Convert it to PNG, JPEG or WebP, or drop the row.",
    ),
    "template_error": Code(
        "the template refuses these messages, or leaves out what they say",
        "The message is the template's own, often about the order of roles or a system turn. "
        "Choose another template, or repair the turns.",
    ),
    "template_not_prefix_preserving": Code(
        "the template rewrites the prompt once a reply follows",
        "The template writes earlier turns differently once a reply follows, so prompt and reply "
        "cannot be separated. Use the training variant of the template (TRL has some) or "
        "another template.",
    ),
    "ambiguous_fields": Code(
        "two columns claim the same part",
        "Remove one of the two columns, or name the right one with `--map`.",
    ),
    "no_assistant_turn": Code(
        "no reply to train on",
        "A conversation without a reply has nothing to train on: drop it.",
    ),
    "multi_message_answer": Code(
        "an answer of several messages where one is expected",
        "The type takes one message as the answer: split the row, or use a type that takes "
        "several.",
    ),
    "empty_answer_after_think": Code(
        "nothing follows the thinking",
        "The reply was probably cut off during generation: drop it.",
    ),
    "format_placeholder": Code(
        "a format names something that is not a placeholder",
        "This is a mistake in the configuration: the only placeholders of formats are `{prompt}`,"
        " `{system}`, `{chosen}`, `{rejected}` and `{completion}`; write other braces as `{{` and `}}`.",
    ),
}
"""Code of a quarantined row -> its meaning; the order is the order of precedence."""

ODD_ROWS: dict[str, Code] = {
    "control_tokens": Code(
        "a template's control tokens inside content",
        "Remove them unless they are intended: a model reads them as the end of a turn.",
    ),
    "trailing_user_turn": Code(
        "a conversation ends with an unanswered turn",
        "Nothing follows the last question, so it is not trained on. Remove the turn if "
        "that is not intended.",
    ),
    "role_order": Code(
        "turns in an order that is unusual, but can be trained on",
        "Two consecutive turns have the same role, or a conversation begins with a reply. "
        "The template may refuse it; look at a rendered row.",
    ),
    "filled_keys": Code(
        "null keys of tools or tool calls, left out",
        "Tables store tools and calls as structs, so that each has the keys of all others, as nulls."
        " Arguments that the called tool defines are kept. Store them as JSON text to keep every null.",
    ),
    "rank_tie": Code(
        "equally ranked answers, which make no pair",
        "Another pair policy (`--option pairs=…`) may find pairs among the other answers of the row.",
    ),
    "ranking_without_pair": Code(
        "a ranking without a pair, in a row of which a different ranking gives one",
        "The row's other rankings are converted. Equal scores or equal replies make no pair;"
        " another pair policy (`--option pairs=…`) may find one.",
    ),
    "system_dropped": Code(
        "the format has no place for the system prompt",
        "Choose a template that has a system turn if the text matters.",
    ),
    "content_dropped": Code(
        "the template leaves out a message's text",
        "Look at a rendered row, and at roles that the template does not support.",
    ),
    "reasoning_dropped": Code(
        "the template leaves out the reasoning of a reply",
        "Templates of reasoning models leave out that of earlier turns on purpose: the model does not see it"
        " either. Where it is to be trained on, take a template that keeps it, or cut the conversation.",
    ),
    "generation_prompt_not_a_prefix": Code(
        "the template's generation prompt is not how its replies begin",
        "At inference the model is prompted differently than in training. Look at a rendered row.",
    ),
    "overlong": Code(
        "more tokens than --max-length; the row is kept as it is",
        "Choose a length with `fmtkit inspect --tokenizer …`, and with `--on-overlong` what to do with"
        " longer rows.",
    ),
    "truncated": Code(
        "cut to --max-length",
        "`fmtkit inspect --tokenizer …` shows how much each maximum length cuts.",
    ),
    "unread_turns": Code(
        "a column that the type does not read carries turns, answers, labels or a system prompt",
        "`unread_columns` in the report names the columns and counts the rows; text that is "
        "also in a column that was read is not counted. Use a type that reads the column (`fmtkit "
        "inspect`), map it to a column of the type (`--map`), or carry it through (`--keep`).",
    ),
    "open_columns": Code(
        "a column that the type does not read could be a label, a score, a context, turns or tools",
        "`unread_columns` in the report counts its rows, `open_columns` says what its values could be. "
        "`fmtkit inspect` prints commands that read it; carry it through (`--keep`), or say that it is "
        "not needed (`--ignore`).",
    ),
    "open_keys": Code(
        "keys of messages that the type does not read could be labels, scores or text, by the first rows",
        "Counted once for each source. `open_keys` in the report says which, and what their values could "
        "be. Move what is needed into columns that a type reads, or say that it is not needed "
        "(`--ignore 'messages[].rating'`).",
    ),
    "unknown_events": Code(
        "lines, or parts of them, of an agent's session that fmtkit does not know; left out",
        "Agents add kinds of events with new versions. Look at the session: what is left out may be a "
        "search or a picture that the model made.",
    ),
    "unread_events": Code(
        "a session has lines that could not be read; its conversation goes on without them",
        "The lines are in the quarantine, with their reasons. The last line of a session that was stopped "
        "is often cut off.",
    ),
    "broken_chain": Code(
        "lines of a session name a parent that is not there, each other, or are there twice",
        "A row begins with each line whose parent is not there. Look for lines that were removed.",
    ),
    "several_roots": Code(
        "a file of a session has more than one beginning",
        "Each is a row. Several sessions may have been joined to one file.",
    ),
    "unconfirmed_reply": Code(
        "of two answers the longer one is the reply, and it does not hold the shorter one",
        "The shorter one may be the right result, and the longer one a solution that misses it: compare "
        "them, or name the reply with --type question_answer --map.",
    ),
    "unjudged_replies": Code(
        "a question has several replies, and nothing says which of them are good; each is a row",
        "Keep the good ones: by a list of scores (type scored_replies), or the place of the best one "
        "(chosen_reply).",
    ),
    "unanswered_branches": Code(
        "turns of a session to which no reply of the model belongs; left out",
        "Nothing follows them that could be trained on.",
    ),
    "other_branches": Code(
        "turns of a chat that are not of the branch that it shows; left out",
        "Prompts were edited, or replies made anew. With type chatgpt, `-O branches=all` makes a row of each "
        "path to a last reply.",
    ),
    "calls_without_results": Code(
        "a session has tool calls without a result",
        "The user or an error stopped the tool. Look at the row if a template or a trainer refuses it.",
    ),
    "results_without_calls": Code(
        "a session has results of tools without their calls",
        "The line of the call is missing, or the session begins in the middle. A template may refuse the "
        "turn.",
    ),
    "hidden_reasoning": Code(
        "a session has reasoning that is encrypted or redacted; left out",
        "Nobody but its provider can read it: the model is trained to reply without it.",
    ),
    "harness_text": Code(
        "what the agent's program added to a session for the model, or said in its place; left out",
        "Attachments, and messages in the place of a failed reply, are no turns.",
    ),
    "extra_columns": Code(
        "columns that the type does not use and neither --keep nor --ignore names",
        "Counted once for each source. `ignored_columns` in the report lists them; carry those that "
        "are needed through with `--keep`.",
    ),
}
"""Code of a warning -> its meaning. The row is kept and counted."""

REASONS: dict[str, str] = {code: entry.means for code, entry in BAD_ROWS.items()}
WARNINGS: dict[str, str] = {code: entry.means for code, entry in ODD_ROWS.items()}
PRECEDENCE: dict[str, int] = {code: rank for rank, code in enumerate(BAD_ROWS)}

_OF_PLUGINS: dict[tuple[str, bool], str] = {}
"""Code that a plugin registered, and whether it is a warning -> the module that did."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def register_code(name: str, means: str, *, warning: bool = False) -> str:
    """Register a code of a plugin's own, for the problems or the warnings of its columns.

    It is used like fmtkit's, in reports, in the quarantine and by `--fail-on`. In a row with
    several faults fmtkit's own codes come first, then the plugin's in the order of its function.

    Args:
        name: Lowercase letters, digits and underscores, as in `no_winner`.
        means: What is wrong with such a row, and what to do about it.
        warning: Whether rows with this code are kept and counted, instead of being bad rows.

    Returns:
        The name.

    Raises:
        OptionError: if the name is no such word, or it is a code of fmtkit's or, with another meaning,
            of another plugin.

    Example:
        >>> fmtkit.register_code("no_winner", "neither speech won; drop the row")
        'no_winner'
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise OptionError(
            f"register_code: the name {name!r} must be a word of lowercase letters, digits and "
            "underscores, such as 'no_winner'"
        )
    if not isinstance(means, str) or not means.strip():
        raise OptionError(f"register_code {name}: say what is wrong with such a row, not {means!r}")
    if not isinstance(warning, bool):
        raise OptionError(f"register_code {name}: warning is true or false, not {warning!r}")
    module = str(sys._getframe(1).f_globals.get("__name__", ""))
    known, fixed = (WARNINGS, ODD_ROWS) if warning else (REASONS, BAD_ROWS)
    if name in fixed:
        raise OptionError(f"register_code {name}: it is a code of fmtkit's: {fixed[name].means}")
    owner = _OF_PLUGINS.setdefault((name, warning), module)
    if owner != module and known[name] != means:
        raise OptionError(
            f"register_code {name}: the plugin {owner} has this code too: {known[name]}; rename one"
        )
    known[name] = means
    if not warning:
        # Equal ranks: sorting leaves a plugin's problems in the order of its function.
        PRECEDENCE[name] = len(BAD_ROWS)
    return name


def forget(module: str) -> None:
    """Unregister the codes of a plugin's module, which is about to be loaded again."""
    for name, warning in [key for key, owner in _OF_PLUGINS.items() if owner == module]:
        del _OF_PLUGINS[name, warning]
        del (WARNINGS if warning else REASONS)[name]
        if not warning:
            del PRECEDENCE[name]


def found_among(codes: Iterable[str], *counts: Iterable[str]) -> tuple[str, ...]:
    """Return which of these codes were found, in the order asked for, each once."""
    there = {code for counted in counts for code in counted}
    return tuple(code for code in dict.fromkeys(codes) if code in there)


RAW_BYTES = 1 << 20
"""Up to this many bytes of a row are kept in its reject."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that could not be converted: where it is, why, and its bytes.

    `row` is the 0-based index of the record and `line` the 1-based number of its first line. Both count
    from the start of the block until the pipeline adds the offset of the block; `line` is None where a
    source has no lines.
    """

    row: int
    line: int | None
    code: str
    column: str | None
    message: str
    raw: bytes
    raw_bytes: int | None = None
    """Length of the whole row, known where `raw` is only its beginning."""

    def __post_init__(self) -> None:
        """Keep only the beginning of a long row."""
        if len(self.raw) > RAW_BYTES:
            object.__setattr__(self, "raw_bytes", self.raw_bytes or len(self.raw))
            object.__setattr__(self, "raw", self.raw[:RAW_BYTES])
