"""Converted rows as the trainer's datasets: of one shape, mixed by weight, in a fixed order.

Rows of text stay strings, as TRL's trainers take them. Beside messages they become messages that are rendered
unchanged: each names the identity template, and the model's own stays that of its tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fmtkit.core.errors import OptionError
from fmtkit.core.message_keys import for_template
from fmtkit.core.runner import Runner
from fmtkit.core.tables import CONVERSATION_COLUMNS, GYM_COLUMNS
from fmtkit.tokenizers import text_ends
from fmtkit.training.data import image_rows, tokenized_rows
from fmtkit.training.data.tokenized_rows import (
    VARIABLES,
    has_text_rows,
    identity_source,
    is_text_row,
)
from fmtkit.training.planning.job import Job, Source

if TYPE_CHECKING:
    from fmtkit.rendering.content_parts import Forms
    from fmtkit.rendering.tracing import Refusal, Request
    from fmtkit.tokenizers.tokens import Tokenizer

_TEXT_ROLES = {"prompt": "user"}
_LOOK = 64
_IS_TEXT = "fmtkit_is_text"
"""A column of rows that were mixed: whether a row is prerendered text. No trainer sees it."""


def load_rows(
    job: Job, runner: Runner, note: Callable[[str], None] = lambda _: None, tokenizer: Any = None
) -> tuple[Any, Any]:
    """Return the rows to train on and those to evaluate on (None if there are none).

    `note` gets a line for rows that are left out. The tokenizer renders prompts of messages where others
    are text.
    """
    train = mixed(job, job.train, runner, note, tokenizer)
    if _is_shuffled(job):
        train = train.shuffle(seed=_seed(job))
    if runner.both_labels:
        train = interleaved(train, _seed(job))
    evaluation = mixed(job, job.evaluation, runner, note, tokenizer) if job.evaluation else None
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
    """Add what apply_chat_template is called with, where the trainer takes it from the rows.

    Each call with a row of text names the identity template.
    """
    has_text = _IS_TEXT in rows.column_names
    variables = job.setting("chat_template_kwargs")
    given = {} if VARIABLES in job.trainer or not isinstance(variables, Mapping) else variables
    if not has_text:
        return rows.add_column(VARIABLES, [given] * len(rows)) if given else rows
    from datasets import Features, Value

    as_it_is = {**dict.fromkeys(given), "chat_template": identity_source()}
    as_messages = {**given, "chat_template": None}
    kinds = {
        name: Features.from_arrow_schema(_schema_of(name, v))[name] for name, v in given.items()
    }
    features = Features({**rows.features, VARIABLES: {**kinds, "chat_template": Value("string")}})
    del features[_IS_TEXT]

    def add(batch: Mapping[str, list[bool]]) -> dict[str, list[Any]]:
        return {VARIABLES: [as_it_is if is_text else as_messages for is_text in batch[_IS_TEXT]]}

    return rows.map(add, batched=True, remove_columns=[_IS_TEXT], features=features)


def _schema_of(name: str, value: object) -> Any:
    import pyarrow as pa

    return pa.schema([(name, pa.array([value]).type)])


def mixed(
    job: Job,
    sources: Sequence[Source],
    runner: Runner,
    note: Callable[[str], None] = lambda _: None,
    tokenizer: Any = None,
) -> Any:
    """Return the rows of several sources in order, each repeated by its weight."""
    files = [file for source in sources for file in source.files]
    flagged = runner.mask == "completion" and tokenized_rows.has_flags(files)
    samples = "Prompt" in runner.tables
    texts = [holds_text(source.files) for source in sources]
    # Trainers take rows of text as they are, as long as all are text.
    words = any(texts) and not (all(texts) and (samples or runner.text_ends))
    around = None
    if words and tokenizer is not None and runner.text_ends and runner.mask != "completion":
        # Rows of sft are tokenized from their text; other trainers write no BOS and EOS into messages.
        own = tokenized_rows.adapted(tokenizer)
        around = text_ends.written_around(own, runner.text_ends)
        for source, is_text in zip(sources, texts, strict=True):
            if is_text:
                _check_written(source, own, runner, around)
    parts = [
        _weighted(
            _load(job, source, runner, flagged=flagged, words=words, around=around),
            source.weight,
            _seed(job),
        )
        for source in sources
    ]
    if job.setting("shuffle_before_merging_datasets") and len(parts) > 1:
        parts = [part.shuffle(seed=_seed(job)) for part in parts]
    merged = put_together(parts)
    if words and samples:
        merged = _as_texts(job, merged, tokenizer)
        note("prompts of text and of messages: those of messages are rendered, and all are text")
    if runner.whole_conversations:
        merged = whole_conversations(merged)
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


def _check_written(
    source: Source, tokenizer: Tokenizer, runner: Runner, around: text_ends.Writer
) -> None:
    """Raise OptionError where a text that is written with its special tokens has other ids than with them."""
    import pyarrow.parquet as pq

    names = pq.read_schema(source.files[0]).names
    name = "prompt" if "prompt" in names else "text"
    column = pq.ParquetFile(source.files[0]).read_row_group(0, columns=[name]).column(name)
    closed = name == "text"
    for text in column.slice(0, _LOOK).to_pylist():
        expected = text_ends.tokens_of(text, tokenizer, runner.text_ends, closed=closed).ids
        if tokenizer.encode(around(text, True, closed)).ids != expected:
            raise OptionError(
                f"rows of text beside rows of messages: {tokenizer.name} makes other tokens of a text behind "
                f"its BOS that is written out ({source.files[0]}); train on them in two runs, or write the "
                "messages as text"
            )


def _as_texts(job: Job, rows: Any, tokenizer: Any) -> Any:
    """Render the prompts of messages where there are prompts of text: TRL takes a batch of one kind."""
    from datasets import Value

    variables = job.trainer.get(VARIABLES) or job.setting(VARIABLES)
    given = variables if isinstance(variables, Mapping) else {}
    # A tokenizer that puts BOS before every text would write it twice.
    bos = tokenizer.bos_token or ""
    written = bos if tokenizer("")["input_ids"][:1] == [tokenizer.bos_token_id] else ""

    def render(row: dict[str, Any]) -> dict[str, str]:
        if row[_IS_TEXT]:
            return {"prompt": row["prompt"][0]["content"]}
        tools = row.get("tools")
        text: str = tokenizer.apply_chat_template(
            row["prompt"],
            tools=json.loads(tools) if isinstance(tools, str) else tools,
            tokenize=False,
            add_generation_prompt=True,
            **given,
        )
        return {"prompt": text.removeprefix(written)}

    features = rows.features.copy()
    features["prompt"] = Value("string")
    return rows.map(render, features=features).remove_columns([_IS_TEXT])


def _load(
    job: Job,
    source: Source,
    runner: Runner,
    *,
    flagged: bool,
    words: bool,
    around: text_ends.Writer | None,
) -> Any:
    """Load Parquet files through an Arrow file of the run folder, which the processes share."""
    from datasets import Dataset

    rows = Dataset.from_parquet(list(source.files), cache_dir=str(Path(job.run) / "data" / "cache"))
    if not isinstance(rows, Dataset):
        raise TypeError(f"{source.files}: not a dataset")
    rows = image_rows.as_stored(rows)
    if source.columns:
        rows = rows.select_columns(list(source.columns))
    if "rl" in runner.sections:
        rows = decoded(rows, source.files)
    if words:
        is_text = holds_text(source.files)
        rows = _worded(rows, around) if is_text else _marked(rows, is_text=False)
    rows = tokenized_rows.with_rule(rows, source.turns)
    return _wide(tokenized_rows.with_flags(rows) if flagged else rows)


def holds_text(files: Sequence[str]) -> bool:
    """Return whether the conversations in converted files are prerendered text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not files:
        return False
    schema = pq.read_schema(files[0])
    if {"segments", "completions", "replies", "input_ids"} & {*schema.names}:
        return False
    name = next((n for n in ("prompt", "messages", "text", "chosen") if n in schema.names), None)
    return name is not None and (
        pa.types.is_string(schema.field(name).type)
        or pa.types.is_large_string(schema.field(name).type)
    )


