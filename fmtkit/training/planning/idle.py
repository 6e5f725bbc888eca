"""Keys that are set and change nothing beside the others: the plan says so of each.

What an argument of a trainer depends on is in no signature: it is followed in the installed source
(`trainer_reads`).
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fmtkit.core import section
from fmtkit.core.runner import Runner
from fmtkit.training.config.class_arguments import Fields, fields_of
from fmtkit.training.config.config import Config
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import SECTION, arguments_of, find_key
from fmtkit.training.config.trainer_source import UNKNOWN, find_class
from fmtkit.training.planning import trainer_rules
from fmtkit.training.planning.resolve import has_evaluation, lacks, section_of, set_keys
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.trainer_reads import Reads, Test, reads
from fmtkit.training.planning.types import Argument, Arguments

NEEDED: Mapping[str, str] = {"packing_strategy": "packing"}
"""Argument -> the switch without which it does nothing, where the source is not followed that far."""
OURS = frozenset(
    {
        "assistant_only_loss",
        "beta",
        "chat_template_kwargs",
        "completion_only_loss",
        "eos_token",
        "generation_batch_size",
        "generation_kwargs",
        "is_encoder_decoder",
        "mask_truncated_completions",
        "max_completion_length",
        "max_length",
        "max_new_tokens",
        "min_p",
        "model_init_kwargs",
        "multi_objective_aggregation",
        "num_generations",
        "num_generations_eval",
        "packing",
        "pad_to_multiple_of",
        "padding_value",
        "repetition_penalty",
        "reward_model_path",
        "reward_weights",
        "steps_per_generation",
        "sync_ref_model",
        "teacher_model_init_kwargs",
        "teacher_model_name_or_path",
        "temperature",
        "top_k",
        "top_p",
        "trust_remote_code",
        "use_vllm",
        "vllm_enable_sleep_mode",
        "vllm_group_port",
        "vllm_mode",
        "vllm_server_base_url",
        "vllm_server_host",
        "vllm_server_port",
        "vllm_server_timeout",
    }
)
"""Arguments of TRL's classes that fmtkit acts on by itself, whatever the trainer reads."""
_MOST = 3
"""Tests that a note shows."""


@dataclass(frozen=True)
class _Use:
    """A key that only some methods use; `False` asks for what every other method does."""

    need: str
    what: str


_NEEDS: Mapping[str, _Use] = {
    "teacher_model": _Use("teacher", "has no teacher"),
    "reward_model_path": _Use(
        "reward_model", "takes no reward model of this key; name it in trl.reward_funcs"
    ),
}
"""Key -> the need of a runner without which nothing reads it."""


def notes(plan: Plan) -> Iterator[str]:
    """Yield a note on each key that is set and has no effect, and that no other note names."""
    config, runner, out = plan.config, plan.runner, plan.arguments
    said = [*out.notes, *_of_settings(config, runner, out), *_of_keys(config, runner, out)]
    yield from said[len(out.notes) :]
    for argument, why in _of_arguments(plan):
        key = _key(argument.origin)
        if not any(re.search(rf"(^|[ ,]){re.escape(key)}\b.* change", note) for note in said):
            yield f"{key} changes nothing: {why}"


def _of_settings(config: Config, runner: Runner, out: Arguments) -> Iterator[str]:
    """Yield a note on each key that the method, its class or another key leaves without effect."""
    fields = arguments_of(runner)
    for key, value, _ in sorted(set_keys(config), key=lambda one: one[0].name):
        if lacks(key, fields) and value is not False:
            yield (
                f"{key.name} changes nothing: {fields.class_name} has no {key.target}, which would "
                "change only speed and memory"
            )
        elif remark := key.remark(value):
            yield remark
        other = _acts_with(key)
        is_asked_for = other and value is not False
        of_section = "." in other
        if is_asked_for and (
            runner.sections & {"rl", "vllm"} and _is_idle(config, runner, other)
            if of_section
            else not config.get(other)
        ):
            yield f"{key.name} changes nothing without {other}"
    dead = sorted(name for name in config.settings if section_of(name) in runner.idle)
    if dead:
        yield (
            f"{runner.trainer.partition(':')[2]} takes no keys of {' or '.join(sorted(runner.idle))}: "
            f"{', '.join(dead)} change nothing"
        )
    for name in section.names():
        if name not in runner.sections and out.sections.get(name):
            yield f"{runner.method} does not use {_keys(out.sections[name])}"
    if out.peft and config.get("adapter") is None:
        yield f"without `adapter` all weights train: {_keys(out.peft)} change nothing"


def _keys(arguments: Mapping[str, Argument]) -> str:
    """Return the keys that set some arguments."""
    return ", ".join(sorted({_key(one.origin) for one in arguments.values()}))


def _acts_with(key: Key) -> str:
    """Return the key without which this one has no effect; TRL's vLLM arguments need use_vllm."""
    is_vllm = key.name.startswith(f"{SECTION}.vllm_")
    return key.acts_with or (f"{SECTION}.use_vllm" if is_vllm else "")


