"""The rows that a run of a config trains on and evaluates on, as ids and labels."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.tables import STEP_SEPARATOR
from fmtkit.diffing.prepared import Form
from fmtkit.masks.masked import Masked, TokenRow
from fmtkit.masks.masks import mask_row
from fmtkit.masks.token_origins import with_origins
from fmtkit.tokenizers.tokens import Tokenizer
from fmtkit.training.data import datasets
from fmtkit.training.data.loss_rules import LossRule
from fmtkit.training.planning.job import Job
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.run import run

_FORMS: Mapping[str, Form] = {
    "Conversation": "tokens",
    "Completion": "tokens",
    "Segments": "tokens",
    "Stepwise": "tokens",
    "Tokens": "tokens",
    "Preference": "pairs",
    "Unpaired": "replies",
}


@dataclass
class OwnRows:
    """The converted rows of a config: its job, and the outcome of the rows of its sources."""

    job: Job
    plan: Plan
    tokenizer: Tokenizer
    ledger: dict[str, int]
    """Rows by outcome, as in the reports of the conversions."""
    reasons: dict[str, int]
    """Bad rows by code."""
    fully_masked: int = 0
    """Rows of which no token is trained on."""

    def mixed(self) -> Iterator[Any]:
        """Yield the rows to train on, then those to evaluate on, as the dataset that a trainer is given."""
        from fmtkit.training.data.rows import mixed

        for sources in (self.job.train, self.job.evaluation):
            if sources:
                yield mixed(self.job, sources, self.plan.runner)


def form_of(plan: Plan) -> Form:
    """Return the form in which axolotl prepares what the method trains on.

    Raises OptionError for a method whose rows axolotl does not tokenize.
    """
    if plan.runner.head == "score":
        return "scores"
    table = next((table for table in plan.runner.tables if table in _FORMS), None)
    if table is None or "rewards" in plan.runner.needs:
        raise OptionError(
            f"{plan.source}: {plan.method} trains on replies that it samples, so axolotl prepares no "
            "tokens for it; compare takes configs of sft, of methods that train on preference pairs or "
            "labelled replies, and of reward models"
        )
    return _FORMS[table]


def converted(plan: Plan, folder: Path) -> OwnRows:
    """Convert the datasets of a plan into a folder, as its run does; `test_datasets` are left out.

    Raises what a run raises before its training process is started.
    """
    from fmtkit.training.building.build import load_tokenizer

    plan = replace(plan, run=folder, test_datasets=())
    text = plan.template_text()
    train, evaluation = datasets.prepare(plan, text)
    work = run.job_of(plan, train, evaluation, text)
    loaded = load_tokenizer(work)
    special = {name: str(value) for name, value in loaded.special_tokens_map.items()}
    templates = {} if loaded.chat_template is None else {"default": loaded.chat_template}
    tokenizer = Tokenizer(loaded.name_or_path, loaded.backend_tokenizer, special, templates)
    ledger: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for file in sorted((folder / "data").glob("*/report.json")):
        report = json.loads(file.read_text(encoding="utf-8"))
        for name in ("rows_read", "quarantined", "skipped", "filtered", "overlong_dropped"):
            ledger[name] = ledger.get(name, 0) + int(report.get(name) or 0)
        for code, count in report["reasons"].items():
            reasons[code] = reasons.get(code, 0) + count
    return OwnRows(work, plan, tokenizer, ledger, reasons)


def rows(own: OwnRows) -> Iterator[TokenRow]:
    """Yield the rows in the order of the sources, those to evaluate on last."""
    from fmtkit.training.data.tokenized_rows import RowTemplates, masking_of_row, table_of

    work, plan = own.job, own.plan
    longest = work.max_length
    kept = slice(longest)
    if longest and work.trainer.get("truncation_mode") == "keep_end":
        kept = slice(-longest, None)
    usual = replace(LossRule.of_job(work).masking(plan.method, longest), **_steps(work))
    templates = RowTemplates(own.tokenizer.chat_template, own.tokenizer.special_tokens)
    number = 0
    for dataset in own.mixed():
        for batch in dataset.iter(batch_size=256):
            for values in zip(*batch.values(), strict=True):
                row, masking = masking_of_row(dict(zip(batch, values, strict=True)), usual)
                table, template = table_of(row), templates.of(row)
                masked = mask_row(row, table, own.tokenizer, template, masking)
                if masked[0].origins is None:
                    masked = with_origins(masked, row, table, own.tokenizer, template)
                for one in _rows(masked, row, kept, number):
                    # TRL's SFTTrainer leaves such rows out; here they are kept and counted.
                    own.fully_masked += not one.trained
                    yield one
                number += 1


def _steps(work: Job) -> dict[str, Any]:
    options = work.settings.get("type_options")
    given = options if isinstance(options, dict) else {}
    return {
        "step_separator": str(given.get("step_separator", STEP_SEPARATOR)),
        "train_on_last_step_only": given.get("train_on_last_step_only") is True,
    }


def _rows(
    masked: tuple[Masked, ...], row: Mapping[str, Any], kept: slice, number: int
) -> list[TokenRow]:
    """Return the row of a pair's two sequences, or one for each part of a document."""
    made = tuple(one.cut(kept) for one in masked)
    if made[0].side == "chosen":
        return [TokenRow(made, number=number)]
    label = row.get("label")
    return [TokenRow((one,), None if label is None else bool(label), number) for one in made]
