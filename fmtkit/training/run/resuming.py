"""How a run is resumed: the checkpoint that it continues from, and what must not have changed."""

from pathlib import Path
from typing import TYPE_CHECKING

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import ResumeError
from fmtkit.training.planning import job
from fmtkit.training.planning.check import Run, check_run
from fmtkit.training.trained import checkpoints

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Plan

_FREE_TO_CHANGE = frozenset(
    {"max_steps", "num_train_epochs", "logging_steps", "save_steps", "save_strategy", "eval_steps"}
    | {"eval_strategy", "save_total_limit", "report_to", "run_name", "per_device_eval_batch_size"}
    | {"vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout"}
    | {"vllm_group_port"}
)
"""Arguments that change no step: among them where the vLLM server is, since a job that is queued again may
find it elsewhere."""


@check_run("resume", "files", "a checkpoint to resume from that does not exist or is incomplete")
def check(run: Run) -> None:
    """Raise ResumeError if the run cannot be resumed as configured."""
    find(run.plan, resume=run.resume)


@dataclass(frozen=True)
class Resumed:
    """Where a run continues (None: at its beginning), checkpoints that are unusable, and notes."""

    checkpoint: Path | None = None
    incomplete: tuple[checkpoints.Incomplete, ...] = ()
    remarks: tuple[str, ...] = ()


def find(planned: "Plan", *, resume: bool) -> Resumed:
    """Find the checkpoint to continue from: the one that the configuration names, or the last complete one.

    Raises ResumeError if the named one is not complete, if there was no run, or if the method's trainer
    cannot resume.
    """
    resumed = _find(planned, resume=resume)
    if resumed.checkpoint is not None and not planned.runner.resumes:
        raise ResumeError(
            f"--resume: the trainer of {planned.runner.method} cannot continue from a checkpoint; start "
            "again in a different output_dir"
        )
    return resumed


def _find(planned: "Plan", *, resume: bool) -> Resumed:
    named = planned.config.get("resume_from_checkpoint")
    if isinstance(named, str):
        path = Path(named).expanduser()
        is_there = path.is_dir()
        fault = checkpoints.fault_of(path, _expected(planned)) if is_there else "no such folder"
        if fault is not None:
            raise ResumeError(f"resume_from_checkpoint: {named}: {fault}; name a different one")
        return Resumed(path)
    if not resume:
        return Resumed()
    folder = planned.run / "checkpoints"
    complete, incomplete = checkpoints.latest(folder, _expected(planned))
    reasons = "; ".join(map(str, incomplete))
    if complete is not None:
        newer = [one for one in incomplete if one.step > checkpoints.step_of(complete)]
        going = (
            f"{'; '.join(map(str, newer))}; resuming from {complete.name}, the last complete one"
        )
        return Resumed(complete, incomplete, (going,) if newer else ())
    if incomplete or (planned.run / job.FILE).is_file():
        why = reasons or f"{folder} holds no checkpoint"
        return Resumed(None, incomplete, (f"{why}; the run begins again",))
    if planned.config.is_true("auto_resume_from_checkpoints"):
        return Resumed()
    raise ResumeError(f"--resume: {folder} holds no checkpoint, and {planned.run} no run")


def _expected(planned: "Plan") -> checkpoints.Expected:
    """Return what a checkpoint of the interrupted run holds."""
    optimizer = planned.arguments.value("save_only_model") is not True
    if not (planned.run / job.FILE).is_file():
        return checkpoints.Expected(optimizer=optimizer)
    return checkpoints.Expected(job.read(planned.run).processes, optimizer)


def check_same(run: Path, work: job.Job) -> None:
    """Raise ResumeError if the interrupted run had a different configuration."""
    if not (run / job.FILE).is_file():
        return
    before = job.read(run)
    for name in ("method", "model", "peft", "quantization", "template_text", "train"):
        if getattr(before, name) != getattr(work, name):
            raise ResumeError(
                f"--resume: {name} is not that of the interrupted run in {run}; undo it, or "
                "start again"
            )
    for name in {*before.trainer, *work.trainer} - _FREE_TO_CHANGE:
        old, new = before.trainer.get(name), work.trainer.get(name)
        if old != new:
            raise ResumeError(
                f"--resume: {name} was {old!r} and is {new!r}; undo it, or start again"
            )
