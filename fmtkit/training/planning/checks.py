"""Checks of a run before a model is loaded: each problem is one line, and exit code 2.

The model's folder is read as JSON, its tokenizer through `tokenizers`; torch is not imported.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fmtkit.core import hub_access
from fmtkit.core.errors import (
    FmtkitError,
    OptionError,
    TokenizerError,
    near_match,
)
from fmtkit.core.runner import Runner
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import hooks, weight_files
from fmtkit.training.planning.check import Run, check_run
from fmtkit.training.planning.job import Source
from fmtkit.training.planning.model_files import is_path, model_file
from fmtkit.training.planning.run_plan import Plan

if TYPE_CHECKING:
    import pyarrow as pa


_LOOK = 1000
"""Rows of a file that are checked where a few are enough."""
_PADS = ("<|pad|>", "<pad>", "[PAD]", "<|finetune_right_pad_id|>", "<|endoftext|>", "<unk>")
_HEADS = {
    "score": "ForSequenceClassification",
    "steps": "ForTokenClassification",
    "causal": "ForCausalLM",
}
_FILE_OF = {
    "tokenizer_config": "tokenizer_config.json",
    "lora_model_dir": "adapter_config.json",
}
"""Key -> the file that must be in the folder that it names; for a model, config.json."""
_WEIGHTS = (".safetensors", ".bin", ".index.json", ".pt", ".pth", ".gguf")
"""Endings of the files that a model's or an adapter's weights are in."""
_MODELS = ("base_model", "ref_model", "teacher_model", "tokenizer_config", "lora_model_dir")
_OWN_HEADS = frozenset(_HEADS.values())


@check_run("model", "files", "models, tokenizers and adapters that do not exist")
def find_absent_models(run: Run) -> Iterator[Problem]:
    """Yield models, tokenizers and adapters that do not exist; hub ids only where the hub may be queried."""
    named = [(key, name) for key in _MODELS if (name := run.plan.config.text(key)) is not None]
    named += [one for models in run.plan.runner.hooks(hooks.MODELS) for one in models(run.plan)]
    for key, name in named:
        if run.asks_hub or _is_here_if_anywhere(key, name) or Path(name).expanduser().exists():
            yield from _caught(key, lambda: _check_there(key, name, asks_hub=run.asks_hub))  # noqa: B023 - called at once


@check_run("head", "files", "a model with a head for a different task")
def find_head(run: Run) -> Iterator[Problem]:
    """Yield what in a model's config.json keeps the method from training it."""
    model = run.plan.model or ""
    file = model_file(model, "config.json")
    if file is not None:
        yield from _caught("base_model", lambda: _check_head(model, file, run.plan.runner))


@check_run("weights", "files", "weight files that are truncated or missing")
def find_weights(run: Run) -> Iterator[Problem]:
    """Yield local models whose weight files are incomplete."""
    for key in ("base_model", "ref_model", "teacher_model", "lora_model_dir"):
        name = run.plan.config.text(key)
        folder = Path(name or "").expanduser()
        if name is None or not (folder / _FILE_OF.get(key, "config.json")).is_file():
            continue
        fault = _fault_of_weights(folder, needed=run.trains_here)
        if fault is not None:
            yield Problem("", f"{key}: {name}: {fault}; copy or download it again", key)


@check_run(
    "tokenizer",
    "files",
    "tokenizers without a padding token, a chat template or a token that the config names, or with "
    "more tokens than the model has embeddings",
)
def find_tokenizer(run: Run) -> Iterator[Problem]:
    """Yield what a tokenizer lacks that the run needs."""
    named, model = run.plan.config.text("tokenizer_config"), run.plan.model or ""
    file = (
        model_file(named, _FILE_OF["tokenizer_config"])
        if named
        else model_file(model, "config.json")
    )
    # Of the hub's models whose config is here, the tokenizer may have to be loaded.
    if file is not None and (run.asks_hub or Path(named or model).expanduser().is_dir()):
        key = "tokenizer_config" if named else "base_model"
        yield from _caught(key, lambda: _check_tokenizer(run.plan, named or model))


