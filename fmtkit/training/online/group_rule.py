"""Whether batches divide into groups: all answers to a prompt must be in the same generation batch.

A generation batch has the rows of `steps_per_generation` micro-batches of all processes. TRL requires it
to consist of complete groups: its own source is followed for that (`planning.trl_refusals`), and what is
said is here. Some methods and features need a group on one device, and therefore complete groups in the
share of each process.
"""

from math import gcd

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.planning.types import Arguments

_BATCH, _ACCUMULATION = 8, 1
"""Defaults of transformers: rows per micro-batch, and micro-batches per optimizer step."""


@dataclass(frozen=True)
class Batches:
    """The sizes that decide it; `processes` is None if all visible devices are used."""

    batch: int
    steps: int
    processes: int | None
    group: int
    eval_batch: int
    eval_group: int

    @property
    def divides_groups(self) -> bool:
        """Return whether a generation batch of all processes ends within a group."""
        return bool(self.batch * self.steps * (self.processes or 1) % self.group)


def batches_of(runner: Runner, out: Arguments, processes: int | None) -> Batches:
    """Return the sizes of a plan, with TRL's defaults for arguments that are not set."""

    def number(name: str, default: int) -> int:
        value = out.value(name)
        return value if isinstance(value, int) else default

    batch = number("per_device_train_batch_size", _BATCH)
    steps = number("gradient_accumulation_steps", _ACCUMULATION)
    generation_batch = number("generation_batch_size", 0)
    if generation_batch:
        steps = max(1, generation_batch // (batch * (processes or 1)))
    group = number("num_generations", runner.group)
    return Batches(
        batch=batch,
        steps=number("steps_per_generation", steps),
        processes=processes,
        group=group,
        eval_batch=number("per_device_eval_batch_size", _BATCH),
        eval_group=number("num_generations_eval", group),
    )


def check(numbers: Batches, whole_groups: str | None) -> None:
    """Raise RefusalError if the feature that `whole_groups` names cannot use batches that suit TRL."""
    reason = _per_process(numbers, whole_groups)
    if reason is not None:
        raise RefusalError("groups", reason)


def check_whole_groups(rows: int, group: int, what: str, name: str = "") -> None:
    """Raise OptionError for batches that would split the answers to one prompt across devices."""
    if rows % group:
        name = name or "micro_batch_size · steps_per_generation"
        raise OptionError(
            f"{name} is {rows}, which is not a multiple of trl.num_generations ({group}); {what} "
            "needs all answers to a prompt on one device"
        )


def single_answer(numbers: Batches) -> str:
    """Return what to do where a prompt has one answer."""
    return (
        f"trl.num_generations: {numbers.group}: an answer is compared with the others to the "
        "same prompt; set it to 2 or more"
    )


def divided_batch(numbers: Batches) -> str:
    """Return what to do where a generation batch would divide the answers to a prompt."""
    rows = numbers.batch * numbers.steps * (numbers.processes or 1)
    return (
        f"trl.num_generations: {numbers.group}: a generation batch of {_product(numbers)} = {rows} "
        f"answers does not divide into groups of {numbers.group}; {_advice(numbers)}"
    )


def _per_process(numbers: Batches, feature: str | None) -> str | None:
    rows = numbers.batch * numbers.steps
    if feature is None or rows % numbers.group == 0:
        return None
    if numbers.processes is not None and numbers.divides_groups:
        # TRL refuses that itself.
        return None
    return (
        f"{feature} needs all answers to a prompt on one device: micro_batch_size {numbers.batch} · "
        f"{_counted(numbers.steps, 'step')} = {rows} answers of a process do not divide into groups of "
        f"{numbers.group}; {_advice(numbers, one_process=True)}"
    )


def divided_evaluation(numbers: Batches) -> str:
    """Return what to do where a batch of an evaluation would divide the answers to a prompt."""
    if numbers.divides_groups:
        # With other groups the evaluation's may fit, too.
        return divided_batch(numbers)
    processes = numbers.processes or 1
    return (
        f"eval_batch_size: {numbers.eval_batch} · {_counted(processes, 'process')} = "
        f"{numbers.eval_batch * processes} answers do not divide into groups of {numbers.eval_group}; "
        f"set eval_batch_size: {numbers.eval_group}, or trl.num_generations_eval"
    )


def _product(numbers: Batches) -> str:
    steps, processes = _counted(numbers.steps, "step"), _counted(numbers.processes or 1, "process")
    return f"micro_batch_size {numbers.batch} · {steps} · {processes}"


def _counted(number: int, word: str) -> str:
    plural = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"


def _advice(numbers: Batches, *, one_process: bool = False) -> str:
    """Return a number of steps and a micro-batch size that would work."""
    processes = 1 if one_process else numbers.processes or 1
    need = numbers.group // gcd(numbers.batch * processes, numbers.group)
    steps = -(-numbers.steps // need) * need
    return f"set gradient_accumulation_steps: {steps}, or micro_batch_size: {numbers.group}"
