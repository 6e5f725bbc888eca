"""EBFT in a plan: its keys are checked together, and keys without an effect are noted."""

from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DEFAULT_LENGTH, Argument, Arguments

from .settings_plan import plan_settings


def derive(plan: Plan) -> None:
    """Check the keys of `ebft` as the trainer will; add what the user should know to the notes.

    Raises OptionError or UnknownNameError for values that no run can use.
    """
    out = plan.arguments
    group = out.value("num_generations")
    size = group if isinstance(group, int) else None
    out.notes += plan_settings(out.values("ebft"), num_generations=size).remarks
    if plan.runner.tables == ("Tokens",):
        _drop_flash_attention(out)
        if "max_length" not in out.own:
            out.own["max_length"] = Argument("max_length", DEFAULT_LENGTH, "default of fmtkit")
            out.notes.append(f"documents are cut at {DEFAULT_LENGTH} tokens; set sequence_len")


def _drop_flash_attention(out: Arguments) -> None:
    """Remove flash attention from the arguments that load the model: loading fails if it is not installed."""
    attention = out.model.get("attn_implementation")
    if attention is None or "flash" not in str(attention.value):
        return
    del out.model["attn_implementation"]
    out.notes.append(
        f"{attention.origin.removeprefix('key ')}: {attention.value} cannot take strided EBFT's mask of "
        "blocks: a dense mask with sdpa is used; flex_attention: true is for long documents on CUDA"
    )