def _caught(key: str, check: Callable[[], None]) -> Iterator[Problem]:
    """Yield the error of a check as a problem of a key."""
    try:
        check()
    except FmtkitError as error:
        yield Problem("", str(error), key, type(error))


def _fault_of_weights(folder: Path, *, needed: bool) -> str | None:
    """Return what is wrong with the weight files, or that there are none where they are needed locally."""
    faults = [weight_files.missing_shard(file) for file in sorted(folder.glob("*.index.json"))]
    faults += [weight_files.fault_of_file(f) for f in sorted(folder.glob("*.safetensors"))]
    if needed and not any(file.name.endswith(_WEIGHTS) for file in folder.iterdir()):
        faults.append("it holds no file of weights")
    return next(filter(None, faults), None)


@check_run("own_template", "files", "a user's template that fails or does not terminate")
def check_template(run: Run) -> None:
    """Raise TemplateError for a user's template that does not compile."""
    plan = run.plan
    name = plan.template[0]
    text = plan.config.text("chat_template_jinja") if name == "jinja" else None
    if text is None and not name.endswith((".jinja", ".j2")):
        return
    from fmtkit.rendering import template_sources

    template = (
        template_sources.find_model_template(name)
        if text is None
        else template_sources.recognised("chat_template_jinja", text, {})
    )
    # Compiled in its worker process, and tried: one that is fine for Jinja may be too deep for Python.
    _ = template.compiled.forms


@check_run("no_rows", "data", "no rows to train on", promise="there are rows to train on")
def find_no_rows(run: Run) -> str | None:
    """Report that no row is left to train on."""
    if _count(run):
        return None
    return f"no row is left to train on; {run.plan.run / 'data'}/*/report.json says why"


def _count(run: Run) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in run.files)


def needs_columns(run: Run) -> bool:
    """Return whether the method's trainer needs columns beside those of its table."""
    return bool(run.plan.runner.columns)


@check_run(
    "method_columns",
    "files",
    "local datasets without a column that the method's trainer needs",
    concerns=needs_columns,
)
def find_columns(run: Run) -> Iterator[Problem]:
    """Yield the datasets that lack a column which the method's trainer reads."""
    for name, rows in run.first_rows.items():
        if rows.columns is not None and name.startswith("datasets."):
            for column in sorted(run.plan.runner.columns - rows.columns):
                text = f"{name}: {run.plan.method} needs a column `{column}`, which {rows.source} has not"
                yield Problem("", text, name, OptionError)


@check_run(
    "method_nulls",
    "data",
    "rows whose column that the method's trainer needs is null",
    concerns=needs_columns,
    promise="the columns that the method needs are filled",
)
def find_nulls(run: Run) -> Iterator[str]:
    """Yield the columns that the method's trainer reads and some rows lack."""
    import pyarrow.parquet as pq

    for column in sorted(run.plan.runner.columns):
        tables = [pq.ParquetFile(file) for file in run.files]
        lacking = sum(
            one.read([column]).column(0).null_count
            if column in one.schema_arrow.names
            else one.metadata.num_rows
            for one in tables
        )
        if lacking:
            yield (
                f"{run.plan.method} needs `{column}` in each row, and {lacking:,} have none; fill it, or "
                f"leave them out by where: {column} is not null"
            )


def has_labels(run: Run) -> bool:
    """Return whether the method trains on the difference of its rows' labels."""
    return run.plan.runner.both_labels


def remarks(plan: "Plan", train: Sequence[Source]) -> list[str]:
    """Return notes on converted rows that do not prevent training."""
    import pyarrow.parquet as pq

    if not any(dataset.reading.is_text for dataset in plan.datasets):
        return []
    files = [file for source in train for file in source.files]
    tables = (
        pq.ParquetFile(file).read(columns=[n for n in _REPLIES if n in pq.read_schema(file).names])
        for file in files
    )
    return end_remark(plan, tables)


