"""Keys that are set and change nothing beside the others: the plan says so of each.

What an argument of a trainer depends on is in no signature: it is followed in the installed source
(`trainer_reads`).
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

from fmtkit.core import section
from fmtkit.core.runner import Runner
from fmtkit.training.config.class_arguments import Fields, fields_of
from fmtkit.training.config.config import Config
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import GENERAL, SECTION, arguments_of, find_key
from fmtkit.training.config.our_arguments import OURS
from fmtkit.training.config.trainer_source import UNKNOWN, find_class
from fmtkit.training.planning import trl_refusals
from fmtkit.training.planning.check import note
from fmtkit.training.planning.resolve import has_evaluation, lacks, section_of, set_keys
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.trainer_reads import Reads, Test, reads
from fmtkit.training.planning.types import Argument

NEEDED: Mapping[str, str] = {"packing_strategy": "packing"}
"""Argument -> the switch without which it does nothing, where the source is not followed that far."""
_MOST = 3
"""Tests that a note shows."""


_NEEDS: Mapping[str, tuple[str, str]] = {
    "teacher_model": ("teacher", "has no teacher"),
    "reward_model_path": (
        "reward_model",
        "takes no reward model of this key; name it in trl.reward_funcs",
    ),
}
"""Key -> the need of a runner without which nothing reads it, and what to say then."""


@note("conditional", f"{SECTION}.vllm_*")
def _of_keys(plan: Plan) -> Iterator[str]:
    """Yield a note on each key that a method's class, its own value or another key leaves without effect."""
    config, runner = plan.config, plan.runner
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


@note("*.*")
def _of_idle_sections(plan: Plan) -> Iterator[str]:
    runner = plan.runner
    dead = sorted(name for name in plan.config.settings if section_of(name) in runner.idle)
    if dead:
        yield (
            f"{runner.trainer.partition(':')[2]} takes no keys of {' or '.join(sorted(runner.idle))}: "
            f"{', '.join(dead)} change nothing"
        )


@note("of sections")
def _of_other_sections(plan: Plan) -> Iterator[str]:
    runner, given = plan.runner, plan.arguments.sections
    for name in section.names():
        if name not in runner.sections and given.get(name):
            yield f"{runner.method} does not use {_keys(given[name])}"


@note("to peft", unless=("adapter",))
def _of_no_adapter(plan: Plan) -> Iterator[str]:
    if plan.arguments.peft and plan.adapter is None:
        yield f"without `adapter` all weights train: {_keys(plan.arguments.peft)} change nothing"


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


@note("to the trainer alone")
def _of_ignored_arguments(plan: Plan) -> Iterator[str]:
    for name, reason in sorted(plan.runner.ignores.items()):
        argument = plan.arguments.trainer.get(name)
        if argument is not None and argument.value not in (None, False):
            yield f"{_key(argument.origin)} changes nothing: {reason}"


@note(*_NEEDS)
def _of_needs(plan: Plan) -> Iterator[str]:
    for name, (need, what) in _NEEDS.items():
        if plan.config.get(name) is not None and need not in plan.runner.needs:
            yield f"{name} changes nothing: {plan.method} {what}"


@note("to teacher")
def _of_teacher(plan: Plan) -> Iterator[str]:
    if "teacher" not in plan.runner.needs:
        for argument in plan.arguments.teacher.values():
            yield f"{_key(argument.origin)} changes nothing: {plan.method} has no teacher"


@note("train_on_inputs")
def _of_inputs(plan: Plan) -> Iterator[str]:
    if plan.trains_on_inputs and plan.runner.mask != "completion":
        yield f"train_on_inputs changes nothing: {plan.method} never trains on prompts"


@note("loss_watchdog_patience")
def _of_watchdog(plan: Plan) -> Iterator[str]:
    config = plan.config
    if config.get("loss_watchdog_patience") and not config.get("loss_watchdog_threshold"):
        yield "loss_watchdog_patience changes nothing without loss_watchdog_threshold"


@note("split_by")
def _of_splits(plan: Plan) -> Iterator[str]:
    if plan.config.get("split_by") and not has_evaluation(plan.config):
        yield "split_by changes nothing without val_set_size"


@note("mean_resizing_embeddings")
def _of_embeddings(plan: Plan) -> Iterator[str]:
    config = plan.config
    if config.get("mean_resizing_embeddings") and not config.get("tokens"):
        yield "mean_resizing_embeddings changes nothing without tokens"


@note("to the trainer alone")
def _of_arguments(plan: Plan) -> Iterator[str]:
    """Yield a note on each argument that the trainer does not read, and that no other note names."""
    said = tuple(plan.arguments.notes)
    for argument, why in _unread(plan):
        key = _key(argument.origin)
        if not any(re.search(rf"(^|[ ,]){re.escape(key)}\b.* change", one) for one in said):
            yield f"{key} changes nothing: {why}"


def _unread(plan: Plan) -> Iterator[tuple[Argument, str]]:
    """Yield each argument that a key set and the trainer does not read beside the others, with the reason."""
    runner, out = plan.runner, plan.arguments
    fields = arguments_of(runner)
    asked = [argument for argument in out.trainer.values() if _is_asked(argument, fields)]
    if not asked:
        return
    config, trainer = find_class(runner.config), find_class(runner.trainer)
    values = trl_refusals.values_of(plan, is_whole=True)
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
    return is_own and argument.name not in fields_of(GENERAL).fields


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
