"""The Python API: what `import fmtkit` offers. A function named after a command does what that command does.

A source is a path, a glob, a folder, a URL, an open file, a pyarrow table, a polars DataFrame, a
`datasets.Dataset`, rows as dicts, or a list of these. Keyword arguments are the options of the command
(`fmtkit.options.convert_options`): the stub `fmtkit/__init__.pyi` is generated from them.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

import pyarrow as pa

from fmtkit import catalogue
from fmtkit.columns.strict_kinds import part_faults
from fmtkit.core import buffers
from fmtkit.core.arguments import checked
from fmtkit.core.errors import OptionError, RejectedRowsWarning, TemplateError, UnreadTurnsWarning
from fmtkit.core.options import keywords
from fmtkit.core.tables import WIDE_MESSAGE, final_rows
from fmtkit.options.convert_options import ConvertOptions, RowOptions
from fmtkit.options.diff_options import CompareOptions, DiffOptions
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.options.train_options import MergeOptions, TrainOptions, TryOptions
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.chat import render as render_conversations
from fmtkit.rendering.content_parts import TEXTS, cuts_of, in_form
from fmtkit.rendering.template_sources import TOKENIZER_DEFAULT, find_model_template, recognised
from fmtkit.running.conversions import RowStream, convert_to
from fmtkit.running.pipeline import Piece
from fmtkit.running.run_report import Report
from fmtkit.running.validation import Finding, Findings, finding_of, validate_sources
from fmtkit.sources.canonical_json import canonical
from fmtkit.stages.text_stage import render_table
from fmtkit.tokenizers.tokens import load as load_tokenizer
from fmtkit.writing.formats import compression_of

if TYPE_CHECKING:
    from fmtkit.diffing.result import Diff
    from fmtkit.inspection.survey_record import Survey
    from fmtkit.locking.lock_file import Lock
    from fmtkit.locking.locking import Check
    from fmtkit.training.run.run import Outcome
    from fmtkit.training.trained.merging import Merged
    from fmtkit.training.trained.trying import Trial

Source = object
Rejects = list[Finding]


@keywords(ConvertOptions, without=("config",))
def convert(
    source: Source, type: str, out: str | Path | None = None, *, options: ConvertOptions
) -> Report:
    """Convert a source to a file or a folder.

    Args:
        source: A path, glob, folder, URL, open file, table, DataFrame, dataset or rows.
        type: TEMPLATE.SOURCE, such as `chatml.intel`; `fmtkit.types()` lists them.
        out: FILE.parquet, .jsonl or .arrow, or a folder; None writes nothing and returns the report
            of such a run.

    Returns:
        The report, with each of its keys as an attribute (`report.rows_written`).

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError: before anything is read or written.
        SourceError, WriteError: if a source cannot be read, or `out` cannot be written.
        LimitError: if more rows are bad than `max_errors` or `on_error="fail"` allows.
        NothingWrittenError: if no row could be converted.

    Example:
        >>> fmtkit.convert("pairs.jsonl", "chatml.intel", "pairs.parquet").rows_written  # doctest: +SKIP
    """
    source = _given(source)
    if out is not None:
        return convert_to(source, out, options)
    # Nothing is written, but a format or compression that cannot be written is still an error.
    compression_of(options.format or "parquet", options.compression)
    rows = RowStream(source, options)
    for _ in rows:
        pass
    return rows.report()


@keywords(RowOptions)
def read(
    source: Source, type: str, *, rejects: Rejects | None = None, options: RowOptions
) -> Iterator[pa.RecordBatch]:
    """Iterate over the converted rows as record batches of one schema, in input order, in bounded memory.

    Bad rows are left out; after the last batch, a RejectedRowsWarning counts them by code.

    Args:
        source: As in `convert`.
        type: As in `convert`.
        rejects: A list to which a finding (file, row, line, code, column, message) is added for each
            bad row.

    Returns:
        An iterator of record batches.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, SourceError: as in `convert`.
        LimitError: if more rows are bad than `max_errors` or `on_error="fail"` allows.

    Example:
        >>> for batch in fmtkit.read("pairs.jsonl", "intel"): ...  # doctest: +SKIP
    """
    return _batches(RowStream(_given(source), options), rejects)


def _given(source: Source) -> Source:
    """Return a source; an empty list is one without rows, which on the command line is a missing argument."""
    return iter(()) if isinstance(source, list | tuple) and not source else source


def _batches(rows: RowStream, rejects: Rejects | None) -> Iterator[pa.RecordBatch]:
    for piece in rows:
        _collect(rows, piece, rejects)
        yield from final_rows(piece.table).to_batches()
    _warn(rows, rejects, "read")


@keywords(RowOptions)
def table(
    source: Source, type: str, *, rejects: Rejects | None = None, options: RowOptions
) -> pa.Table:
    """Return all converted rows as one table.

    Bad rows are left out, and a RejectedRowsWarning counts them by code. An UnreadTurnsWarning names
    columns with turns that the type does not read.

    Args:
        source: As in `convert`.
        type: As in `convert`.
        rejects: A list to which a finding (file, row, line, code, column, message) is added for each
            bad row.

    Returns:
        The rows; an empty table with their schema if there are none.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, SourceError: as in `convert`.
        LimitError: if more rows are bad than `max_errors` or `on_error="fail"` allows.

    Example:
        >>> fmtkit.table([{"question": "q", "chosen": "a", "rejected": "b"}], "intel").num_rows
        1
    """
    rows = RowStream(_given(source), options)
    pieces = []
    for piece in rows:
        _collect(rows, piece, rejects)
        pieces.append(final_rows(piece.table))
    _warn(rows, rejects, "table")
    return pa.concat_tables(pieces) if pieces else buffers.empty_table(rows.job.schema)


def _collect(rows: RowStream, piece: Piece, rejects: Rejects | None) -> None:
    if rejects is not None:
        name = rows.job.sources[piece.source].name
        rejects += (finding_of(name, reject) for reject in piece.rejects)


def _warn(rows: RowStream, rejects: Rejects | None, function: str) -> None:
    """Warn of rows that are left out although no option asked for it, and of columns of unread turns."""
    ledger = rows.ledger
    # The frames up to the caller: the generator or the function, and its wrapper.
    level = 4 if function == "table" else 3
    if ledger.unread:
        names = ", ".join(f"{name} {count:,}" for name, count in sorted(ledger.unread.items()))
        warn(
            f"columns with turns are not read, rows by column: {names}; use a type that reads them "
            "(fmtkit.inspect), or name them in map or keep",
            UnreadTurnsWarning,
            stacklevel=level,
        )
    lost = ledger.quarantined + ledger.no_pair
    if not lost:
        return
    codes = dict(ledger.reasons.most_common()) | {"no_pair": ledger.no_pair}
    counts = ", ".join(f"{code} {count:,}" for code, count in codes.items() if count)
    where = "" if rejects is not None else f"; fmtkit.{function}(..., rejects=LIST) collects them"
    warn(
        f"{lost:,} of {ledger.rows_read:,} rows are left out ({counts}){where}",
        RejectedRowsWarning,
        stacklevel=level,
    )


@keywords(RowOptions, without=("on_error",))
def validate(
    source: Source, type: str | None = None, *, schema: bool = False, options: RowOptions
) -> Findings:
    """Read and check a source without writing anything.

    Args:
        source: As in `convert`.
        type: As in `convert`; None for canonical rows.
        schema: Also check the canonical rows against their JSON Schema.

    Returns:
        All findings, with the ledger and an exit code.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, SourceError: as in `convert`.

    Example:
        >>> [found.code for found in fmtkit.validate([{"question": "q"}], "gsm8k").items]
        ['missing_field']
    """
    return validate_sources(_given(source), options, schema=schema)


@keywords(InspectOptions, without=("config",))
def inspect(source: Source, type: str | None = None, *, options: InspectOptions) -> "Survey":
    """Survey a source: its type, token lengths, masks and findings.

    Args:
        source: As in `convert`.
        type: As in `convert`; None for the type that fits best.

    Returns:
        The survey as an object; `survey.as_dict()` is what `fmtkit inspect --json` prints.

    Raises:
        OptionError, UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError: before
            rows are read.
        SourceError: if a source cannot be read.

    Example:
        >>> fmtkit.inspect("pairs.jsonl", tokenizer="./model").rows  # doctest: +SKIP
    """
    from fmtkit.inspection.inspection import run

    return run(_given(source), options).survey


NOT_OF_A_LOCK = ("sample", "show_mask", "rows", "loss_budget")


@keywords(InspectOptions, without=NOT_OF_A_LOCK)
def lock(
    source: Source,
    out: str | Path,
    type: str | None = None,
    *,
    overwrite: bool = False,
    row_digests: bool = False,
    options: InspectOptions,
) -> "Lock":
    """Write what a dataset is into a small file for git, which `check` compares later.

    Args:
        source: Paths, globs, folders or URLs; an empty list with `config`.
        out: The lock to write, such as `data.lock`.
        type: As in `convert`; None for the type that fits best.
        overwrite: Whether a lock at `out` is replaced; its budgets are kept.
        row_digests: Whether the digest of every row is written beside it, as OUT.rows.

    Returns:
        The lock: its `datasets`, `budgets` and `versions`.

    Raises:
        OutputExistsError: if `out` exists already.
        OptionError: if the source is not a file, no type fits it, or the template writes the date.
        UnknownNameError, ColumnMismatchError, TemplateError, TokenizerError, SourceError: as `inspect`.

    Example:
        >>> fmtkit.lock("pairs.jsonl", "pairs.lock", "intel").datasets[0]["counts"]  # doctest: +SKIP
    """
    from fmtkit.locking.locking import lock as write_lock

    return write_lock(source, out, options, overwrite=overwrite, row_digests=row_digests)


@keywords(InspectOptions, without=(*NOT_OF_A_LOCK, "config"))
def check(
    lock: str | Path,
    *,
    data: str | Path | Sequence[str | Path] = (),
    update: bool = False,
    options: InspectOptions,
) -> "Check":
    """Compare a dataset with its lock.

    Args:
        lock: The file that `lock` wrote.
        data: Sources to read instead of those of the lock.
        update: Whether the state of today is written into the lock; budgets are kept.

    Returns:
        The check: its `changes`, each with what changed, where and why, and an `exit_code`.

    Raises:
        OptionError, UnknownNameError: if the file is no lock, of another version, or was edited by hand.
        SourceError, TokenizerError, TemplateError: if what the lock names cannot be read.

    Example:
        >>> fmtkit.check("pairs.lock").is_same  # doctest: +SKIP
        True
    """
    from fmtkit.locking.locking import check as check_lock

    named = [data] if isinstance(data, str | Path) else data
    return check_lock(lock, data=[*map(str, named)], update=update, options=options)


@checked
def render(
    batch: "pa.Table | pa.RecordBatch | Sequence[Mapping[str, Any]]",
    template: str | ChatTemplate | None = None,
    *,
    tokenizer: Any = None,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
) -> pa.Table | str:
    r"""Render canonical rows of messages as rows of text, or a single list of messages as a string.

    The text is the same as that of transformers' `apply_chat_template(..., tokenize=False)`.

    Args:
        batch: A canonical table of messages, or a list of `{"role": ..., "content": ...}`,
            whose content is a string or a list of text parts; `tool_calls` are dicts, with arguments
            as a dict or as JSON text.
        template: A name (`fmtkit templates`), a FILE.jinja, or a loaded `ChatTemplate`; None for
            the template of the tokenizer.
        tokenizer: A folder, a hub id, or a transformers tokenizer; its special tokens are variables
            of the template.
        tools: JSON Schemas of the functions that the conversation may call; a table has a column of them.
        add_generation_prompt: Whether to end the text with the beginning of an assistant reply.

    Returns:
        A table for a table, a str for a conversation.

    Raises:
        TemplateError: if the template fails on a row, which is named, or a message has an unknown key.
        UnknownNameError: if there is no such template.
        OptionError: if `batch` is neither, or tools or a generation prompt are given with a table.

    Example:
        >>> fmtkit.render([{"role": "user", "content": "Hi"}], "chatml", add_generation_prompt=True)
        '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    """
    found = _template(template, tokenizer, tools)
    if not isinstance(batch, pa.Table | pa.RecordBatch):
        is_list = isinstance(batch, Sequence) and not isinstance(batch, str | bytes)
        if not is_list or not all(isinstance(message, Mapping) for message in batch):
            raise OptionError(
                f"render: {batch!r:.60} is no conversation; give a table, or a list of messages such as "
                '[{"role": "user", "content": "Hi"}]'
            )
        return _conversation(batch, found, tools, add_generation_prompt=add_generation_prompt)
    if tools is not None or add_generation_prompt:
        raise OptionError(
            "tools and add_generation_prompt are for a list of messages: a table has a column of "
            "tools, and its prompts always end with the generation prompt"
        )
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    done = render_table(table, found)
    if done.failures:
        first = done.failures[0]
        raise TemplateError(f"row {first.row}: {first.code}: {first.message}")
    return done.table


