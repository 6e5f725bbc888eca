"""A dataset that axolotl prepared: a folder of `last_run_prepared`, as rows of ids and labels.

Pairs and single replies are texts there, which TRL's trainers tokenize: this is done here as they do it,
with the BOS that the tokenizer adds (axolotl removes a second one) and an EOS where a reply has none.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, SourceError
from fmtkit.core.options import refuse_empty
from fmtkit.masks.masked import NOT_TRAINED, TokenRow, common_prefix, given
from fmtkit.sources.arrow_trial import Trial
from fmtkit.sources.columnar import each_batch
from fmtkit.tokenizers.tokens import Tokenizer

Form = Literal["tokens", "scores", "pairs", "replies"]

_COLUMNS: Mapping[Form, tuple[str, ...]] = {
    "tokens": ("input_ids", "labels"),
    "scores": ("chosen_ids", "rejected_ids"),
    "pairs": ("prompt", "chosen", "rejected"),
    "replies": ("prompt", "completion", "label"),
}
"""Form of a prepared dataset -> the columns by which it is recognized."""
_FURTHER = ("attention_mask", "position_ids")
_SCORES_BEFORE = {"input_ids_chosen": "chosen_ids", "input_ids_rejected": "rejected_ids"}
"""Column of older versions -> the name that it has now."""


@dataclass(frozen=True)
class Prepared:
    """An opened prepared dataset: its files, and the form and columns of its rows."""

    folder: Path
    files: tuple[Path, ...]
    form: Form
    columns: tuple[str, ...]


def opened(folder: str | Path) -> Prepared:
    """Look at a folder that axolotl prepared.

    Raises:
        SourceError: where there is no folder or no dataset in it, or a file is missing or damaged.
        OptionError: if the dataset has none of the forms that can be compared.
    """
    refuse_empty(folder, "--against")
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise SourceError(f"--against {place}: no such folder")
    state = place / "state.json"
    if not state.is_file():
        raise SourceError(f"--against {place}: {_no_dataset(place)}")
    try:
        named = [entry["filename"] for entry in json.loads(state.read_text())["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"--against {state} cannot be read: {error}") from error
    files = tuple(place / str(name) for name in named)
    absent = next((file for file in files if not file.is_file()), None)
    if absent is not None:
        raise SourceError(f"--against {absent}: missing, though state.json names it")
    names = _names(files[0]) if files else ()
    if not names:
        raise OptionError(f"--against {place}: holds no rows")
    renamed = {_SCORES_BEFORE.get(name, name) for name in names}
    form = next((form for form, needed in _COLUMNS.items() if renamed.issuperset(needed)), None)
    if form is None:
        raise OptionError(
            f"--against {place}: holds the columns {', '.join(names)}; it takes what axolotl "
            "prepares for training: input_ids and labels, or prompt with chosen and rejected, or with "
            "completion and label"
        )
    return Prepared(place, files, form, names)


def _no_dataset(place: Path) -> str:
    inside = sorted(path.parent.name for path in place.glob("*/state.json"))
    if inside:
        return f"holds several datasets, one in each folder; name one: {', '.join(inside[:5])}"
    return "no dataset that save_to_disk wrote: it has no state.json"


def _names(file: Path) -> tuple[str, ...]:
    with Trial(str(file), str(file)).opened() as reader:
        return tuple(reader.schema.names)


def rows(prepared: Prepared, tokenizer: Tokenizer) -> Iterator[TokenRow]:
    """Yield the rows in their order; packed rows are split again.

    Raises SourceError where a file is damaged, TokenizerError where the tokenizer has no EOS.
    """
    for batch in _batches(prepared):
        if prepared.form == "tokens":
            yield from _tokens(batch)
        elif prepared.form == "scores":
            yield from _scores(batch)
        else:
            yield from _texts(batch, tokenizer)


def _batches(prepared: Prepared) -> Iterator[Mapping[str, list[Any]]]:
    wanted = {*_COLUMNS[prepared.form], *_FURTHER}
    names = [n for n in prepared.columns if _SCORES_BEFORE.get(n, n) in wanted]
    for file in prepared.files:
        trial = Trial(str(file), str(file))
        with trial.opened() as reader:
            for batch in trial.passed(each_batch(reader), 0):
                for start in range(0, batch.num_rows, 1024):
                    part = batch.slice(start, 1024)
                    yield {_SCORES_BEFORE.get(n, n): part.column(n).to_pylist() for n in names}


def _tokens(batch: Mapping[str, list[Any]]) -> Iterator[TokenRow]:
    absent = [None] * len(batch["input_ids"])
    for ids, labels, mask, places in zip(
        batch["input_ids"],
        batch["labels"],
        batch.get("attention_mask", absent),
        batch.get("position_ids", absent),
        strict=True,
    ):
        for part in _parts(len(ids), mask, places):
            yield TokenRow((given(ids[part], labels[part]),))


def _parts(length: int, mask: Sequence[int] | None, places: Sequence[int] | None) -> list[slice]:
    """Return the slices of the rows that were packed into one sequence, without its padding."""
    attended = np.ones(length, dtype=np.int64) if mask is None else np.asarray(mask)
    seen = np.flatnonzero(attended)
    first, end = (int(seen[0]), int(seen[-1]) + 1) if len(seen) else (0, 0)
    # Packed rows are numbered in the mask, or their positions begin again.
    begins = np.diff(attended[first:end]) != 0
    if places is not None:
        begins |= np.diff(np.asarray(places[first:end])) < 0
    cuts = [first, *(np.flatnonzero(begins) + 1 + first).tolist(), end]
    return [slice(a, b) for a, b in pairwise(cuts) if b > a]


def _scores(batch: Mapping[str, list[Any]]) -> Iterator[TokenRow]:
    for sides in zip(batch["chosen_ids"], batch["rejected_ids"], strict=True):
        # A sequence is scored at its last token.
        yield _pair(sides, [max(len(ids) - 1, 0) for ids in sides])


def _pair(sides: Sequence[list[int]], contexts: Sequence[int]) -> TokenRow:
    """Return the row of some sequences, each trained on from a token on."""
    names = ("chosen", "rejected") if len(sides) > 1 else ("",)
    made = (
        given(ids, [NOT_TRAINED] * length + ids[length:], name)
        for name, ids, length in zip(names, sides, contexts, strict=True)
    )
    return TokenRow(tuple(made))


def _texts(batch: Mapping[str, list[Any]], tokenizer: Tokenizer) -> Iterator[TokenRow]:
    sides = ("chosen", "rejected") if "chosen" in batch else ("completion",)
    given = batch.get("label", [None] * len(batch["prompt"]))
    for prompt, label, *replies in zip(
        batch["prompt"], given, *(batch[side] for side in sides), strict=True
    ):
        if not all(isinstance(text, str) for text in (prompt, *replies)):
            raise OptionError(
                "--against: its prompts are messages, not strings: axolotl leaves those to its trainer, "
                "so there is no token to compare"
            )
        yield _text_row(prompt, replies, label, tokenizer)


def _text_row(prompt: str, replies: Sequence[str], label: Any, tokenizer: Tokenizer) -> TokenRow:
    context = _once(tokenizer.encode(prompt, add_special_tokens=True).ids, tokenizer)
    end = tokenizer.needs("eos_token", "a reply that axolotl prepared")
    ids = []
    for reply in replies:
        text = prompt + reply + ("" if reply.endswith(end) else end)
        ids.append(_once(tokenizer.encode(text, add_special_tokens=True).ids, tokenizer))
    length = min(common_prefix(context, one) for one in ids)
    made = _pair(ids, [length] * len(ids))
    return replace(made, label=None if label is None else bool(label))


def _once(ids: list[int], tokenizer: Tokenizer) -> list[int]:
    """Remove a second BOS, as axolotl's trainer does."""
    bos = tokenizer.bos_id
    return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids
