"""Rows with images: what a plan knows of them and of the model, and what TRL's trainers cannot do."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa

from fmtkit.core.errors import OptionError
from fmtkit.tokenizers.turn_rule import USUAL_TURNS
from fmtkit.training.config import trl_defaults
from fmtkit.training.config.problems import Problem
from fmtkit.training.planning import weight_files
from fmtkit.training.planning.check import Run, advise, check_run
from fmtkit.training.planning.dataset_entries import turn_rule
from fmtkit.training.planning.image_facts import (
    NO_TOOLS,
    ONE_MASK,
    mixed,
    no_path,
    rows_with_images,
)
from fmtkit.training.planning.model_files import model_file
from fmtkit.training.planning.resolve import length_policy
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import TEST

PARTS = ("freeze_vision_tower", "freeze_multi_modal_projector", "freeze_language_model")
FREEZING = (*PARTS, "freeze_mm_modules")
"""Keys that freeze parts which only vision-language models have."""
SIZES = ("image_size", "image_max_pixels", "image_min_pixels", "image_resize_algorithm")
_OF_ROWS = (*SIZES, "processor_type", "processor_kwargs")
"""Keys that act on rows with images only."""
_REPLIES = ("completion", "chosen", "rejected")
_MARKS = re.compile(r"{%-?\s*generation\b")


def has_images(run: Run) -> bool:
    """Return whether a row that the plan has seen has an image."""
    unseen = any(rows.unseen_images for rows in run.first_rows.values())
    return unseen or any(rows_with_images(table) for table in _tables(run))


def is_vision_model(plan: Plan) -> bool | None:
    """Return whether the model takes images, by its config.json; None where that is not on this machine."""
    file = model_file(plan.model or "", "config.json")
    if file is None or weight_files.fault_of_file(file):
        return None
    facts = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(facts, Mapping):
        return None
    named = facts.get("architectures")
    if isinstance(named, list) and named and str(named[0]).endswith("ForCausalLM"):
        # What it is saved as has no vision tower, unless its own code says otherwise.
        return isinstance(facts.get("vision_config"), Mapping)
    marks = ("image_token_id", "image_token_index")
    return isinstance(facts.get("vision_config"), Mapping) or any(name in facts for name in marks)


UNMARKED = (
    "the chat template marks no replies ({% generation %}), and TRL has no variant of it that does: rows of "
    "messages with images cannot be masked; write rows of prompt and completion, or set train_on_inputs: true"
)
"""What is said of messages with images whose template does not say what is a reply."""


@check_run("image_model", "files", "rows with images for a model that takes text only")
def find_text_model(run: Run) -> Problem | None:
    """Return the problem of rows with images and a model without a vision tower."""
    if is_vision_model(run.plan) is not False or not has_images(run):
        return None
    text = f"base_model: the rows have images, and {run.plan.model} takes text only"
    return Problem("", text, "base_model", OptionError)


@check_run("image_method", "files", "rows with images for a method whose trainer ignores them")
def find_method(run: Run) -> Problem | None:
    """Return the problem of rows with images and a trainer that makes nothing of them."""
    if run.plan.runner.takes_images or not has_images(run):
        return None
    return Problem("", no_path(run.plan.runner), "rl", OptionError)


@check_run("image_mix", "files", "rows with and without images for a method that cannot mix them")
def find_mix(run: Run) -> Problem | None:
    """Return the problem of rows without images among rows with some, in what the plan has seen."""
    rows = [table.num_rows for table in _tables(run)]
    with_some = sum(map(rows_with_images, _tables(run)))
    if run.plan.runner.mixes_images or not 0 < with_some < sum(rows):
        return None
    text = mixed(run.plan.method, sum(rows) - with_some, sum(rows))
    return Problem("", text, "datasets", OptionError)


@check_run("image_reply", "files", "images in replies, which no trainer takes")
def find_in_replies(run: Run) -> Iterator[Problem]:
    """Yield columns of replies that have images: TRL takes those of the prompt only."""
    names = {n for table in _tables(run) for n in _REPLIES if _has_placeholder(table, n)}
    for name in sorted(names):
        text = f"datasets: {name} has images, and TRL's trainers take those of the prompt only"
        yield Problem("", text, "datasets", OptionError)


@check_run("image_mask", "files", "masks that TRL's collator of rows with images cannot make")
def find_mask(run: Run) -> Iterator[Problem]:
    """Yield choices of trained turns, and templates without marks, for messages with images."""
    plan = run.plan
    if plan.runner.mask != "completion" or not has_images(run):
        return
    for dataset in plan.datasets:
        if turn_rule(plan.config, dataset.entry) != USUAL_TURNS:
            yield Problem("", f"{dataset.name}: {ONE_MASK}", dataset.name, OptionError)
    for name in ("mask_template_tokens", "ignore_empty_think", "keep_reasoning"):
        if plan.config.get(name) not in (None, False):
            text = f"{name}: TRL's collator makes the masks of rows with images; leave it out"
            yield Problem("", text, name, OptionError)
    tables = [table for table in _tables(run) if "messages" in table.column_names]
    if not any(map(rows_with_images, tables)):
        return
    if plan.config.get("chat_template_kwargs"):
        text = "chat_template_kwargs: TRL's collator of messages with images passes none to the template"
        yield Problem("", text, "chat_template_kwargs", OptionError)
    if any(map(_has_tools, tables)):
        text = "datasets: TRL's collator does not render the tools of messages with images"
        yield Problem("", text, "datasets", OptionError)
    template = _template(plan)
    if template and not plan.trains_on_inputs and not is_marked(template):
        yield Problem("", f"chat_template: {UNMARKED}", "chat_template", OptionError)


@check_run("image_length", "files", "truncation of rows with images, which would cut images")
def find_truncation(run: Run) -> Problem | None:
    """Return the problem of rows that would be cut where their images may be."""
    policy = length_policy(run.plan.config)
    if not policy.startswith("truncate") or _is_unasked(run.plan) or not has_images(run):
        return None
    text = (
        "excess_length_strategy: a row that is cut may lose part of an image, at which the trainer fails; "
        "write drop"
    )
    return Problem("", text, "excess_length_strategy", OptionError)


def _is_unasked(plan: Plan) -> bool:
    """Return whether rows are cut as TRL's scripts do by default: then those with images are left out."""
    setting = plan.config.settings.get("excess_length_strategy")
    return setting is not None and setting.origin == trl_defaults.ORIGIN