def _template(
    template: str | ChatTemplate | None,
    tokenizer: Any,
    tools: Sequence[Mapping[str, Any]] | None,
) -> ChatTemplate:
    """Return a template with the special tokens of a tokenizer."""
    if template is None and tokenizer is None:
        raise OptionError("give a template or a tokenizer that has one")
    if tokenizer is None or isinstance(tokenizer, str | Path):
        if isinstance(template, ChatTemplate):
            tokens = load_tokenizer(tokenizer).special_tokens if tokenizer is not None else {}
            return template.with_tokens(tokens)
        return find_model_template(template or TOKENIZER_DEFAULT, tokenizer=tokenizer)
    if not hasattr(tokenizer, "get_chat_template"):
        raise OptionError(
            f"tokenizer: {tokenizer.__class__.__name__} is not a folder, hub id or transformers tokenizer"
        )
    special = {k: v for k, v in tokenizer.special_tokens_map.items() if isinstance(v, str)}
    if template is not None:
        found = find_model_template(template) if isinstance(template, str) else template
        return found.with_tokens(special)
    try:
        source = tokenizer.get_chat_template(tools=tools)
    except ValueError as error:
        raise TemplateError(f"the tokenizer has no chat template: {error}") from error
    return recognised(f"the template of {tokenizer.name_or_path}", source, special)


