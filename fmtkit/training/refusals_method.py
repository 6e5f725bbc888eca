"""Refusals about the method: its losses, its reference model and its batches."""

from collections.abc import Callable

from fmtkit.training.config import Config
from fmtkit.training.runner import Runner

DPO_LOSSES = frozenset(
    [
        "sigmoid",
        "hinge",
        "ipo",
        "exo_pair",
        "nca_pair",
        "robust",
        "bco_pair",
        "sppo_hard",
        "aot",
        "aot_unpaired",
        "apo_zero",
        "apo_down",
        "discopop",
        "sft",
        "sigmoid_norm",
    ]
)
LOSSES: dict[str, frozenset[str]] = {
    "sft": frozenset({"nll", "dft"}),
    "dpo": DPO_LOSSES,
    "ipo": frozenset({"ipo"}),
    "kto": frozenset({"kto", "apo_zero_unpaired"}),
    "cpo": frozenset({"sigmoid", "hinge", "ipo", "simpo", "alphapo"}),
    "simpo": frozenset({"simpo"}),
    "alphapo": frozenset({"alphapo"}),
}
"""Method -> the values of loss_type that its trainer computes."""
_NO_REFERENCE_ARGUMENT = frozenset({"grpo", "gdpo", "rloo", "ebft"})


def _method(config: Config, runner: Runner) -> str | None:
    if runner.method != "sft":
        return None
    section = next(
        (s for s in ("trl", "ebft") if any(n.startswith(f"{s}.") for n in config.settings)), None
    )
    if section is None:
        return None
    return (
        f"{section}: these keys are for another method than sft; write rl: "
        f"{'ebft' if section == 'ebft' else 'grpo'}"
    )


def _context_parallel(config: Config, runner: Runner) -> str | None:
    size = config.get("context_parallel_size")
    if size in {None, 1}:
        return None
    if runner.method != "sft":
        return (
            f"context_parallel_size: {size} works with sft alone: TRL's trainer for "
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
    if runner.method in _NO_REFERENCE_ARGUMENT:
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


def _losses(config: Config, runner: Runner) -> str | None:
    wish = config.get("loss_type")
    known = LOSSES.get(runner.method)
    if wish is None or known is None:
        return None
    several = isinstance(wish, list)
    names = [str(name) for name in wish] if isinstance(wish, list) else [str(wish)]
    if several and runner.method != "dpo":
        return f"loss_type: {runner.method} computes one loss; several of them are for dpo"
    unknown = sorted(set(names) - known)
    if unknown:
        return (
            f"loss_type: {unknown[0]!r} is not one of {runner.method}'s: {', '.join(sorted(known))}"
        )
    if "exo_pair" in names and not config.get("label_smoothing"):
        return "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001"
    weights = config.get("loss_weights")
    if isinstance(weights, list) and len(weights) != len(names):
        return f"loss_weights has {len(weights)} numbers for {len(names)} losses"
    return None


def _pairs_in_a_batch(config: Config, runner: Runner) -> str | None:
    if runner.method == "kto" and config.get("micro_batch_size") == 1:
        return (
            "micro_batch_size: kto needs at least 2: its KL term takes a reply from another "
            "row of the batch"
        )
    return None


def _order(config: Config, runner: Runner) -> str | None:
    if runner.method == "kto" and config.is_true("group_by_length"):
        return (
            "group_by_length: kto reads its rows in order, which fmtkit has shuffled; leave it out"
        )
    return None


REFUSALS: dict[str, Callable[[Config, Runner], str | None]] = {
    "method": _method,
    "context_parallel": _context_parallel,
    "reference": _reference,
    "sync_ref_model": _sync,
    "loss_type": _losses,
    "kto_batch": _pairs_in_a_batch,
    "kto_order": _order,
}
"""Name -> why a configuration cannot be honoured, or None."""
