"""Converted rows as the trainer's datasets: of one shape, mixed by weight, in a fixed order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.core.tables import DIALOG_COLUMNS, GYM_COLUMNS, MARKS
from fmtkit.training.data import trained_messages
from fmtkit.training.run.job import Job, Source

if TYPE_CHECKING:
    from fmtkit.rendering.tracing import Fault, Request

_TEXT_ROLES = {"prompt": "user"}


def load_rows(
    job: Job, runner: Runner, note: Callable[[str], None] = lambda _: None
) -> tuple[Any, Any]:
    """Return the rows to train on and those to evaluate on (None if there are none).

    `note` gets a line for rows that are left out.
    """
    train = mixed(job, job.train, runner, note)
    if _is_shuffled(job):
        train = train.shuffle(seed=_seed(job))
    if runner.both_labels:
        train = interleaved(train, _seed(job))
    evaluation = mixed(job, job.evaluation, runner, note) if job.evaluation else None
    return train, evaluation


def _is_shuffled(job: Job) -> bool:
    """Return whether the rows of all sources are shuffled together; those of a single one only if asked for.

    It decides what is packed together; the trainer's sampler shuffles again, unless it is sequential.
    Then, as in axolotl, only several sources are shuffled, and only if that is asked for.
    """
    shuffle, several = job.setting("shuffle_merged_datasets"), len(job.train) > 1
    if job.trainer.get("train_sampling_strategy") == "sequential":
        return shuffle is True and several
    return shuffle is True or (shuffle is None and several)


def _with_variables(job: Job, rows: Any) -> Any:
    """Add the variables of the template, where its trainer reads them from the rows."""
    variables = job.setting("chat_template_kwargs")
    if not variables or "chat_template_kwargs" in job.trainer:
        return rows
    return rows.add_column("chat_template_kwargs", [variables] * len(rows))


def mixed(
    job: Job,
    sources: Sequence[Source],
    runner: Runner,
    note: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return the rows of several sources in order, each repeated by its weight."""
    files = [file for source in sources for file in source.files]
    flagged = runner.mask == "completion" and trained_messages.has_flags(files)
    parts = [
        _weighted(_load(job, source, runner, flagged=flagged), source.weight, _seed(job))
        for source in sources
    ]
    if job.setting("shuffle_before_merging_datasets") and len(parts) > 1:
        parts = [part.shuffle(seed=_seed(job)) for part in parts]
    merged = put_together(parts)
    if runner.whole_dialogs:
        merged = whole_dialogs(merged)
    if job.setting("dataset_exact_deduplication"):
        count = len(merged)
        merged = _distinct(merged)
        if len(merged) < count:
            note(
                f"dataset_exact_deduplication: {count - len(merged):,} of {count:,} rows are duplicates "
                "and are left out"
            )
    if len(merged) == 0:
        raise OptionError("no row is left to train on; RUN/data/*/report.json says why")
    return _with_variables(job, merged)


def _load(job: Job, source: Source, runner: Runner, *, flagged: bool) -> Any:
    """Load Parquet files through an Arrow file of the run folder, which the processes share."""
    from datasets import Dataset

    rows = Dataset.from_parquet(list(source.files), cache_dir=str(Path(job.run) / "data" / "cache"))
    if not isinstance(rows, Dataset):
        raise TypeError(f"{source.files}: not a dataset")
    if source.columns:
        rows = rows.select_columns(list(source.columns))
    if "rl" in runner.sections:
        rows = decoded(rows, source.files)
    # A text prompt is given to the model unchanged; as a message it would go through a template.
    if "rewards" not in runner.needs:
        rows = _worded(rows)
    rows = trained_messages.with_rule(rows, source.turns)
    return _wide(trained_messages.with_flags(rows) if flagged else rows)


def _worded(rows: Any) -> Any:
    """Give text conversations the shape of messages, for the identity template to render unchanged."""
    columns = [name for name in rows.column_names if name in {*DIALOG_COLUMNS, "text"}]
    strings = [name for name in columns if _is_text(rows.features[name])]
    if not strings or "replies" in rows.column_names or "completions" in rows.column_names:
        return rows

    def word(batch: dict[str, list[str]]) -> dict[str, list[list[dict[str, str]]]]:
        return {
            "messages" if name == "text" else name: [
                [{"role": _TEXT_ROLES.get(name, "assistant"), "content": text}]
                for text in batch[name]
            ]
            for name in strings
        }

    dropped = [name for name in strings if name == "text"]
    return rows.map(word, batched=True, remove_columns=dropped)


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in {"string", "large_string"}


def _wide(rows: Any) -> Any:
    """Turn wide messages into JSON values, so that absent keys are absent and not null.

    A column of structs has every key in every message; templates take a null for a value, and the
    arguments of two tool calls would be merged.
    """
    wide = [
        n for n in rows.column_names if n in DIALOG_COLUMNS and len(_keys(rows.features[n])) > 2
    ]
    return _as_json(rows, wide, _message)


def in_parts(rows: Any, tokenizer: Any) -> Any:
    """Turn every content into a text part if the tokenizer's template renders nothing else.

    Templates of vision models read only parts; TRL makes parts of strings only for processors.
    """
    from fmtkit.rendering.content_parts import Form, forms_of, in_form

    names = [n for n in rows.column_names if n in DIALOG_COLUMNS and not _is_text(rows.features[n])]
    forms = forms_of(_Transformers(tokenizer)) if names else None
    if forms is None or not forms.any(Form.PARTS):
        return rows
    return _as_json(rows, names, lambda m: json.dumps(in_form(m, forms), ensure_ascii=False))


class _Transformers:
    """The chat template of a tokenizer, run by transformers itself."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def render(self, requests: Sequence[Request]) -> list[str | Fault]:
        """Render conversations one by one."""
        return [self._render(request) for request in requests]

    def _render(self, request: Request) -> str | Fault:
        from fmtkit.rendering.tracing import FAULTS, fault

        try:
            return str(self._tokenizer.apply_chat_template(list(request.messages), tokenize=False))
        except FAULTS as error:
            return fault(error)


def _as_json(rows: Any, names: Sequence[str], write: Callable[[dict[str, Any]], str]) -> Any:
    """Turn the messages of some columns into JSON values, written as JSON text by `write`."""
    from datasets import Json, List, Value

    if not names:
        return rows

    def written(batch: dict[str, list[list[dict[str, Any]]]]) -> dict[str, list[list[str]]]:
        return {name: [[write(m) for m in dialog] for dialog in batch[name]] for name in names}

    features = rows.features.copy()
    for name in names:
        features[name] = List(Value("large_string"))
    rows = rows.map(written, batched=True, features=features)
    for name in names:
        rows = rows.cast_column(name, List(Json()))
    return rows


def _keys(feature: Any) -> tuple[str, ...]:
    inner = getattr(feature, "feature", None)
    return tuple(inner) if isinstance(inner, dict) else ()


def _message(message: dict[str, Any]) -> str:
    kept = {key: value for key, value in message.items() if value is not None and key not in MARKS}
    if isinstance(kept.get("tool_calls"), str):
        kept["tool_calls"] = json.loads(kept["tool_calls"])
    return json.dumps(kept, ensure_ascii=False)


def _weighted(rows: Any, weight: float, seed: int) -> Any:
    """Return complete passes over the rows, and a seeded sample for the rest of the weight."""
    if weight == 1.0:
        return rows
    passes, share = divmod(weight, 1.0)
    count = round(share * len(rows))
    sample = np.sort(np.random.default_rng(seed).permutation(len(rows))[:count])
    return rows.select(np.concatenate([*[np.arange(len(rows))] * int(passes), sample]).astype(int))


def _distinct(rows: Any) -> Any:
    seen: set[str] = set()
    keep = []
    for index, row in enumerate(rows):
        text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
        if text not in seen:
            seen.add(text)
            keep.append(index)
    return rows.select(keep)


def interleaved(rows: Any, seed: int) -> Any:
    """Spread desirable and undesirable rows evenly over the dataset, in a seeded order within each.

    KTO's trainer reads its rows in order, and converted pairs come all desirable, then all undesirable: a
    batch of one label teaches nothing.
    """
    labels = np.asarray(rows["label"], dtype=bool)
    generator = np.random.default_rng(seed)
    order, places = [], []
    for label in (True, False):
        indices = generator.permutation(np.flatnonzero(labels == label))
        order.append(indices)
        places.append((np.arange(len(indices)) + 0.5) / max(len(indices), 1))
    merged = np.concatenate(order)[np.argsort(np.concatenate(places), kind="stable")]
    return rows.select(merged)


def _seed(job: Job) -> int:
    seed = job.trainer.get("data_seed", job.trainer.get("seed", 42))
    return seed if isinstance(seed, int) else 42


def whole_dialogs(rows: Any) -> Any:
    """Return rows with `messages` instead of prompt and completion; others unchanged.

    GKD's collator (TRL 1.16) reads `messages` and uses the last turn as the completion.
    """
    if "completion" not in rows.column_names:
        return rows
    features = rows.features.copy()
    kind = features.pop("completion")
    del features["prompt"]
    features["messages"] = kind

    def join(row: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [*row["prompt"], *row["completion"]]}

    return rows.map(join, remove_columns=["prompt", "completion"], features=features)


def decoded(rows: Any, files: Sequence[str]) -> Any:
    """Parse the values of columns that hold canonical JSON."""
    import pyarrow.parquet as pq
    from datasets import Json

    for name in _json_columns([pq.read_schema(file) for file in files]):
        rows = rows.cast_column(name, Json())
    return rows


def put_together(parts: Sequence[Any]) -> Any:
    """Concatenate datasets; raise OptionError where a column holds different kinds of value.

    Rows for a Gym also hold all their columns in a single one, so columns that clash are left out.
    """
    from datasets import concatenate_datasets

    if len(parts) == 1:
        return parts[0]
    if all(GYM_COLUMNS[0] in part.column_names for part in parts):
        clashes = set(_clashes(parts))
        parts = [part.remove_columns(sorted(clashes & {*part.column_names})) for part in parts]
    try:
        return concatenate_datasets(list(parts))
    except ValueError as error:
        clashes_left = _clashes(parts)
        if not clashes_left:
            raise
        raise OptionError(
            f"datasets: column {clashes_left[0]!r} holds different kinds of value in two datasets; "
            "make them the same, or drop it by remove_columns of a transform"
        ) from error


def _json_columns(schemas: Sequence[Any]) -> list[str]:
    marked = [f.name for schema in schemas for f in schema if _is_json(f)]
    return list(dict.fromkeys(marked))


def _is_json(field: Any) -> bool:
    from fmtkit.converting.keeping import JSON_FIELD

    (key, value), *_ = JSON_FIELD.items()
    return bool(field.metadata) and field.metadata.get(key) == value


def _clashes(parts: Sequence[Any]) -> list[str]:
    """Return the columns whose type is not the same in all parts that have them."""
    names = dict.fromkeys(str(name) for part in parts for name in part.column_names)
    return [name for name in names if len(_types(parts, name)) > 1]


def _types(parts: Sequence[Any], name: str) -> list[Any]:
    """Return the different types of a column; they cannot be hashed."""
    types: list[Any] = []
    for part in parts:
        if name in part.column_names and part.features[name] not in types:
            types.append(part.features[name])
    return types


def rendered(rows: Any, tokenizer: Any) -> Any:
    """Return strings instead of messages where these are JSON values; other rows unchanged.

    TRL's older trainers (CPO and ORPO of 1.16, BCO of 1.13) write the rendered text into the columns that
    held the messages. A column of JSON values would read a string as a list of characters.
    """
    from datasets import Features, Value
    from trl.data_utils import maybe_apply_chat_template

    if rows is None or not any(map(_holds_json, rows.features.values())):
        return rows
    dialogs = [name for name in rows.column_names if name in DIALOG_COLUMNS]
    kept = {name: rows.features[name] for name in ("label",) if name in rows.features}
    return rows.map(
        maybe_apply_chat_template,
        fn_kwargs={"processing_class": tokenizer},
        remove_columns=rows.column_names,
        features=Features({name: Value("string") for name in dialogs} | kept),
    )


def _holds_json(feature: Any) -> bool:
    from datasets import Json

    return isinstance(getattr(feature, "feature", None), Json)
