"""Kernels and number formats that this machine lacks, and what replaces them with the same result.

The plan asks which packages and GPUs are here, the training process asks torch; both say what they leave out.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

from fmtkit.training.planning import visible_gpus
from fmtkit.training.planning.types import Arguments

Values = Mapping[str, Any]


def notes(given: Arguments) -> list[str]:
    """Return which kernels are not available on this machine, and what replaces them."""
    lines: list[str] = []
    has_cuda = visible_gpus.may_be_there(visible_gpus.of_run(given))
    for adapt, group in ((loading, given.model), (arguments, given.trainer)):
        adapt({a.name: a.value for a in group.values()}, has_cuda=has_cuda, say=lines.append)
    return [f"{note} (on this machine)" for note in lines]


def loading(values: Values, *, has_cuda: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Return arguments of from_pretrained without unavailable kernels; `say` reports which."""
    out = dict(values)
    attention = str(out.get("attn_implementation") or "")
    reason = _missing_attention(attention, has_cuda=has_cuda)
    if reason is not None:
        say(f"attn_implementation: {attention} {reason}; sdpa computes the same function")
        out["attn_implementation"] = "sdpa"
    if out.get("use_kernels") is True and not (has_cuda and find_spec("kernels")):
        reason = "needs a GPU" if not has_cuda else "needs the package kernels"
        say(f"use_kernels {reason}; the layers compute the same function without it")
        del out["use_kernels"]
    return out


def _missing_attention(attention: str, *, has_cuda: bool) -> str | None:
    """Return why an attention kernel cannot be used on this machine; None if it can."""
    is_flash = attention.startswith("flash_attention")
    if not is_flash and "/" not in attention:
        return None
    if not has_cuda:
        return "needs a GPU"
    packages = ("kernels", "flash_attn") if is_flash else ("kernels",)
    if any(map(find_spec, packages)):
        return None
    return f"needs the package {' or '.join(packages)}"


def arguments(values: Values, *, has_cuda: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Return arguments of the trainer without GPU-only ones; `say` reports which."""
    out = dict(values)
    if out.get("tf32") is True and not has_cuda:
        say("tf32 is a number format of GPUs; it changes nothing here")
        del out["tf32"]
    if out.get("activation_offloading") is True and not has_cuda:
        say("activation_offloading moves activations off a GPU; it has no effect here")
        del out["activation_offloading"]
    return out
