"""Keys that are set and change nothing beside the others: the plan says so of each.

What an argument of a trainer depends on is in no signature; it was read in the source of TRL 1.16.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.planning.resolve import Resolution, has_evaluation
from fmtkit.training.planning.trainer_source import UNKNOWN


@dataclass(frozen=True)
class Condition:
    """An argument that acts only while another has one of these values; `beside` is one of its class."""

    argument: str
    other: str
    values: tuple[object, ...] = (True,)
    beside: str = ""

    def fails(self, value: object) -> bool:
        """Return whether the other argument has none of the values, alone or in its list."""
        named = value if isinstance(value, list) else [value]
        return not any(any(one is v or one == v for v in self.values) for one in named)


def _each(arguments: str, other: str, *values: object, beside: str = "") -> tuple[Condition, ...]:
    return tuple(Condition(name, other, values or (True,), beside) for name in arguments.split())


CONDITIONS: tuple[Condition, ...] = (
    *_each("ref_model_sync_steps ref_model_mixup_alpha", "sync_ref_model"),
    *_each("precompute_ref_batch_size", "precompute_ref_log_probs"),
    *_each("discopop_tau", "loss_type", "discopop"),
    *_each("f_alpha_divergence_coef", "f_divergence_type", "alpha_divergence"),
    *_each(
        "label_smoothing",
        "loss_type",
        *("aot", "aot_unpaired", "exo_pair", "robust"),
        beside="f_divergence_type",
    ),
    *_each("sapo_temperature_neg sapo_temperature_pos", "loss_type", "sapo"),
    *_each("vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg", "loss_type", "vespo"),
    *_each(
        "entropy_target entropy_coef_min entropy_coef_max entropy_coef_delta",
        "use_adaptive_entropy",
    ),
    *_each(
        "log_unique_prompts num_completions_to_print log_completions_hub_repo", "log_completions"
    ),
    *_each(
        "vllm_importance_sampling_mode vllm_importance_sampling_clip_max "
        "vllm_importance_sampling_clip_min vllm_importance_sampling_cap",
        "vllm_importance_sampling_correction",
    ),
    *_each("transformers_continuous_batching_config", "use_transformers_continuous_batching"),
    *_each("packing_strategy", "packing"),
)
"""Arguments of TRL's config classes that depend on another one."""


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


def notes(config: Config, runner: Runner, out: Resolution) -> Iterator[str]:
    """Yield a note on each key that is set and has no effect."""
    yield from _of_arguments(runner, out)
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


def _of_arguments(runner: Runner, out: Resolution) -> Iterator[str]:
    fields = arguments_of(runner)
    for one in CONDITIONS:
        argument = out.trainer.get(one.argument)
        known = fields.fields.get(one.other)
        if argument is None or known is None or not argument.origin.startswith(("key ", "--set ")):
            continue
        if one.beside and one.beside not in fields.fields:
            continue
        other = out.trainer.get(one.other)
        value = known.default if other is None else other.value
        if fields.checked and one.fails(value):
            yield (
                f"{_key(argument.origin)} changes nothing: only {one.other}: {_words(one.values)} uses it, "
                f"and {one.other} is {_shown(value)}"
            )


def _words(values: tuple[object, ...]) -> str:
    *others, last = map(_shown, values)
    return f"{', '.join(others)} or {last}" if others else last


def _shown(value: object) -> str:
    if value is UNKNOWN:
        return "unset"
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(origin: str) -> str:
    return origin.removeprefix("key ").removeprefix("--set ")