def end_remark(plan: "Plan", tables: Iterable["pa.Table"]) -> list[str]:
    """Return notes on text, among the first rows: replies that do not end, and a BOS that comes twice."""
    if not any(dataset.reading.is_text for dataset in plan.datasets):
        return []
    looked = list(tables)
    open_ended, count, end = _open_ended(plan, looked)
    twice = _doubled_bos(plan, looked)
    if not open_ended:
        return twice
    if plan.runner.text_ends:
        return [
            f"{open_ended} of {count} replies of text do not end with {end}: it is put behind them, as TRL's "
            f"trainer for {plan.method} does",
            *twice,
        ]
    return [
        f"{open_ended} of {count} replies of prerendered text do not end with {end}, and none is added: the "
        f"model does not learn to stop; set eos: '{end}' beside its path, or write it into the rows"
    ]


def mask_remarks(plan: "Plan", template: str | None) -> list[str]:
    """Return notes on the masks; `template` is the run's, None the tokenizer's."""
    makes = {dataset.table for dataset in plan.datasets}
    if plan.runner.mask != "completion" or plan.trains_on_inputs or "Completion" in makes:
        return []
    folder = Path(plan.tokenizer or "").expanduser()
    if template is None and folder.is_dir():
        from fmtkit.tokenizers import tokens

        template = tokens.load(folder).chat_template
    if template is None:
        return []
    from fmtkit.rendering import row_templates, template_sources, turn_spans

    source = template_sources.recognised("template", template, {})
    return [] if row_templates.RowTemplate(source).has_generation else [turn_spans.UNMARKED]


def _doubled_bos(plan: "Plan", tables: Iterable["pa.Table"]) -> list[str]:
    """Return a note on rows of text that begin with the BOS that is put before them."""
    from fmtkit.tokenizers import text_ends, tokens

    folder = Path(plan.tokenizer or "").expanduser()
    if plan.runner.text_ends != "text" or not folder.is_dir():
        return []
    loaded = tokens.load(folder)
    bos = loaded.special_tokens.get("bos_token")
    if bos is None or not text_ends.added_before(loaded).endswith(bos):
        return []
    texts = [
        text
        for table in tables
        for name in _BEGINNINGS
        if name in table.schema.names and str(table.schema.field(name).type) in _TEXT
        for text in table.column(name).slice(0, _LOOK).to_pylist()
    ]
    count = sum(text.startswith(bos) for text in texts)
    if not count:
        return []
    return [
        f"{count} of {len(texts)} rows of text begin with {bos}, and the tokenizer puts another before it, "
        "as in TRL; take it out of the rows"
    ]


_TEXT = ("string", "large_string")
_BEGINNINGS = ("prompt", "text")
_REPLIES = ("chosen", "completion", "text")


def _open_ended(plan: "Plan", tables: Iterable["pa.Table"]) -> tuple[int, int, str]:
    """Count replies among the first rows that do not end with the tokenizer's end of text."""
    from fmtkit.tokenizers import tokens

    folder = Path(plan.tokenizer or "").expanduser()
    end = tokens.load(folder).special_tokens.get("eos_token", "") if folder.is_dir() else ""
    unended = count = 0
    for table in tables if end else ():
        for name in _REPLIES:
            if name not in table.schema.names or str(table.schema.field(name).type) not in _TEXT:
                continue
            column = table.column(name).slice(0, _LOOK)
            count += len(column)
            unended += sum(not text.rstrip().endswith(end) for text in column.to_pylist())
    return unended, count, end


def _check_there(key: str, name: str, *, asks_hub: bool) -> None:
    path = Path(name).expanduser()
    if path.is_dir() and key == "lora_model_dir" and not (path / "adapter_config.json").is_file():
        raise OptionError(f"{key}: {name}: has no adapter_config.json")
    if path.is_dir() and key != "lora_model_dir" and not _is_model(path, key):
        raise OptionError(f"{key}: {name}: has no config.json, so it is not a model")
    if path.exists():
        return
    file = _FILE_OF.get(key, "config.json")
    if is_path(name) or _is_beside(name) or not asks_hub:
        if is_path(name) or hub_access.cached(name, file) is None:
            raise _absent(key, name)
        return
    _hub_file(key, name, file)