def _conversation(
    messages: Sequence[Mapping[str, Any]],
    template: ChatTemplate,
    tools: Sequence[Mapping[str, Any]] | None,
    *,
    add_generation_prompt: bool,
) -> str:
    contents = [message.get("content") for message in messages]
    fault = next((f for i, c in enumerate(contents) for f in part_faults(c, f"[{i}]")), None)
    if fault is not None:
        raise TemplateError(f"{fault.code}: messages{fault.message}")
    written = [_written(message, f"messages[{i}]") for i, message in enumerate(messages)]
    conversations = pa.array(
        [[in_form(message, TEXTS) for message in written]], pa.list_(WIDE_MESSAGE)
    )
    done = render_conversations(
        template,
        conversations,
        add_generation_prompt=add_generation_prompt,
        tools=None if tools is None else pa.array([_tools_as_text(tools)]),
        cuts={0: cuts_of(contents)},
    )
    if done.failures:
        raise TemplateError(f"{done.failures[0].code}: {done.failures[0].message}")
    return str(done.text[0].as_py())


def _tools_as_text(tools: Sequence[Mapping[str, Any]]) -> str:
    wrong = [tool for tool in tools if not isinstance(tool, Mapping)]
    if wrong:
        raise OptionError(f"render: tools: {wrong[0]!r:.60} is no JSON Schema; give mappings")
    try:
        return canonical(list(tools))
    except TypeError as error:
        raise OptionError(f"render: tools: {error}") from error


