"""Rows as rendered text, for trainers whose own `map` would spoil it.

TRL's older trainers (CPO and ORPO of 1.16, BCO of 1.13) write the rendered text into the columns that
held the messages. A column of JSON values takes a text for a list of letters.
"""

from typing import Any

from fmtkit.core.tables import DIALOG_COLUMNS


def rendered(rows: Any, tokenizer: Any) -> Any:
    """Return texts in place of messages where these are JSON values; other rows as they are."""
    from datasets import Features, Value
    from trl.data_utils import maybe_apply_chat_template

    if rows is None or not any(map(_is_json, rows.features.values())):
        return rows
    dialogs = [name for name in rows.column_names if name in DIALOG_COLUMNS]
    kept = {name: rows.features[name] for name in ("label",) if name in rows.features}
    return rows.map(
        maybe_apply_chat_template,
        fn_kwargs={"processing_class": tokenizer},
        remove_columns=rows.column_names,
        features=Features({name: Value("string") for name in dialogs} | kept),
    )


def _is_json(feature: Any) -> bool:
    from datasets import Json

    return isinstance(getattr(feature, "feature", None), Json)
