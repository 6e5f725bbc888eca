"""A run: plan, convert, launch, and the exit code of the training processes."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import yaml

from fmtkit.core import atomic, hub_access, notebook_html, section, user_modules
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError
from fmtkit.core.options import keywords
from fmtkit.core.parent_death import environment_of_child
from fmtkit.core.runner import TRLS_OWN, find
from fmtkit.options.train_options import TrainOptions
from fmtkit.training.building import interrupts
from fmtkit.training.config import config, config_words
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import find_key
from fmtkit.training.config.problems import NEEDED, Problems
from fmtkit.training.config.user_objects import places_of
from fmtkit.training.data import dataset_samples, datasets
from fmtkit.training.data import prerendered as finished_text
from fmtkit.training.data.data_report import data_remarks
from fmtkit.training.data.datasets import Watching
from fmtkit.training.planning import (
    at_hand,
    checks,
    first_rows,
    hooks,
    images,
    visible_gpus,
    weight_names,
)
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run, of_run, run_checks
from fmtkit.training.planning.job import Job, Source
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.run import checklist, resuming, run_folder, run_lock
from fmtkit.training.vllm import ready as vllm_ready

_KILLED = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its plan, its exit code, and its report if it ended normally."""

    plan: Plan
    exit_code: int
    report: Mapping[str, object] | None = None

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the report of a run that ended, else its plan."""
        if self.report is None:
            return self.plan._repr_html_()
        shown = {k: v for k, v in self.report.items() if isinstance(v, str | int | float)}
        title = f"{self.plan.method}: {self.plan.run / 'model'}"
        severity = "fine" if self.exit_code == 0 else "error"
        return notebook_html.card(title, notebook_html.facts(shown), severity=severity)


@config_words.advice()
@keywords(TrainOptions)
def train(
    source: str | Path | Mapping[str, object],
    *,
    say: Callable[[str], None] | None = None,
    watching: Watching = datasets.unwatched,
    options: TrainOptions,
) -> Outcome:
    """Train a model as a configuration says; with `dry_run` only plan it, with `prepare` only convert.

    A dry run also plans what lacks something to train, and lists that as `missing`. With `partial`
    the method of a fragment is guessed from its keys, even if nothing is missing.
    A prepared run folder holds everything that the training processes read: they may be started
    elsewhere, on several machines, by the command of the plan.

    Args:
        source: A YAML file, or its keys as a mapping.
        say: Given each note: those of the plan before anything is converted, those on the rows after.
        watching: Returns, for what is being converted, a context manager with what follows it.

    Returns:
        The plan, the exit code (0 done, 1 training failed, 2 configuration, 130 interrupted) and the
        report of a run that came to its end.

    Raises:
        UnknownNameError, OptionError, DependencyError, TokenizerError, SourceError: and what a
            conversion raises, before a process is started. What goes wrong in the training processes
            is on stderr and in the exit code.
    """
    dry_run = options.dry_run
    settings = config.load(source, [*options.overrides, *_typed_keys(options)], collect=True)
    planned = planning.plan(settings, partial=options.partial or (dry_run and settings.is_fragment))
    planned = finished_text.settled(planned, with_hub=not (dry_run or planned.missing))
    resume = options.resume or _resumes(settings)
    checked = Run(
        planned, resume, trains_here=not (dry_run or options.prepare), asks_hub=not dry_run
    )
    if dry_run and planned.missing:
        return Outcome(planned, 0)
    if planned.missing:
        raise OptionError(f"{planned.source}: {', '.join(planned.missing)}: needed to train")
    checked = replace(checked, first_rows=dataset_samples.look(planned))
    if dry_run:
        return Outcome(_looked_at(checked), 0)
    checklist.check(checked, "files", "modules", "device", "servers")
    say = say or _silent
    served = vllm_ready.check(planned, os.environ)
    seen = (
        *weight_names.notes(checked),
        *first_rows.notes(checked, is_partial=True),
        *images.notes(checked),
    )
    for note in (*planned.notes, *served, *seen):
        say(note)
    with run_lock.hold(planned.run) as lock:
        for remark in prepare(planned, watching, resume=resume, rebuild=options.rebuild):
            say(remark)
        for remarks in planned.runner.hooks(hooks.REMARKS):
            for remark in remarks(planned):
                say(remark)
        if options.prepare:
            return Outcome(planned, 0)
        lock.share()
        with ExitStack() as running:
            for servers in planned.runner.hooks(hooks.SERVERS):
                running.enter_context(servers(planned))
            exit_code = launch(planned)
    report = planned.run / "report.json"
    done = exit_code == 0 and report.is_file()
    return Outcome(
        planned, exit_code, json.loads(report.read_text(encoding="utf-8")) if done else None
    )


def _typed_keys(options: TrainOptions) -> list[str]:
    """Return the options that are keys as overrides of the configuration."""
    declared, chosen = options.declared(), options.chosen()
    return [f"{key}={value}" for name, value in chosen.items() for key in declared[name].keys]


def _looked_at(run: Run) -> Plan:
    """Return the plan of a dry run, with notes of what this machine lacks and of checks that wait.

    The run may be made on a different machine; raises one error with all problems of the files.
    """
    checklist.check(run, "files")
    lacking = Problems()
    run_checks(run, lacking, of_run(("modules", "device")))
    absent = [f"{problem.message}{NEEDED}" for problem in lacking.found]
    seen = (
        *at_hand.notes(run.plan.arguments),
        *weight_names.notes(run),
        *first_rows.notes(run),
        *images.notes(run),
    )
    notes = dict.fromkeys((*run.plan.notes, *absent, *seen))
    later = tuple(
        (check.code, check.needs, check.promise or check.about) for check in checklist.waiting(run)
    )
    return replace(run.plan, notes=tuple(notes), waiting=later)


def _silent(_: str) -> None:
    """Ignore a note: the default of `say`."""


def _resumes(settings: Config) -> bool:
    resume = settings.get("resume_from_checkpoint")
    return resume is True or settings.is_true("auto_resume_from_checkpoints")


def prepare(
    planned: Plan,
    watching: Watching = datasets.unwatched,
    *,
    resume: bool,
    rebuild: bool,
) -> list[str]:
    """Convert the data and write the run folder, from which training processes read.

    Args:
        planned: The plan of a run whose folder no other run uses.
        watching: What is told of the conversion while it goes on.
        resume: Whether the run continues from its last checkpoint.
        rebuild: Whether the data are converted again although they are there.

    Returns:
        Notes on the rows.

    Raises:
        FmtkitError: For data that cannot be converted, or a run that cannot be continued.
    """
    run = planned.run
    with atomic.writing(run):
        run.mkdir(parents=True, exist_ok=True)
    if not (run / run_folder.PLAN).exists():
        # Written first: by the plan, a run that is killed here recognises the folder as its own.
        atomic.write_bytes(run / run_folder.PLAN, planned.dumps().encode() + b"\n")
    template = planned.template_text()
    with config_words.advice(planned.config):
        train_rows, test_rows = datasets.prepare(
            planned, template, rebuild=rebuild, watching=watching
        )
    checklist.check(Run(planned, train=train_rows, evaluation=test_rows), "data")
    resumed = resuming.find(planned, resume=resume)
    checkpoint = None if resumed.checkpoint is None else str(resumed.checkpoint)
    work = job_of(planned, train_rows, test_rows, template, checkpoint)
    if checkpoint is not None:
        resuming.check_same(run, work)
        _move_aside(run, _there(run, run_folder.RESULTS) + [one.path for one in resumed.incomplete])
    else:
        _move_aside(run, _there(run, run_folder.KEPT))
    atomic.write_bytes(run / "config.yaml", config.dumps(planned.config).encode())
    atomic.write_bytes(run / run_folder.PLAN, planned.dumps().encode() + b"\n")
    if planned.launch.accelerate is not None:
        atomic.write_bytes(run / "accelerate.yaml", _accelerate(planned).encode())
    work.write()
    return [
        *resumed.remarks,
        *data_remarks(planned),
        *checks.remarks(planned, train_rows),
        *checks.mask_remarks(planned, template),
    ]


def launch(planned: Plan) -> int:
    """Start the training processes and wait for them; signals are passed on to them.

    Raises TrainingError where the system has killed one.
    """
    keys = ("base_model", "tokenizer_config", "ref_model", "teacher_model")
    named = filter(None, map(planned.config.text, keys))
    environment = {**os.environ, **hub_access.environment(named), **environment_of_child()}
    for argument in planned.arguments.of("environment").values():
        environment[argument.name] = str(argument.value)
    home = user_modules.home_of_a_clone()
    if home is not None:
        environment["PYTHONPATH"] = os.pathsep.join([home, *_path(environment)])
    # The command is fmtkit's own: this interpreter, a module, and the run folder.
    # Its stdout goes to stderr: a user's reward may print, and stdout is for the result.
    child = subprocess.Popen(planned.launch.command, env=environment, stdout=2)  # noqa: S603
    with interrupts.handling(lambda number, _: child.send_signal(number)):
        code = child.wait()
    if code in _KILLED:
        raise _killed(planned)
    return interrupts.INTERRUPTED if interrupts.is_interruption(code) else code if code >= 0 else 1


def _killed(planned: Plan) -> Exception:
    """Return the error for a process that the system killed without a message."""
    from fmtkit.training.building.callbacks import out_of_memory

    given = planned.arguments
    return out_of_memory(
        "the system killed a training process",
        given.batch_size or "unset",
        given.max_length or "unset",
    )


def _path(environment: Mapping[str, str]) -> list[str]:
    value = environment.get("PYTHONPATH", "")
    return [value] if value else []


def _there(run: Path, names: Sequence[str]) -> list[Path]:
    return [run / name for name in names if (run / name).exists()]


def _move_aside(run: Path, paths: Sequence[Path]) -> None:
    """Move what an earlier run left to RUN/earlier/N, so that it is not mistaken for this one's.

    transformers counts an incomplete checkpoint too, and would delete complete ones instead of it.
    """
    if not paths:
        return
    earlier = run / "earlier"
    number = 1 + max((int(p.name) for p in earlier.glob("*") if p.name.isdigit()), default=0)
    target = earlier / str(number)
    with atomic.writing(target):
        target.mkdir(parents=True)
        for path in paths:
            path.rename(target / path.name)


def _accelerate(planned: Plan) -> str:
    profile = dict(planned.launch.accelerate or {})
    if profile.get("num_processes") == "all devices":
        profile["num_processes"] = _devices()
    return yaml.safe_dump(profile, sort_keys=False)


def _devices() -> int:
    """Return the number of visible GPUs, without importing torch."""
    count = len(visible_gpus.visible(os.environ))
    if count == 0:
        raise OptionError(
            "this way of launching starts a process for each GPU, and their number is not known "
            "here; give --num-processes"
        )
    return count


def job_of(
    plan: Plan,
    train: tuple[Source, ...],
    evaluation: tuple[Source, ...],
    template_text: str | None,
    resume: str | None = None,
) -> Job:
    """Return the job of a plan whose datasets are converted."""
    given, config = plan.arguments, plan.config
    sections = {name: given.values(name) for name in section.names()}
    fmtkit_keys = {name: s.value for name, s in config.settings.items() if _is_ours(name)}
    if plan.datasets:
        fmtkit_keys["type_options"] = dict(plan.datasets[0].reading.options)
    return Job(
        run=str(plan.run),
        method=plan.method,
        variant=_variant(plan),
        model=plan.model or "",
        tokenizer=plan.tokenizer or "",
        trainer=given.values("trainer"),
        own=given.values("own"),
        model_arguments=given.values("model"),
        peft=given.values("peft") if plan.adapter else None,
        quantization=given.values("quantization") or None,
        teacher=config.text("teacher_model"),
        teacher_arguments=given.values("teacher"),
        template=plan.template[0],
        template_text=template_text,
        train=train,
        evaluation=evaluation,
        settings=fmtkit_keys,
        sections={name: values for name, values in sections.items() if values},
        places=tuple(str(place) for place in places_of(config.source)),
        resume=resume,
        needs_cuda=plan.launch.needs_cuda or plan.runner.needs_cuda or given.is_quantized,
        processes=plan.launch.processes,
        on_demand_from=plan.limits.on_demand_from if plan.limits else None,
    )


def _variant(plan: Plan) -> str:
    """Return the name of the runner's variant, by which the training process finds it."""
    usual = find(plan.method).variant_of(plan.config)
    if plan.runner == usual.variants.get(TRLS_OWN):
        return TRLS_OWN
    key = plan.runner.variant_key
    return str(plan.config.get(key) or "") if key else ""


def _is_ours(name: str) -> bool:
    key = find_key(name)
    return key is not None and key.to == "fmtkit"