def _is_idle(config: Config, runner: Runner, name: str) -> bool:
    """Return whether a key asks for nothing; a trainer with a sampler of its own always uses vLLM."""
    if name == f"{SECTION}.use_vllm" and runner.own_sampler:
        return False
    return config.get(name) in (None, False, 0)


def _of_keys(config: Config, runner: Runner, out: Arguments) -> Iterator[str]:
    for name, reason in sorted(runner.ignores.items()):
        argument = out.trainer.get(name)
        if argument is not None and argument.value not in (None, False):
            yield f"{_key(argument.origin)} changes nothing: {reason}"
    for name, use in _NEEDS.items():
        if config.get(name) is not None and use.need not in runner.needs:
            yield f"{name} changes nothing: {runner.method} {use.what}"
    teacher = [a for a in out.teacher.values() if "teacher" not in runner.needs]
    yield from (
        f"{_key(a.origin)} changes nothing: {runner.method} has no teacher" for a in teacher
    )
    if config.is_true("train_on_inputs") and runner.mask != "completion":
        yield f"train_on_inputs changes nothing: {runner.method} never trains on prompts"
    if config.get("loss_watchdog_patience") and not config.get("loss_watchdog_threshold"):
        yield "loss_watchdog_patience changes nothing without loss_watchdog_threshold"
    if config.get("split_by") and not has_evaluation(config):
        yield "split_by changes nothing without val_set_size"
    if config.get("mean_resizing_embeddings") and not config.get("tokens"):
        yield "mean_resizing_embeddings changes nothing without tokens"


def _of_arguments(plan: Plan) -> Iterator[tuple[Argument, str]]:
    """Yield each argument that a key set and the trainer does not read beside the others, with the reason."""
    runner, out = plan.runner, plan.arguments
    fields = arguments_of(runner)
    asked = [argument for argument in out.trainer.values() if _is_asked(argument, fields)]
    if not asked:
        return
    config, trainer = find_class(runner.config), find_class(runner.trainer)
    values = trainer_rules.values_of(plan, is_whole=True)
    found = reads(config, values, trainer) if config is not None and trainer is not None else None
    for argument in asked:
        switch = NEEDED.get(argument.name)
        if switch is not None and values.get(switch) is False:
            yield argument, f"only {switch}: true uses it, and {switch} is false"
        elif found is not None and argument.name not in found.names:
            tests = found.tests_of(argument.name)
            yield argument, _reason(tests, found, values, runner.trainer.partition(":")[2])


def _is_asked(argument: Argument, fields: Fields) -> bool:
    """Return whether a key is this argument of TRL's own; what only follows from a key is not meant."""
    if not fields.checked or argument.name not in fields.fields or argument.name in OURS:
        return False
    if (
        not argument.origin.startswith(("key ", "--set "))
        or argument.value is None
        or argument.value is False
    ):
        return False
    name = _key(argument.origin)
    key = find_key(name) or find_key(name.rpartition(".")[0])
    is_own = key is not None and key.to == "trainer" and key.target in ("*", argument.name)
    return is_own and argument.name not in fields_of("transformers:TrainingArguments").fields


def _reason(tests: list[Test], found: Reads, values: Mapping[str, object], trainer: str) -> str:
    """Return why nothing reads an argument, by the tests in the source that decide it."""
    compared = [_compared(test, found, values) for test, holds in tests if not holds]
    names = {one[0] for one in compared if one is not None}
    if compared and len(names) == 1 and None not in compared and len(compared) == len(tests):
        name = names.pop()
        wanted = sorted({value for one in compared if one for value in one[1]}, key=str)
        return f"only {name}: {_words(wanted)} uses it, and {name} is {_shown(values.get(name))}"
    shown = list(dict.fromkeys(f"{'unless' if holds else 'if'} {_plain(t)}" for t, holds in tests))
    if not shown:
        return f"{trainer} does not read it"
    return f"{trainer} reads it only {' or '.join(shown[:_MOST])}"


def _compared(
    test: ast.expr, found: Reads, values: Mapping[str, object]
) -> tuple[str, tuple[object, ...]] | None:
    """Return the argument that a test compares, and the values that it wants."""
    wanted: tuple[object, ...] = (True,)
    subject = test
    match test:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant(value=value)]):
            subject, wanted = left, (value,)
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.List(elts=items)]) if all(
            isinstance(item, ast.Constant) for item in items
        ):
            subject, wanted = left, tuple(ast.literal_eval(item) for item in items)
    name = found.argument_of(subject, values)
    return (name, wanted) if name else None


def _plain(test: ast.expr) -> str:
    return re.sub(r"\b(self\.)?(args\.)?", "", ast.unparse(test))


def _words(values: Iterable[object]) -> str:
    *others, last = map(_shown, values)
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: object) -> str:
    if value is UNKNOWN:
        return "unset"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(origin: str) -> str:
    return origin.removeprefix("key ").removeprefix("keys ").removeprefix("--set ")
