"""Samples during training: prompts of the run's rows that the model answers at each evaluation.

They join the table of answers that online methods keep, and the pages that are made of it.
"""

import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.training.building.build import Parts
from fmtkit.training.data.loss_rules import LossRule
from fmtkit.training.data.tokenized_rows import (
    RowTemplates,
    adapted,
    masking_of_row,
    table_of,
)
from fmtkit.training.online import samples_page
from fmtkit.training.online.samples import FILE, Row, SampleTable
from fmtkit.training.planning.job import Job
from fmtkit.training.planning.sampling import KEY, TEMPERATURE, TOKENS, count_of
from fmtkit.training.trained.answering import answer, ends_of

MOST = 128
"""Tokens of an answer where no key says another number."""


def install(trainer: Any, work: Job, parts: Parts) -> None:
    """Let a trainer answer prompts at each evaluation, where the configuration asks for it.

    Raises OptionError where none of the rows has a prompt.
    """
    count = count_of(work.setting)
    if not count:
        return
    asked = list(_prompts(work, parts, count))
    if not asked:
        raise OptionError(f"{KEY}: no row to evaluate on, or to train on, has a prompt to answer")
    table = SampleTable(Path(work.run) / FILE, after=_resumed(work))
    trainer.add_callback(_callback(_Sampler(table, trainer, parts, asked, work)))


class _Prompt:
    """A prompt as it reaches the model, and the reply of its row; None where that is no good one."""

    def __init__(self, text: str, ids: list[int], reference: str | None) -> None:
        self.text = text
        self.ids = ids
        self.reference = reference


def _prompts(work: Job, parts: Parts, count: int) -> Iterator[_Prompt]:
    """Yield prompts of the first rows that have one: all before the first token that is trained on."""
    from fmtkit.masks.masks import mask_row

    tokenizer = parts.tokenizer
    own = adapted(tokenizer)
    templates = RowTemplates(tokenizer.chat_template, own.special_tokens)
    # Not by the keys of the run: prompts that are trained on as well are prompts all the same.
    usual = LossRule().masking(work.method)
    found = 0
    for raw in parts.first_rows:
        row, masking = masking_of_row(raw, usual)
        try:
            one = mask_row(row, table_of(row), own, templates.of(row), masking)[0]
        except FmtkitError:
            # A row that the trainer leaves out or refuses is told of there.
            continue
        ids = one.ids.tolist()
        length = one.prompt_length
        if one.rule == "everything":
            # Of text without a prompt its first half is one.
            length = len(ids) // 2
        if not 0 < length < len(ids):
            continue
        prompt, reply = (
            tokenizer.decode(part, skip_special_tokens=False)
            for part in (ids[:length], ids[length:])
        )
        yield _Prompt(prompt, ids[:length], None if row.get("label") is False else reply)
        found += 1
        if found == count:
            return


class _Sampler:
    """Answers the prompts, and adds the answers to the table and to its page."""

    def __init__(
        self, table: SampleTable, trainer: Any, parts: Parts, prompts: list[_Prompt], work: Job
    ) -> None:
        self.table = table
        self.trainer = trainer
        self.tokenizer = parts.tokenizer
        self.prompts = prompts
        self.ends = ends_of(parts.tokenizer)
        most, temperature = work.setting(TOKENS), work.setting(TEMPERATURE)
        self.most = most if isinstance(most, int) else MOST
        self.temperature = float(temperature) if isinstance(temperature, int | float) else 0.0
        self.seed = int(trainer.args.seed)

    def sample(self, step: int) -> None:
        """Answer the prompts, unless they were at this step; each process answers its share of them.

        All of them come here: while one alone answered, the others would wait for it in the next step, and a
        long answer would end the run by the time limit of their group.
        """
        import torch
        from accelerate.utils import broadcast_object_list, gather_object

        # The table of the first process decides: others need not see its file.
        (is_done,) = broadcast_object_list([step in self.table.logs])
        if is_done:
            return
        process = self.trainer.accelerator.process_index
        mine = range(process, len(self.prompts), self.trainer.accelerator.num_processes)
        model = self.trainer.accelerator.unwrap_model(self.trainer.model)
        was_training = model.training
        devices = [model.device] if model.device.type == "cuda" else []
        # The run draws the same random numbers with and without samples.
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            model.eval()
            try:
                rows = [(number, self._row(model, number)) for number in mine]
            finally:
                model.train(was_training)
        rows = gather_object(rows)
        if process == 0:
            self.table.add(step, [row for _, row in sorted(rows, key=itemgetter(0))])

    def _row(self, model: Any, number: int) -> Row:
        import torch

        prompt = self.prompts[number]
        # The same answer, whichever process gives it.
        torch.manual_seed(self.seed + number)
        made = answer(
            model,
            self.tokenizer,
            prompt.ids,
            self.ends,
            most=self.most,
            temperature=self.temperature,
        )
        return {
            "prompt": prompt.text,
            "completion": made.text,
            "tokens": len(made.ids),
            "cut": not made.is_finished,
            **({} if prompt.reference is None else {"extra/reference": prompt.reference}),
        }

    def show(self) -> None:
        """Write the table and its page."""
        if self.table.logs:
            self.table.write()
            samples_page.write(self.table.file.parent, self.table.rows, self.table.how)


def _callback(sampler: _Sampler) -> Any:
    from transformers import TrainerCallback

    class GenerateSamples(TrainerCallback):
        """Samples at each evaluation, and once at the end; the first process writes them."""

        def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            sampler.sample(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if state.is_world_process_zero:
                sampler.show()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            sampler.sample(state.global_step)
            if state.is_world_process_zero:
                self._say()
            self.on_save(args, state, control)

        def _say(self) -> None:
            page = sampler.table.file.with_name(samples_page.PAGE)
            print(f"samples of the run: {page}", file=sys.stderr)  # noqa: T201

    return GenerateSamples()


def _resumed(work: Job) -> int:
    """Return the step that a run continues from; 0 for a new one."""
    number = (work.resume or "").rstrip("/").rpartition("-")[2]
    return int(number) if number.isdigit() else 0
