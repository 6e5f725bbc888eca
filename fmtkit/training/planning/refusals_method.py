"""Refusals about the method: its losses, its reference model and its batches."""

from collections.abc import Callable

from fmtkit.core.runner import DEFAULT, Runner, guess, methods
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import section_names


def _method(config: Config, runner: Runner) -> str | None:
    """Refuse the sections of other methods where none was named."""
    if runner.method != DEFAULT:
        return None
    for section in section_names():
        other = guess({section})
        if other is not None and any(n.startswith(f"{section}.") for n in config.settings):
            return f"{section}: these keys are for another method than {DEFAULT}; write rl: {other}"
    return None


def _context_parallel(config: Config, runner: Runner) -> str | None:
    size = config.get("context_parallel_size")
    if size in {None, 1}:
        return None
    if not runner.splits_sequences:
        able = methods(lambda one: one.splits_sequences)
        return (
            f"context_parallel_size: {size} works with {able} alone: TRL's trainer for "
            f"{runner.method} does not "
            "split sequences; leave it out, and use fsdp and gradient_checkpointing for long rows"
        )
    if config.is_true("sample_packing"):
        return (
            f"context_parallel_size: {size} does not go with sample_packing; turn one of them off"
        )
    return None


def _reference(config: Config, runner: Runner) -> str | None:
    wish = next((k for k in ("rl_adapter_ref_model", "ref_model") if config.get(k)), None)
    if wish is None:
        return None
    if runner.makes_reference:
        return (
            f"{wish}: the trainer for {runner.method} takes no reference model; it makes its "
            "own where beta is set"
        )
    if "reference" not in runner.needs:
        return f"{wish}: {runner.method} has no reference model; leave it out"
    return None


def _sync(config: Config, _: Runner) -> str | None:
    if not (config.is_true("sync_ref_model") or config.is_true("trl.sync_ref_model")):
        return None
    if config.get("adapter") and not config.get("rl_adapter_ref_model"):
        return (
            "sync_ref_model: with an adapter the reference is the base model, which does not "
            "move; leave one out"
        )
    if config.is_true("precompute_ref_log_probs"):
        return (
            "sync_ref_model: precomputed log-probabilities do not follow a moving reference; "
            "leave one out"
        )
    return None


def _losses(config: Config, _: Runner) -> str | None:
    wish = config.get("loss_type")
    if wish is None:
        return None
    names = [str(name) for name in wish] if isinstance(wish, list) else [str(wish)]
    if "exo_pair" in names and not config.get("label_smoothing"):
        return "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001"
    weights = config.get("loss_weights")
    if isinstance(weights, list) and len(weights) != len(names):
        return f"loss_weights has {len(weights)} numbers for {len(names)} losses"
    return None


def _gym(config: Config, runner: Runner) -> str | None:
    if not config.is_true("nemo_gym_enabled") or "nemo_gym" in runner.sections:
        return None
    able = methods(lambda one: "nemo_gym" in one.sections)
    return f"nemo_gym_enabled: {runner.method} takes no rewards; a Gym is for {able}"


def _environment(config: Config, runner: Runner) -> str | None:
    if not config.get("verifiers.environment") or "verifiers" in runner.sections:
        return None
    able = methods(lambda one: "verifiers" in one.sections)
    return f"verifiers.environment: {runner.method} plays no episodes; they are for {able}"


def _lengths(config: Config, runner: Runner) -> str | None:
    told = "kto_order" in runner.refusals
    if runner.sees_lengths or told or not config.is_true("group_by_length"):
        return None
    return (
        f"group_by_length: the rows of {runner.method} have no one length for transformers to group "
        "by; leave it out"
    )


RULES: tuple[tuple[str, str, Callable[[Config, Runner], str | None]], ...] = (
    ("method", "keys of `trl` or `ebft` beside a method that has none", _method),
    ("context_parallel", "sequences split over devices by a method that cannot", _context_parallel),
    ("reference", "a reference model for a method that takes none", _reference),
    (
        "sync_ref_model",
        "a moving reference beside an adapter or precomputed log-probabilities",
        _sync,
    ),
    (
        "loss_type",
        "losses that the method's trainer does not compute, and their number of weights",
        _losses,
    ),
    ("gym_method", "a NeMo Gym for a method without rewards", _gym),
    ("environment_method", "an environment for a method that plays no episodes", _environment),
    ("order", "batches by length for rows whose length the trainer cannot see", _lengths),
)
"""Code, what it looks for, and what finds the reason why a configuration cannot be honoured."""
