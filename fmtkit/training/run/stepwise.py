"""Process reward models: steps to token ids, labels on the separators, plain token classification.

TRL's own trainer for this is gone after 1.13; the task is that of `transformers.Trainer`.
"""

from typing import Any

from fmtkit.core.errors import OptionError
from fmtkit.core.tables import STEP_SEPARATOR
from fmtkit.training.building.build import Parts, load_class, trainer_inputs
from fmtkit.training.planning.job import Job
from fmtkit.training.planning.types import DEFAULT_LENGTH


def build_trainer(job: Job, parts: Parts) -> Any:
    """Make a trainer of a token classifier over tokenized steps."""
    from transformers import DataCollatorForTokenClassification

    parts.train = tokenized(parts.train, parts.tokenizer, job)
    if parts.evaluation is not None:
        parts.evaluation = tokenized(parts.evaluation, parts.tokenizer, job)
    if parts.peft is not None:
        from peft import get_peft_model

        parts.model = get_peft_model(parts.model, parts.peft)
    parts.model.config.pad_token_id = parts.tokenizer.pad_token_id
    trainer_class = load_class(parts.runner.trainer)
    inputs = trainer_inputs(job, parts, trainer_class)
    inputs.pop("peft_config", None)
    collator = DataCollatorForTokenClassification(parts.tokenizer)
    return trainer_class(**inputs, data_collator=collator)


def tokenized(rows: Any, tokenizer: Any, job: Job) -> Any:
    """Return rows of `input_ids` and `labels`; a step's label is on its last separator."""
    separator = _separator(job, tokenizer)
    last_only = _option(job, "train_on_last_step_only") is True
    maximum = DEFAULT_LENGTH if job.max_length is None else job.max_length
    longest = _option(job, "max_completion_length")

    def encode(row: dict[str, Any]) -> dict[str, list[int]]:
        ids, labels = step_ids(
            tokenizer,
            row["prompt"],
            row["completions"],
            row["step_labels"],
            separator,
            last_only=last_only,
        )
        if isinstance(longest, int):
            start = len(_prompt_ids(tokenizer, row["prompt"]))
            ids, labels = ids[: start + longest], labels[: start + longest]
        return {"input_ids": ids[:maximum], "labels": labels[:maximum]}

    # A column that keeps its name keeps its type: labels of tokens would be cast to true and false.
    rows = rows.rename_column("labels", "step_labels")
    out = rows.map(encode, remove_columns=rows.column_names)
    kept = out.filter(lambda row: any(label != -100 for label in row["labels"]))
    if len(kept) == 0:
        raise OptionError(
            f"every row is longer than {maximum} tokens before its first step ends; raise "
            "sequence_len"
        )
    return kept


def step_ids(
    tokenizer: Any,
    prompt: str,
    steps: list[str],
    labels: list[Any],
    separator: list[int],
    *,
    last_only: bool = False,
) -> tuple[list[int], list[int]]:
    """Return the ids of prompt and steps, and -100 everywhere but at the end of each step.

    A soft label counts as right from 0.5.
    """
    ids = _prompt_ids(tokenizer, prompt)
    marks = [-100] * len(ids)
    for index, (step, label) in enumerate(zip(steps, labels, strict=True)):
        inside = tokenizer(step, add_special_tokens=False)["input_ids"] + separator
        trained = not last_only or index == len(steps) - 1
        mark = int(float(label) >= 0.5) if trained else -100
        ids = ids + inside
        marks = marks + [-100] * (len(inside) - 1) + [mark]
    return ids, marks


def _prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    ids: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]
    return ids if tokenizer.bos_token_id is None else [tokenizer.bos_token_id, *ids]


def _separator(job: Job, tokenizer: Any) -> list[int]:
    text = _option(job, "step_separator")
    ids: list[int] = tokenizer(
        STEP_SEPARATOR if text is None else str(text), add_special_tokens=False
    )["input_ids"]
    if not ids:
        raise OptionError("step_separator: has no token in this vocabulary")
    return ids


def _option(job: Job, name: str) -> object:
    """Return an option of the first dataset's type."""
    options = job.settings.get("type_options")
    return options.get(name) if isinstance(options, dict) else None
