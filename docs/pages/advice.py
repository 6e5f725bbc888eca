# ruff: noqa: E501 -- the lines are Markdown
"""What to do about each code of a row."""

FOR_REASONS = {
    "missing_field": "If the key is misspelled in the file, repair it; if the column has another name, use `--map`. "
    "A column that no row has is a usage error before anything is converted.",
    "null_field": "Fill the value or drop the row.",
    "type_error": "Write the value as its kind says: a text in quotes, a label as true or false. "
    "Labels that are texts need `--option label_map=…`.",
    "empty_field": "Fill the text or drop the row: an empty prompt or reply teaches nothing.",
    "value_error": "Bring the value into its range; the message names it.",
    "role_order": "The system turn comes first, and a reply follows a question: put the turns in order, or drop the row.",
    "unknown_role": 'Tell who speaks: `--option roles=\'{"assistant": ["bot"]}\'`.',
    "context_mismatch": "Chosen and rejected must answer the same turns. Look for an edited question or a missing turn.",
    "no_preference": "Drop the pair: there is nothing to prefer.",
    "length_mismatch": "Give each step a label and each reply a score.",
    "too_long": "Raise `--max-length`, or choose another `--on-overlong`.",
    "json_syntax": "The line is cut off or has stray characters; the message names the place. Often a file was joined "
    "without a newline, or its writer was stopped.",
    "not_an_object": "Each line must be one `{…}`. A list of rows in one file is read too, if the file begins with `[`.",
    "duplicate_key": "Decide which value is meant: JSON readers differ in which one they take.",
    "json_nonfinite": "Write null, or drop the row: JSON has no NaN.",
    "number_overflow": "Write such a number as text.",
    "invalid_utf8": "Convert the file to UTF-8 (`iconv -f latin1 -t utf-8`). The row's bytes are in `raw_base64`.",
    "invalid_unicode": "Half of an emoji was cut away: write the pair whole, or drop the row.",
    "json_control_char": "Escape it: a newline within a string is `\\n`.",
    "json_too_deep": "No dataset needs such nesting; look at what wrote the row.",
    "line_too_long": "The limit is 16 MiB. Usually newlines are missing between the rows.",
    "unsupported": "fmtkit converts text. A row with images, audio or video is never converted without them.",
    "template_error": "The message is the template's own, often about the order of roles or a system turn. "
    "Choose another template or repair the turns.",
    "template_not_prefix_preserving": "The template writes earlier turns anew once a reply follows, so prompt and reply "
    "cannot be told apart. Use the training variant of the template (TRL has some) or another template.",
    "ambiguous_fields": "Keep one of the two columns, or name the one that is meant with `--map`.",
    "no_assistant_turn": "A conversation without a reply has nothing to learn: drop it.",
    "multi_message_answer": "The type takes one message as the answer: split the row, or use a type that takes several.",
    "empty_answer_after_think": "The reply was probably cut while it was made: drop it.",
    "format_placeholder": "An error of the configuration: formats know only `{prompt}`, `{system}`, `{chosen}`, "
    "`{rejected}` and `{completion}`; write other braces as `{{` and `}}`.",
}

FOR_WARNINGS = {
    "control_tokens": "Take them out if they are not meant: a model reads them as the end of a turn.",
    "trailing_user_turn": "Nothing follows the last question, so it is not learnt from. Cut the turn off if that is a "
    "mistake.",
    "rank_tie": "Equally ranked answers make no pair. Another pair policy may find pairs elsewhere in the row.",
    "role_order": "Two turns of one speaker follow each other, or a conversation begins with a reply. The template may refuse it; look at a rendered row.",
    "system_dropped": "Choose a template that has a system turn if the text matters.",
    "content_dropped": "Templates of reasoning models leave out earlier thinking on purpose. Look at a rendered row.",
    "generation_prompt_not_a_prefix": "The model is prompted in another way than it is trained. Look at a rendered row.",
    "overlong": "Decide with `fmtkit inspect --tokenizer …` what the length may be, then `--on-overlong`.",
    "truncated": "`fmtkit inspect` says what was lost by which length.",
    "extra_columns": "Counted once for each source. `ignored_columns` in the report names them; name them in `--keep` if they are needed.",
}
