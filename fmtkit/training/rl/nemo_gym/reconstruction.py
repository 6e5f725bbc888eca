"""The tokens of a dialog, put together again from what the model server told of each of its calls.

Of the items that one call of the model makes, the last alone carries `prompt_token_ids`, what the
model read, `generation_token_ids` and `generation_log_probs`, what it wrote. What it read of a later
call begins with everything so far, and the rest of that is the environment's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.training.rl.dialogs.dialog import MISMATCH, Dialog
from fmtkit.training.rl.http_client import CallError


def reconstruct(items: Sequence[Mapping[str, Any]]) -> Dialog | None:
    """Return the dialog of `response.output`; None if no item tells the model's tokens.

    A turn whose prompt does not begin with what came before (a template that rewrites earlier turns)
    ends the dialog: it and what follows is left out, and the outcome says so.
    """
    calls = [item for item in items if item.get("generation_token_ids") is not None]
    if not calls:
        return None
    dialog = Dialog(prompt_ids=_ids(calls[0], "prompt_token_ids"))
    if not dialog.prompt_ids:
        raise CallError("the answer's first item tells no prompt_token_ids")
    for number, call in enumerate(calls):
        read = _ids(call, "prompt_token_ids")
        seen = dialog.prompt_ids + dialog.completion_ids
        if read[: len(seen)] != seen:
            dialog.outcome = MISMATCH
            break
        if number:
            dialog.insert(read[len(seen) :])
        dialog.generate(_ids(call, "generation_token_ids"), call.get("generation_log_probs") or ())
    return dialog


def _ids(item: Mapping[str, Any], name: str) -> list[int]:
    ids = item.get(name) or []
    if not isinstance(ids, list) or not all(type(value) is int for value in ids):
        raise CallError(f"{name} of the answer is no list of token ids, but {str(ids)[:80]}")
    return ids
