"""Masks of stepwise rows: a step's label stands on the token after it.

The ids are those of TRL's PRM trainer (last in TRL 1.13), which `fmtkit train` makes itself.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fmtkit.inspection.masked import Masked
from fmtkit.tokenizers.tokens import Tokenizer


def mask_steps(
    row: Mapping[str, Any],
    tokenizer: Tokenizer,
    *,
    step_separator: str = "\n",
    train_on_last_step_only: bool = False,
) -> Masked:
    """Return the sequence of a row; its labels are those that are trained on, as the row has them."""
    separator = tokenizer.encode(step_separator).ids
    prompt = tokenizer.encode(row["prompt"])
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    ids, places, text = [*bos, *prompt.ids], [], row["prompt"]
    offsets = [*((0, 0) for _ in bos), *prompt.offsets]
    for step in row["completions"]:
        encoding = tokenizer.encode(step)
        ids += [*encoding.ids, *separator]
        offsets += [(len(text) + a, len(text) + b) for a, b in encoding.offsets]
        text += step + step_separator
        offsets += [(len(text) - len(step_separator), len(text))] * len(separator)
        places.append(len(ids) - 1)
    chosen = places[-1:] if train_on_last_step_only else places
    trained = np.zeros(len(ids), dtype=np.bool_)
    trained[chosen] = True
    labels = tuple(float(label) for label in row["labels"][len(places) - len(chosen) :])
    return Masked(
        "",
        text,
        np.array(ids, dtype=np.int64),
        trained,
        tuple(offsets),
        len(bos) + len(prompt.ids),
        "steps",
        labels=labels,
        notes=_notes(labels),
    )


def _notes(labels: Sequence[float]) -> tuple[str, ...]:
    is_soft = any(label not in (0.0, 1.0) for label in labels)
    return ("soft labels: from one half on a step counts as right",) if is_soft else ()