_OF_HUB = re.compile(
    r"(distil)?gpt2(-(medium|large|xl))?|openai-gpt|ctrl|(distil|al|cam|x?lm-)?(ro)?berta?(-[\w-]+)?|t5-[\w-]+"
    r"|xlnet-[\w-]+|xlm-[\w-]+|transfo-xl-wt103"
)
"""Models of the hub from before its names had an organisation: every other name has a slash."""


def _is_here_if_anywhere(key: str, name: str) -> bool:
    """Return whether a name cannot be one of the hub: it is a path, or one of no organisation."""
    if is_path(name) or _is_beside(name):
        return True
    return "/" not in name and (key == "lora_model_dir" or not _OF_HUB.fullmatch(name))


def _is_beside(name: str) -> bool:
    # runs/tiny beside a folder `runs` is a path, for which the hub is not asked.
    return "/" in name and Path(name).parent.is_dir()


def _absent(key: str, name: str) -> OptionError:
    """Return the error for a folder that does not exist, with the one that was probably meant."""
    path = Path(name).expanduser()
    beside = (
        [one.name for one in path.parent.iterdir() if one.is_dir()] if path.parent.is_dir() else []
    )
    near = near_match(path.name, beside)
    shown = name[: len(name) - len(path.name)] + near if near and name.endswith(path.name) else near
    hint = f"; did you mean {shown!r}?" if near else ""
    if not hint and "/" not in name:
        hint = "; a model of the hub is written ORG/NAME"
    return OptionError(f"{key}: {name}: no such folder{hint}")


def _is_model(path: Path, key: str) -> bool:
    return (path / _FILE_OF.get(key, "config.json")).is_file()


def _hub_file(key: str, name: str, file: str) -> Path:
    """Return a file of a model of the hub, its cache first; raise OptionError if there is none."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    trouble: str | None = None
    try:
        cached = try_to_load_from_cache(name, file)
        if isinstance(cached, str):
            return Path(cached)
        with hub_access.bounded() as trouble:
            return Path(hf_hub_download(name, file))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = trouble or (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise OptionError(
            f"{key}: {name}: no such folder here, and the hub did not provide its {file} ({reason})"
        ) from error


def _check_head(model: str, file: Path, runner: Runner) -> None:
    facts = _facts(model, file)
    right = _HEADS[runner.head]
    if runner.head == "causal" and facts.get("is_encoder_decoder") is True:
        raise OptionError(
            f"base_model: {model} is an encoder-decoder model; {runner.method} trains language models "
            "that have no encoder"
        )
    for architecture in facts.get("architectures") or ():
        ending = next((e for e in _OWN_HEADS if architecture.endswith(e)), None)
        if runner.head == "causal" and ending not in {None, right}:
            raise OptionError(
                f"base_model: {model} is a {architecture}; {runner.method} trains a language model"
            )
        if runner.head != "causal" and ending not in {None, right, "ForCausalLM"}:
            raise OptionError(
                f"base_model: {model} is a {architecture}; {runner.method} needs a {right} or "
                "a language model"
            )
        if runner.head == "score" and ending == right and len(facts.get("id2label", {0: 0})) != 1:
            labels = len(facts["id2label"])
            raise OptionError(
                f"base_model: {model} has a head of {labels} outputs; a reward model has 1"
            )


def _facts(model: str, file: Path) -> dict[str, Any]:
    """Read a model's config.json; raise OptionError for one that is not a JSON object."""
    fault = weight_files.fault_of_file(file)
    facts = None if fault else json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(facts, dict):
        raise OptionError(f"base_model: {model}: {fault or 'config.json holds no object'}")
    return facts


def _largest_id(tokenizer: Tokenizer, given: Mapping[str, object]) -> int:
    """Return the largest id that a text may contain: that of a plain token, BOS or EOS.

    Other added tokens may go unused: Gemma 3's tokenizer has one for images, its text model none.
    """
    names = ("pad_token", "eos_token", "bos_token")
    marks = [str(given.get(n) or tokenizer.special_tokens.get(n) or "") for n in names]
    ids = [tokenizer.backend.token_to_id(mark) or 0 for mark in marks]
    return max([*ids, *tokenizer.backend.get_vocab(False).values()])


