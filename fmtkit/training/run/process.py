"""A training process: `python -m fmtkit.training.run.process RUN` reads RUN/job.json and trains.

Started by `fmtkit train`, directly or through torchrun or accelerate; exits with an error's code.
"""

import atexit
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from fmtkit.core import atomic, user_modules
from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.escaping import counted
from fmtkit.core.parent_death import end_with_parent
from fmtkit.core.progress_lines import ProgressLines
from fmtkit.core.runner import find
from fmtkit.training.building import extensions, images_seen, interrupts, processors
from fmtkit.training.building.callbacks import (
    RunLog,
    TokenCounter,
    TrainingError,
    out_of_memory,
    saving,
)
from fmtkit.training.building.interrupts import INTERRUPTED, Stop
from fmtkit.training.building.loss_checks import LossWatchdog
from fmtkit.training.data import data_report
from fmtkit.training.planning import job
from fmtkit.training.planning.job import Job
from fmtkit.training.run import failures, run_page
from fmtkit.training.run.progress import ProgressBar, preparing
from fmtkit.training.run.run_lock import hold_shared
from fmtkit.training.trained import card, merging
from fmtkit.training.trained.trained_model import TrainedModel

CONNECTED: list[Any] = []
"""Trainers of several processes that have closed their connections."""
_SHOWN_METRICS = (
    "loss",
    "rewards/margins",
    "reward",
)


