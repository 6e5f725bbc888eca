"""Prompts with completions as whole conversations, for a trainer that takes nothing else.

GKD's collator (TRL 1.16) reads `messages` and takes the last turn for the completion.
"""

from typing import Any


def joined(rows: Any) -> Any:
    """Return rows with `messages` in place of prompt and completion; others as they are."""
    if "completion" not in rows.column_names:
        return rows
    features = rows.features.copy()
    kind = features.pop("completion")
    del features["prompt"]
    features["messages"] = kind

    def join(row: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [*row["prompt"], *row["completion"]]}

    return rows.map(join, remove_columns=["prompt", "completion"], features=features)