def _marked(rows: Any, *, is_text: bool) -> Any:
    return rows.add_column(_IS_TEXT, np.full(len(rows), is_text))


def _worded(rows: Any, around: text_ends.Writer | None) -> Any:
    """Give text conversations the shape of messages, for the identity template to render unchanged.

    `around` writes the special tokens into them that the trainer would put around text.
    """
    columns = [name for name in rows.column_names if name in {*CONVERSATION_COLUMNS, "text"}]
    strings = [name for name in columns if _is_text(rows.features[name])]
    first = next((name for name in strings if name in ("prompt", "text")), "")

    def written(name: str, text: str) -> str:
        return text if around is None else around(text, name == first, name != "prompt")

    def word(batch: dict[str, list[str]]) -> dict[str, list[list[dict[str, str]]]]:
        return {
            "messages" if name == "text" else name: [
                [{"role": _TEXT_ROLES.get(name, "assistant"), "content": written(name, text)}]
                for text in batch[name]
            ]
            for name in strings
        }

    dropped = [name for name in strings if name == "text"]
    return _marked(rows.map(word, batched=True, remove_columns=dropped), is_text=True)


def are_strings(rows: Any) -> bool:
    """Return whether the conversations of rows are text."""
    return any(
        _is_text(rows.features[name])
        for name in (*CONVERSATION_COLUMNS, "text")
        if name in rows.column_names
    )


def _is_text(feature: Any) -> bool:
    return getattr(feature, "dtype", None) in tokenized_rows.STRINGS


def _wide(rows: Any) -> Any:
    """Turn wide messages into JSON values, so that absent keys are absent and not null.

    A column of structs has every key in every message; templates take a null for a value, and the
    arguments of two tool calls would be merged.
    """
    wide = [
        n
        for n in rows.column_names
        if n in CONVERSATION_COLUMNS and len(_keys(rows.features[n])) > 2
    ]
    return _as_json(rows, wide, _message)


def in_parts(rows: Any, tokenizer: Any) -> Any:
    """Turn every content into a text part if the tokenizer's template renders nothing else.

    Templates of vision models read only parts; TRL makes parts of strings only for processors. Rows of
    prerendered text stay as they are: their template is another.
    """
    from fmtkit.rendering.content_parts import Form, in_form

    names = [
        n for n in rows.column_names if n in CONVERSATION_COLUMNS and not _is_text(rows.features[n])
    ]
    forms = forms_of_content(tokenizer) if names else None
    if forms is None or not forms.any(Form.PARTS):
        return rows
    return _as_json(
        rows, names, lambda m: json.dumps(in_form(m, forms), ensure_ascii=False), but=is_text_row
    )


def forms_of_content(tokenizer: Any) -> Forms:
    """Return which form of contents the chat template of a tokenizer takes."""
    from fmtkit.rendering.content_parts import forms_of

    return forms_of(_Transformers(tokenizer))


class _Transformers:
    """The chat template of a tokenizer, run by transformers itself."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def render(self, requests: Sequence[Request]) -> list[str | Refusal]:
        """Render conversations one by one."""
        return [self._render(request) for request in requests]

    def _render(self, request: Request) -> str | Refusal:
        from fmtkit.rendering.tracing import FAULTS, fault

        try:
            return str(self._tokenizer.apply_chat_template(list(request.messages), tokenize=False))
        except FAULTS as error:
            return fault(error)


def _as_json(
    rows: Any,
    names: Sequence[str],
    write: Callable[[dict[str, Any]], str],
    *,
    but: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> Any:
    """Turn the messages of some columns into JSON values, written as JSON text by `write`.

    Messages of rows of which `but` is true are written as they are.
    """
    from datasets import Json, List, Value

    if not names:
        return rows

    def written(batch: dict[str, list[Any]]) -> dict[str, list[list[str] | None]]:
        columns = list(batch)
        values = [dict(zip(columns, row, strict=True)) for row in zip(*batch.values(), strict=True)]
        writers = [_message if but(row) else write for row in values]
        return {
            name: [
                # A row of another table that was mixed in has no such messages.
                None if row[name] is None else [writer(message) for message in row[name]]
                for row, writer in zip(values, writers, strict=True)
            ]
            for name in names
        }

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
    return json.dumps(for_template(message), ensure_ascii=False)


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


def whole_conversations(rows: Any) -> Any:
    """Return rows with `messages` instead of prompt and completion; others unchanged.

    GKD's collator (TRL 1.16) reads `messages` and uses the last turn as the completion.
    """
    if "completion" not in rows.column_names:
        return rows
    if (
        len(
            {str(rows.features[name]) for name in rows.column_names if name in CONVERSATION_COLUMNS}
        )
        > 1
    ):
        narrow = [
            n for n in rows.column_names if n in CONVERSATION_COLUMNS and _keys(rows.features[n])
        ]
        rows = _as_json(rows, narrow, _message)
    features = rows.features.copy()
    kind = features.pop("completion")
    del features["prompt"]
    features["messages"] = kind

    def join(row: dict[str, Any]) -> dict[str, Any]:
        if row["completion"] is None:
            return {"messages": row["messages"]}
        return {"messages": [*row["prompt"], *row["completion"]]}

    return rows.map(join, remove_columns=["prompt", "completion"], features=features)


def rendered_conversations(rows: Any, tokenizer: Any) -> Any:
    """Return conversations as two messages that hold rendered text: all but the last turn, and the last.

    For GKD, whose collator renders all rows with one template: the identity template once these are text.
    """
    from datasets import Features, List, Value

    message = {"role": Value("string"), "content": Value("string")}

    def render(row: dict[str, Any]) -> dict[str, Any]:
        tools = row.get("tools")
        given = {
            "tools": json.loads(tools) if isinstance(tools, str) else tools,
            "tokenize": False,
            **(row.get(VARIABLES) or {}),
        }
        context = tokenizer.apply_chat_template(
            row["messages"][:-1], add_generation_prompt=True, **given
        )
        whole = tokenizer.apply_chat_template(row["messages"], **given)
        texts = (("user", context), ("assistant", whole.removeprefix(context)))
        return {"messages": [{"role": role, "content": text} for role, text in texts]}

    return rows.map(
        render, remove_columns=rows.column_names, features=Features({"messages": List(message)})
    )


def decoded(rows: Any, files: Sequence[str]) -> Any:
    """Parse the values of columns that hold canonical JSON."""
    import pyarrow.parquet as pq
    from datasets import Json

    for name in _json_columns([pq.read_schema(file) for file in files]):
        rows = rows.cast_column(name, Json())
    return rows


def put_together(parts: Sequence[Any]) -> Any:
    """Concatenate datasets; raise OptionError where a column holds different kinds of value.

    What is the same in two forms takes one: narrow and wide messages, hard and soft labels, numbers and
    texts of two sizes. A column that a dataset lacks is null in its rows; a margin is 0, as without one.
    Rows for a Gym also hold all their columns in a single one, so columns that clash are left out.
    """
    from datasets import concatenate_datasets

    if len(parts) == 1:
        return parts[0]
    parts = _with_margins(_unified(parts))
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


def _unified(parts: Sequence[Any]) -> list[Any]:
    """Give columns of different types the one that holds them all, where there is one."""
    out = list(parts)
    for name in _clashes(parts):
        kinds = _types(parts, name)
        if name in CONVERSATION_COLUMNS and all(map(_is_conversation, kinds)):
            out = [
                _as_json(part, [name], _message) if _keys(part.features.get(name)) else part
                for part in out
            ]
            continue
        common = _common(kinds)
        if common is not None:
            out = [p.cast_column(name, common) if name in p.column_names else p for p in out]
    return out


def _is_conversation(feature: Any) -> bool:
    return bool(_keys(feature)) or _holds_json(feature)


def _common(kinds: Sequence[Any]) -> Any:
    """Return the type to which numbers, labels or texts can be cast; None if there is none."""
    import pyarrow as pa
    from datasets import Features, List, Value

    if all(isinstance(kind, List) for kind in kinds):
        inner = _common([kind.feature for kind in kinds])
        return None if inner is None else List(inner)
    if not all(isinstance(kind, Value) for kind in kinds):
        return None
    types = [kind.pa_type for kind in kinds]
    if all(pa.types.is_boolean(t) or pa.types.is_floating(t) for t in types):
        return Value("float64")
    schemas = [pa.schema([("x", t)]) for t in types]
    try:
        common = pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowTypeError:
        return None
    return Features.from_arrow_schema(common)["x"]


def _with_margins(parts: Sequence[Any]) -> list[Any]:
    if not any("margin" in part.column_names for part in parts):
        return list(parts)
    return [
        part
        if "margin" in part.column_names
        else part.add_column("margin", np.zeros(len(part), dtype=np.float64))
        for part in parts
    ]


def _json_columns(schemas: Sequence[Any]) -> list[str]:
    marked = [f.name for schema in schemas for f in schema if _is_json(f)]
    return list(dict.fromkeys(marked))


def _is_json(field: Any) -> bool:
    from fmtkit.reading.keeping import JSON_FIELD

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

    if rows is None or not (has_text_rows(rows) or any(map(_holds_json, rows.features.values()))):
        return rows
    conversations = [name for name in rows.column_names if name in CONVERSATION_COLUMNS]
    kept = {name: rows.features[name] for name in ("label",) if name in rows.features}
    return rows.map(
        maybe_apply_chat_template,
        fn_kwargs={"processing_class": tokenizer},
        remove_columns=rows.column_names,
        features=Features({name: Value("string") for name in conversations} | kept),
    )


def _holds_json(feature: Any) -> bool:
    from datasets import Json

    return isinstance(getattr(feature, "feature", None), Json)
