"""What the trainer itself would refuse: the checks of its source, run on a plan's arguments."""

from collections.abc import Iterable, Iterator

from fmtkit.training.config.keys import arguments_of
from fmtkit.training.config.problem import Problem
from fmtkit.training.planning import trainer_rules
from fmtkit.training.planning.check import Subject
from fmtkit.training.planning.resolve import Argument
from fmtkit.training.planning.trainer_source import find_class
from fmtkit.training.run.launch import processes_of

CODE = "trainer_rule"
_DECIDED_LATER = (
    "assistant_only_loss",
    "bf16",
    "dataloader_pin_memory",
    "device",
    "model_init_kwargs",
    "n_gpu",
    "remove_unused_columns",
    "teacher_model_init_kwargs",
    "use_cpu",
)
"""Arguments that the training process sets by the device and the rows, where the configuration has not."""
_SET_HERE: dict[str, object] = {
    "output_dir": "checkpoints",
    "disable_tqdm": True,
    "logging_nan_inf_filter": False,
}


def check(subject: Subject) -> Iterator[Problem]:
    """Yield what the trainer's config class and the trainer would raise for these arguments."""
    config, runner, out = subject.config, subject.runner, subject.resolution
    fields = arguments_of(runner)
    config_class = find_class(runner.config) if fields.judged else None
    if config_class is None:
        return
    values = {name: found.default for name, found in fields.fields.items()}
    values |= dict.fromkeys(_DECIDED_LATER, trainer_rules.UNKNOWN) | _SET_HERE
    values |= {a.name: a.value for a in out.trainer.values() if a.value != "auto"}
    values |= {a.name: trainer_rules.UNKNOWN for a in out.trainer.values() if a.value == "auto"}
    if config.text("base_model") is None:
        # The rest of a fragment may say how large its batches are.
        values |= dict.fromkeys(set(fields.fields) - set(out.trainer), trainer_rules.UNKNOWN)
    processes = processes_of(config, subject.launching)
    values["world_size"] = trainer_rules.UNKNOWN if processes is None else processes
    for failure in trainer_rules.failures(config_class, values, find_class(runner.trainer)):
        key = _key(failure, out.trainer.values())
        yield Problem(CODE, f"{fields.class_name} of {fields.package}: {_told(failure)}", key)


def _key(failure: str, arguments: Iterable[Argument]) -> str:
    """Return the key that set an argument which the message names."""
    named = [a for a in arguments if a.name in failure and a.origin.startswith("key ")]
    return named[0].origin.removeprefix("key ") if named else ""


def _told(failure: str) -> str:
    text = " ".join(failure.split())
    return text if len(text) <= 300 else text[:299] + "…"