@check_run(
    "image_batch", "files", "arguments of batches that TRL's collators of images do not have"
)
def find_batch(run: Run) -> Iterator[Problem]:
    """Yield arguments of batches that need rows to be tokenized before they are drawn, or that fail then."""
    given = run.plan.arguments
    tables = [table for table in _tables(run) if rows_with_images(table)]
    if not tables:
        return
    if given.sampling == "group_by_length":
        text = (
            "group_by_length: rows with images have no length before a batch is made; leave it out"
        )
        yield Problem("", text, "group_by_length", OptionError)
    is_prompted = any("messages" not in table.column_names for table in tables)
    if is_prompted and "rewards" not in run.plan.runner.needs and given.value("pad_to_multiple_of"):
        text = (
            "pad_to_multiple_of: TRL's collator of prompts with images has no such padding; leave it out, "
            "and context_parallel_size as well"
        )
        yield Problem("", text, "pad_to_multiple_of", OptionError)


@check_run("image_tokenizer", "files", "a tokenizer other than that of the model's processor")
def find_tokenizer(run: Run) -> Problem | None:
    """Return the problem of another tokenizer for rows with images."""
    named = run.plan.config.text("tokenizer_config")
    if named in {None, run.plan.model} or not has_images(run):
        return None
    text = (
        "tokenizer_config: rows with images are tokenized by the model's processor, which has its own "
        "tokenizer; leave it out"
    )
    return Problem("", text, "tokenizer_config", OptionError)


@check_run("image_keys", "files", "keys of images or of a vision tower that nothing has")
def find_idle_keys(run: Run) -> Iterator[Problem]:
    """Yield keys that freeze parts of a text model, and `skip_prepare_dataset` for rows of text."""
    config = run.plan.config
    if is_vision_model(run.plan) is False:
        for key in FREEZING:
            if config.get(key) is not None:
                text = (
                    f"{key}: {run.plan.model} is a text model, which has no such part; leave it out"
                )
                yield Problem("", text, key, OptionError)
    if config.is_true("skip_prepare_dataset") and _is_known(run) and not has_images(run):
        text = (
            "skip_prepare_dataset: the rows have no images, and fmtkit converts what it trains on; leave it "
            "out"
        )
        yield Problem("", text, "skip_prepare_dataset", OptionError)


