"""The codes of bad rows and of warnings, and the reject: a row that no table can hold.

Of several codes of one row the first in this order is given. Nothing is said here about columns: a
code is the same for every source.
"""

from dataclasses import dataclass

REASONS: dict[str, str] = {
    "missing_field": "a required column is absent from the row",
    "null_field": "a required column is null",
    "type_error": "a value is of another kind than its column",
    "empty_field": "a required text or list is empty or blank",
    "value_error": "a value is out of its range",
    "role_order": "the turns are not in an order that can be learnt from",
    "unknown_role": "a turn has a role that no template knows",
    "context_mismatch": "the two replies do not answer the same turns",
    "no_preference": "chosen equals rejected",
    "length_mismatch": "two lists that belong together differ in length",
    "too_long": "the row has more tokens than --max-length",
    "json_syntax": "the line is not JSON",
    "not_an_object": "the line is JSON, but no object",
    "duplicate_key": "an object has the same key twice",
    "json_nonfinite": "NaN or Infinity, which JSON does not have",
    "number_overflow": "a number beyond 64 bits",
    "invalid_utf8": "bytes that are not UTF-8",
    "invalid_unicode": "an escape that is half a surrogate pair",
    "json_control_char": "a raw control character inside a string",
    "json_too_deep": "more than 100 nested arrays or objects",
    "line_too_long": "a line longer than the limit",
    "unsupported": "images, audio, video or a message field that the type cannot carry",
    "template_error": "the template refuses these messages",
    "template_not_prefix_preserving": "the template rewrites the prompt once a reply follows",
    "ambiguous_fields": "two columns claim the same part",
    "no_assistant_turn": "no reply to learn from",
    "multi_message_answer": "an answer of several messages where one is expected",
    "empty_answer_after_think": "nothing follows the thinking",
    "format_placeholder": "a format names something that is no placeholder",
}
"""Code of a quarantined row -> what it means; the order is the order of precedence."""

WARNINGS: dict[str, str] = {
    "control_tokens": "a template's control tokens inside content",
    "trailing_user_turn": "a conversation ends with a turn nobody answered",
    "role_order": "turns in an order that is unusual, but can be learnt from",
    "rank_tie": "equally ranked answers, of which no pair can be made",
    "system_dropped": "the format has no place for the system text",
    "content_dropped": "the template leaves out a message's text",
    "generation_prompt_not_a_prefix": "the template's generation prompt is not how its replies begin",
    "overlong": "more tokens than --max-length; the row is kept as it is",
    "truncated": "cut to --max-length",
    "extra_columns": "columns that the type does not use and --keep does not name",
}
"""Code of a warning -> what it means. The row is kept and counted."""

PRECEDENCE: dict[str, int] = {code: rank for rank, code in enumerate(REASONS)}


@dataclass(frozen=True, slots=True)
class Reject:
    """A row that could not be converted: where it stands, why, and its bytes.

    `row` is the 0-based record and `line` the 1-based first physical line, both counted from the start
    of the block until the pipeline adds the block's own place; `line` is None where a source has none.
    """

    row: int
    line: int | None
    code: str
    column: str | None
    message: str
    raw: bytes
    raw_bytes: int | None = None
    """Length of the whole, where `raw` is only its beginning."""