def _check_vocabulary(plan: "Plan", name: str, largest: int) -> None:
    """Raise OptionError for a tokenizer with ids that the model has no embedding for."""
    file = Path(plan.model or "").expanduser() / "config.json"
    if plan.config.get("tokens") or not file.is_file() or weight_files.fault_of_file(file):
        # What `tokens` adds makes the embeddings grow; a config that is not JSON is recognised by its head.
        return
    facts = _facts(plan.model or "", file)
    text = facts.get("text_config")
    size = facts.get("vocab_size", text.get("vocab_size") if isinstance(text, dict) else None)
    if isinstance(size, int) and largest >= size:
        raise OptionError(
            f"base_model: {plan.model} has {size:,} embeddings, and the tokenizer of {name} has ids up "
            f"to {largest:,}: name the model's own tokenizer, or list the tokens that are new in tokens"
        )


def _check_tokenizer(plan: "Plan", name: str) -> None:
    from fmtkit.tokenizers import tokens

    folder = Path(name).expanduser()
    if folder.exists() and not (folder / "tokenizer.json").is_file():
        # A slow tokenizer: transformers converts it in the training process.
        return
    tokenizer = tokens.load(name)
    special = plan.config.get("special_tokens")
    given = special if isinstance(special, dict) else {}
    added = given.get("additional_special_tokens") or ()
    for key in ("pad_token", "eos_token", "bos_token"):
        text = given.get(key)
        if (
            text is not None
            and tokenizer.backend.token_to_id(str(text)) is None
            and not plan.config.get("tokens")
            and text not in added
        ):
            raise TokenizerError(
                f"special_tokens.{key}: {text!r} is not in the vocabulary of {name}"
            )
    ends = plan.config.get("eot_tokens")
    for text in ends if isinstance(ends, list) else ():
        if tokenizer.backend.token_to_id(str(text)) is None:
            raise TokenizerError(f"eot_tokens: {text!r} is not a token of {name}")
    _check_vocabulary(plan, name, _largest_id(tokenizer, given))
    eos = str(given.get("eos_token") or tokenizer.special_tokens.get("eos_token"))
    pad = given.get("pad_token") or tokenizer.special_tokens.get("pad_token")
    if pad is None:
        known = [t for t in _PADS if tokenizer.backend.token_to_id(t) is not None and t != eos]
        advice = (
            f"special_tokens: {{pad_token: '{known[0]}'}}" if known else "special_tokens.pad_token"
        )
        raise TokenizerError(f"{name}: the tokenizer has no pad token; set {advice}")
    if (
        plan.template[0] == "tokenizer_default"
        and tokenizer.chat_template is None
        and plan.runner.head != "steps"
    ):
        raise TokenizerError(
            f"{name}: the tokenizer has no chat template; set chat_template, such as chatml"
        )


def one_label(method: str, *, is_true: bool) -> str:
    """Return the warning for rows whose labels are all the same."""
    only = "true" if is_true else "false"
    return f"{method}: every label is {only}; it learns from the difference, and needs both"


@check_run(
    "labels",
    "data",
    "labels that are all the same, or fewer rows than one batch",
    concerns=has_labels,
    promise="labels of both kinds, in rows enough for a batch",
)
def find_labels(run: Run) -> Iterator[str]:
    """Yield what is wrong with the labels of all rows."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    plan, desirable, undesirable = run.plan, 0, 0
    for file in run.files:
        column = pq.read_table(file, columns=["label"]).column("label")
        true = pc.sum(column).as_py() or 0
        desirable, undesirable = desirable + true, undesirable + len(column) - true
    if not desirable + undesirable:
        return
    if not desirable or not undesirable:
        yield one_label(plan.method, is_true=bool(desirable))
    size = plan.arguments.batch_size or 0
    if plan.runner.whole_batch and desirable + undesirable < size:
        yield f"{plan.method}: {desirable + undesirable} rows are fewer than a batch of {size}"