def _written(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a message as it is in a table: tool calls as JSON text, their arguments as JSON objects."""
    unknown = [str(key) for key in message if key not in WIDE_MESSAGE.names]
    if unknown:
        raise TemplateError(
            f"{path}.{unknown[0]}: not a key of a message; the keys are {', '.join(WIDE_MESSAGE.names)}"
        )
    calls = message.get("tool_calls")
    if calls is None or isinstance(calls, str):
        return dict(message)
    return {**message, "tool_calls": canonical([_call(call, path) for call in calls])}


def _call(call: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    inner = call.get("function")
    if isinstance(inner, Mapping):
        return {**call, "function": _call(inner, path)}
    arguments = call.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        return {**call, "arguments": json.loads(arguments)}
    except ValueError as error:
        raise TemplateError(f"{path}.tool_calls: arguments are not JSON: {error}") from error


@checked
def types(name: str | None = None) -> list[dict[str, Any]]:
    """List the types.

    Args:
        name: A type's name; None for all.

    Returns:
        One dict per converter, with its name, columns, table, options and url, among others.

    Raises:
        UnknownNameError: if there is no such type.

    Example:
        >>> fmtkit.types("gsm8k")[0]["table"]
        'Completion'
    """
    return catalogue.types(name)


@keywords(TrainOptions)
def train(
    config: str | Path | Mapping[str, Any],
    *,
    say: Callable[[str], None] | None = None,
    options: TrainOptions,
) -> "Outcome":
    """Train a model from a config; with `dry_run` only plan the run, with `prepare` only convert its data.

    Args:
        config: A YAML file, or its keys as a mapping.
        say: A function that is called with each note on the plan and on the rows.

    Returns:
        The outcome: its `plan`, its `exit_code`, and the `report` if the run was completed.

    Raises:
        UnknownNameError, OptionError, DependencyError, TokenizerError, SourceError: before a
            training process is started; later errors are on stderr and in the exit code.

    Example:
        >>> fmtkit.train("dpo.yaml", dry_run=True).plan.method  # doctest: +SKIP
    """
    from fmtkit.training import train as run

    return run(config, say=say, **options.given())


@keywords(MergeOptions)
def merge(
    run: str | Path | None = None, out: str | Path | None = None, *, options: MergeOptions
) -> "Merged":
    """Merge the adapter of a run, or any PEFT adapter, into its base model.

    The base model is loaded again in full precision, even if the run quantized it. Weights, tokenizer,
    chat template and model card are written to a temporary folder, which is renamed at the end.

    Args:
        run: The run folder; None if `adapter` is given.
        out: The folder to write; None for RUN/merged.

    Returns:
        What was written: `folder`, `base`, `adapter`, `dtype` and the number of `parameters`.

    Raises:
        OptionError: if there is no adapter (all weights were trained), the base model cannot be found or
            the adapter does not fit it.
        ResumeError, UnknownNameError: if the folder is not a run, or there is no such checkpoint.
        OutputExistsError, WriteError: if `out` already exists, or cannot be written.

    Example:
        >>> fmtkit.merge("runs/dpo", dtype="bfloat16").folder  # doctest: +SKIP
    """
    from fmtkit.training.trained.merging import merge as merge_run

    return merge_run(run, **options.given())


@keywords(DiffOptions)
def diff(
    config: str | Path | Mapping[str, Any],
    other: str | Path | Mapping[str, Any] | None = None,
    *,
    options: DiffOptions,
) -> "Diff":
    """Compare what a config trains on with another trainer, config, version or prepared dataset.

    Args:
        config: A YAML file, or its keys as a mapping.
        other: A second config; with `against` the other trainer is given this one.

    Returns:
        The diff: the numbers of `rows` by result and of differences by rule (`rules`), the share of the
        trained tokens that they change (`shares`), `examples`, `is_equal`, and an `exit_code`.

    Raises:
        DependencyError: if no Python has the other trainer.
        OptionError: if it refuses the rows, or the tokenizers have different vocabularies.
        SourceError: if prepared or recorded rows cannot be read.
        UnknownNameError, TokenizerError: and the other errors that `fmtkit.train` raises before training.

    Example:
        >>> fmtkit.diff("dpo.yaml", against="trl").rules  # doctest: +SKIP
        {'eos': 12}
    """
    from fmtkit.diffing.diffing import diff as diff_rows

    return diff_rows(config, other, options)


@keywords(CompareOptions)
def compare(
    config: str | Path | Mapping[str, Any], against: str | Path, *, options: CompareOptions
) -> "Diff":
    """Compare what a config trains on with the dataset that axolotl prepared for it: `diff` with a folder.

    Rows are aligned by content: their order does not matter, and packed rows are unpacked.

    Args:
        config: A YAML file, or its keys as a mapping.
        against: The folder that axolotl saved: `last_run_prepared/HASH`.

    Returns:
        The diff, whose right side is the prepared dataset.

    Raises:
        SourceError: if the folder contains no dataset, or one that cannot be read.
        OptionError: if it was made for another method or with another tokenizer, or none of its rows
            match those of the config.
        UnknownNameError, TokenizerError: and the other errors that `fmtkit.train` raises before training.

    Example:
        >>> fmtkit.compare("dpo.yaml", "last_run_prepared/8f0c").rules  # doctest: +SKIP
        {'turn_lost': 12}
    """
    from fmtkit.diffing.diffing import compare as compare_rows

    return compare_rows(config, against, **options.given())


@keywords(TryOptions)
def try_run(run: str | Path, *, options: TryOptions) -> "Trial":
    """Compare the trained model of a run with its base model, with the run's chat template.

    Both models answer prompts. Pairs and single replies are scored by the head of a reward model, or
    else by their log-probabilities and, if the method has a reference model, by their implicit rewards
    (beta times the difference of the log-probabilities). A process reward model scores steps.

    Args:
        run: The run folder; for an unfinished run, the newest complete checkpoint is used.

    Returns:
        The trial: its `items`, one per row with `base` and `trained`, and a `summary` of accuracies and
        margins.

    Raises:
        OptionError: if the rows do not suit the model, or nothing has been trained yet.
        ResumeError, UnknownNameError: if the folder is not a run, or there is no such checkpoint.
        SourceError, ColumnMismatchError: as in `convert`, for the rows.

    Example:
        >>> fmtkit.try_run("runs/dpo", prompt="Who are you?").items[0].trained["answer"]  # doctest: +SKIP
    """
    from fmtkit.training.trained.trying import try_run as tried

    return tried(run, options)