def notes(run: Run) -> Iterator[str]:
    """Yield what the plan says of rows with images, and of keys that act on such rows only."""
    config, runner = run.plan.config, run.plan.runner
    if not has_images(run):
        idle = [key for key in _OF_ROWS if config.get(key) is not None]
        if idle and _is_known(run):
            yield f"{', '.join(idle)} change{'s' * (len(idle) == 1)} nothing: no row has an image"
        return
    if run.plan.adapter and not isinstance(config.get("lora_target_modules"), str):
        without = [
            what
            for key, what in zip(PARTS, ("vision tower", "projector"), strict=False)
            if config.get(key) is not False
        ]
        if without:
            yield (
                f"adapter: the {' and the '.join(without)} get{'s' * (len(without) == 1)} none; set "
                "freeze_vision_tower or freeze_multi_modal_projector to false for one"
            )
    if _is_unasked(run.plan) and run.plan.arguments.max_length is not None:
        yield (
            f"rows with images of more than {run.plan.arguments.max_length} tokens are left out and counted: "
            "TRL would cut them, at which its trainer fails; max_length: null keeps them"
        )
    if runner.mask == "completion" and run.plan.trains_on_inputs:
        yield "train_on_inputs: the placeholders of images are trained on as well: TRL masks padding only"


@advise("image_packing", "Packing is not supported for vision datasets", about="packed images")
def _packing(_: Plan) -> str:
    return "sample_packing: rows with images cannot be packed; set sample_packing: false"


@advise("image_padding", "Padding-free training is yet not supported for vision datasets")
def _padding(_: Plan) -> str:
    return "padding_free: rows with images need padding; leave it out"


@advise("image_reference", "`precompute_ref_log_probs=True` is not supported for vision datasets")
def _precomputed(_: Plan) -> str:
    return (
        "precompute_ref_log_probs: TRL's trainer does not compute them before the run for rows with images; "
        "leave it out"
    )


def is_marked(template: str) -> bool:
    """Return whether a template marks replies, or TRL knows a variant of it that does."""
    return bool(_MARKS.search(template)) or template in _known_to_trl()


@cache
def _known_to_trl() -> frozenset[str]:
    """Return the templates of which the installed TRL has a variant for training."""
    spec = find_spec("trl")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = [file for place in places for file in Path(place).glob("chat_templates/*.jinja")]
    names = {file.name for file in files}
    return frozenset(
        file.read_text(encoding="utf-8") for file in files if f"{file.stem}_training.jinja" in names
    )


def _template(plan: Plan) -> str | None:
    """Return the template that renders the rows; None where that of the model is not on this machine."""
    text = plan.template_text()
    if text is not None:
        return text
    folder = Path(plan.model or "").expanduser()
    if not (folder / "tokenizer.json").is_file():
        return None
    from fmtkit.tokenizers import tokens

    return tokens.load(folder).chat_template


def _is_known(run: Run) -> bool:
    """Return whether the plan has seen rows of every dataset."""
    seen = [rows for name, rows in run.first_rows.items() if not name.startswith(TEST)]
    return len(seen) == len(run.plan.datasets) and all(rows.error is None for rows in seen)


def _tables(run: Run) -> Iterable[pa.Table]:
    return [table for rows in run.first_rows.values() for table in rows.tables]


def _has_tools(table: pa.Table) -> bool:
    if "tools" not in table.column_names:
        return False
    return any(value not in NO_TOOLS for value in table.column("tools").to_pylist())


def _has_placeholder(table: pa.Table, name: str) -> bool:
    """Return whether messages of a column have parts of type image."""
    if name not in table.column_names or not pa.types.is_list(table.schema.field(name).type):
        return False
    column = table.select([name])
    return any(
        isinstance(part, Mapping) and part.get("type") == "image"
        for batch in column.to_batches(max_chunksize=64)
        for row in batch.to_pylist()
        for message in row[name] or ()
        for part in _parts(message)
    )


def _parts(message: object) -> Iterable[object]:
    if not isinstance(message, Mapping):
        return ()
    return [
        p for key in ("content", "parts") for p in message.get(key) or () if isinstance(p, Mapping)
    ]