def main(arguments: list[str]) -> int:
    """Train the job of a run folder; print an error as one line and return its exit code."""
    quiet()
    stop = Stop()
    run = Path(arguments[0])
    try:
        with interrupts.handling(stop.take):
            end_with_parent()
            with hold_shared(run):
                return train(job.read(run), stop)
    except FmtkitError as error:
        return _print_error(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the process ends here, and reports why
        return _print_error(failures.explained(error, run, OptionError))


def _print_error(error: FmtkitError) -> int:
    # One write, also with PYTHONUNBUFFERED: several processes may print a line at the same time.
    sys.stderr.write(f"error: {error}\n")
    return error.exit_code


def train(work: Job, stop: Stop | None = None) -> int:
    """Train, save the model and write the report; return the exit code."""
    from transformers.utils import logging

    from fmtkit.training.building.build import make_trainer, parts_of, processes_of, runner_of
    from fmtkit.training.vllm.server_state import wait_for

    speak: Any = logging
    speak.disable_progress_bar()
    started = time.perf_counter()
    _check_device(work)
    wait_for(work)
    run, stop, counter = Path(work.run), stop or Stop(), TokenCounter()
    log = RunLog(run, stop, counter, runner_of(work))
    lines = _lines()
    bar = ProgressBar(lambda: log.last.get("tokens_per_second"), lines)
    callbacks = [log, bar, *_watchdogs(work)]
    with preparing(lines):
        parts = parts_of(work, [*map(_callback, callbacks), *_early_stopping(work)])
        check_world(work, processes_of(parts.arguments))
        given = _counts(parts.train, parts.evaluation)
        lines(f"loading {work.model}, and preparing {given[0]:,} rows")
        trainer = make_trainer(work, parts)
        extensions.install(trainer, work)
        if work.setting("generate_samples"):
            # Rendering prompts takes polars, without which other processes start.
            from fmtkit.training.run import generated_samples

            generated_samples.install(trainer, work, parts)
        if parts.processor is not None:
            images_seen.check(trainer, parts.train)
    _check_rows(trainer)
    for note in (*parts.notes, *_left_out(work, trainer, given)):
        log.findings.append(note)
        _say(trainer, f"note: {note}")
    _tidy(trainer, counter)
    try:
        return _train_and_save(trainer, work, stop, parts, log, started)
    except FmtkitError:
        raise
    except Exception as error:
        raise failures.explained(error, run, TrainingError) from error


def _lines() -> ProgressLines:
    """Return where progress goes: stderr of the first process."""
    if os.environ.get("RANK", "0") == "0":
        return ProgressLines()
    return ProgressLines(lambda _: None)


def _train_and_save(
    trainer: Any, work: Job, stop: Stop, parts: Any, log: RunLog, started: float
) -> int:
    with stop.while_training():
        result = _trained(trainer, work)
    if stop.granted:
        _say(trainer, f"stopped at step {trainer.state.global_step}; --resume continues from there")
        _leave_together(trainer)
        return INTERRUPTED
    _check_steps(trainer)
    _save(trainer, work, parts)
    if trainer.is_world_process_zero():
        seconds = time.perf_counter() - started
        _report(work, trainer, log, result, seconds)
    _leave_together(trainer)
    return 0


def _leave_together(trainer: Any) -> None:
    """Wait for the other processes, and close the connections between them.

    When a process ends, the others end too, and one of them may still be saving. Threads of a connection
    that is not ended now sometimes abort the process at its exit.
    """
    from torch import distributed

    trainer.accelerator.wait_for_everyone()
    if distributed.is_available() and distributed.is_initialized():
        # The trainer is kept: freeing the connection's threads sometimes waits forever (gloo of torch 2.13).
        CONNECTED.append(trainer)
        distributed.destroy_process_group()


def leave(code: int) -> NoReturn:
    """End this process; where others are connected, without freeing the connections.

    At exit gloo's threads (torch 2.13) sometimes wait forever or abort the process, whose exit code is then
    not the error's.
    """
    if _is_connected():
        atexit._run_exitfuncs()  # Trackers end their runs there.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _is_connected() -> bool:
    """Return whether this process is or was connected with others; imports nothing for it."""
    distributed = sys.modules.get("torch.distributed")
    return bool(CONNECTED) or (
        distributed is not None and distributed.is_available() and distributed.is_initialized()
    )


def quiet() -> None:
    """Silence what the user cannot act on, before TRL is imported."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    # TRL 1.16 still says gradient_checkpointing, transformers 5.23 activation_checkpointing.
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)


def _check_device(work: Job) -> None:
    import torch

    if work.needs_cuda and not torch.cuda.is_available():
        what = "quantized weights need" if work.quantization else "this way of launching needs"
        raise OptionError(f"{what} a CUDA device, and none is visible; nothing was loaded")


def check_world(work: Job, joined: int) -> None:
    """Raise OptionError unless as many processes train together as were asked for.

    Processes that are not connected would each silently train a copy, on all rows.
    """
    started = int(os.environ.get("WORLD_SIZE", "1"))
    # torchrun's number is that of one machine.
    machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    wanted = work.processes or started
    if joined == started and joined in {wanted, wanted * machines}:
        return
    needs_cpu = " (use_cpu: false: several processes without a GPU need true)"
    advice = needs_cpu if joined < started and work.uses_cpu is False else ""
    raise OptionError(
        f"{wanted} processes were to train together, {started} were started, and {joined} know of "
        f"each other{advice}; each group would train its own copy: see num_processes and "
        "accelerate_config"
    )


def _callback(callback: Any) -> Any:
    """Return one of fmtkit's callbacks as one of transformers'."""
    from transformers import TrainerCallback

    callback.__class__ = type(
        callback.__class__.__name__, (callback.__class__, TrainerCallback), {}
    )
    return callback


def _watchdogs(work: Job) -> list[LossWatchdog]:
    limit, patience = (work.setting(f"loss_watchdog_{n}") for n in ("threshold", "patience"))
    if not isinstance(limit, int | float):
        return []
    return [LossWatchdog(float(limit), patience if isinstance(patience, int) else 3)]


def _early_stopping(work: Job) -> list[Any]:
    patience = work.setting("early_stopping_patience")
    if not isinstance(patience, int) or not work.evaluation:
        return []
    from transformers import EarlyStoppingCallback

    return [EarlyStoppingCallback(early_stopping_patience=patience)]


def _tidy(trainer: Any, counter: TokenCounter) -> None:
    """Count tokens in the collator, and leave printing to the progress bar."""
    from transformers.trainer_callback import PrinterCallback

    trainer.remove_callback(PrinterCallback)
    if trainer.args.dataloader_num_workers == 0:
        counter.collate = trainer.data_collator
        trainer.data_collator = counter


def _trained(trainer: Any, work: Job) -> Any:
    import torch

    try:
        with saving(trainer):
            return trainer.train(resume_from_checkpoint=work.resume)
    except RuntimeError as error:
        on_cpu = not isinstance(error, TrainingError) and "can't allocate memory" in str(error)
        if not on_cpu and not isinstance(error, torch.OutOfMemoryError):
            raise
        batch = trainer.args.per_device_train_batch_size
        raise out_of_memory(error, batch, work.max_length or "unset") from error


def _check_rows(trainer: Any) -> None:
    """Raise OptionError where the trainer has left out every row: none has a token that is trained on."""
    rows = trainer.train_dataset
    if rows is not None and hasattr(rows, "__len__") and len(rows) == 0:
        raise OptionError(
            "no token of any row is trained on: all labels are masked; `fmtkit inspect --show-mask 3` "
            "shows them; see train_on_inputs and the messages' train flags"
        )


def _counts(*datasets: Any) -> tuple[int | None, ...]:
    """Return the rows of each dataset; None for a dataset without a length."""
    return tuple(len(rows) if hasattr(rows, "__len__") else None for rows in datasets)


def _left_out(work: Job, trainer: Any, given: tuple[int | None, ...]) -> Iterator[str]:
    """Yield a note for rows that the trainer has left out of what it was given.

    TRL drops rows that have no trained token after truncation, and RewardTrainer those that are too long.
    """
    if getattr(trainer.args, "packing", False):
        # Packing splits rows instead of truncating them.
        return
    limit = work.max_length
    kept = _counts(trainer.train_dataset, getattr(trainer, "eval_dataset", None))
    for purpose, before, after in zip(("train", "evaluate"), given, kept, strict=True):
        if before is not None and after is not None and after < before:
            within = f" with max_length {limit}" if limit else ""
            name = type(trainer).__name__
            yield (
                f"{before - after:,} of {before:,} rows to {purpose} on are left out: {name} cannot use "
                f"them{within}; `fmtkit inspect -c` shows the masks"
            )


def _check_steps(trainer: Any) -> None:
    """Raise TrainingError for a run that made no step: nothing was learned that could be saved."""
    if trainer.state.global_step:
        return
    batch = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
    raise TrainingError(
        f"no step was made: {len(trainer.train_dataset)} rows are fewer than one step takes "
        f"({batch} on each device); lower micro_batch_size, or set dataloader_drop_last: false"
    )


def _save(trainer: Any, work: Job, parts: Any) -> None:
    """Save model and tokenizer or processor, and the merged model where it is asked for."""
    folder = Path(work.run) / "model"
    trainer.save_model(str(folder))
    if not trainer.is_world_process_zero():
        return
    parts.processing_class.save_pretrained(folder)
    if parts.processor is None:
        # A model that takes images keeps its processor when it is trained on text.
        processors.copy_settings(work.model, folder)
    if work.setting("merge_lora") and work.peft is not None:
        # Of what was saved: where weights are sharded or quantized, those in memory cannot be merged.
        trained = TrainedModel(folder, work.model, parts.runner.head, work)
        shutil.rmtree(Path(work.run) / merging.MERGED, ignore_errors=True)
        merging.write(trained, Path(work.run) / merging.MERGED)


def _report(work: Job, trainer: Any, log: RunLog, result: Any, seconds: float) -> None:
    run = Path(work.run)
    report: dict[str, object] = {
        "method": work.method,
        "model": work.model,
        "steps": trainer.state.global_step,
        "seconds": round(seconds, 3),
        "metrics": {"train_loss": result.training_loss, **log.last},
        "first_metrics": log.first,
        "findings": log.findings,
        "data": list(data_report.facts(work)),
        "versions": {
            n: version(n) for n in ("fmtkit", "trl", "transformers", "torch", "peft", "accelerate")
        },
    }
    verdict = run_page.verdict(run, work.method, trainer.state.max_steps)
    report["verdict"] = verdict.as_dict()
    run_page.write(run, report)
    for folder in ("model", merging.MERGED):
        if (run / folder).is_dir():
            card.write(run / folder, work, report, merged=folder == merging.MERGED)
    # Last, since it shows that everything else is written.
    atomic.write_json(run / "report.json", report)
    own = find(work.method).metrics
    _say(trainer, f"{work.method}: {counted(trainer.state.global_step, 'step')}{_moved(log, own)}")


def _moved(log: RunLog, own: Sequence[str]) -> str:
    """Return how the metrics moved that show whether anything was learned: the method's own last."""
    names = [name for name in (*_SHOWN_METRICS, *own) if name in log.first and name in log.last]
    return "".join(f", {name} {log.first[name]:.4g} -> {log.last[name]:.4g}" for name in names)


def _say(trainer: Any, line: str) -> None:
    if trainer.is_world_process_zero():
        print(line, file=sys.stderr)  # noqa: T201


if __name__ == "__mp_main__":
    # A process that was spawned beside this one (TRL's asynchronous rollouts) unpickles the user's functions.
    user_modules.serve(job.read(Path(sys.argv[1])).places)

if __name__ == "__main__":
    # A launcher that starts this without -P has put the working directory first.
    sys.path[:] = user_modules.child_path()
    leave(main(sys.argv[1:]))
