"""Text without a template: segments that hold their special tokens, and which of them are trained on."""

from typing import Annotated, TypeAlias

import polars as pl

from fmtkit.columns import records
from fmtkit.columns.kinds import FlagKind, TextKind
from fmtkit.columns.problems import Column, Problem, literal
from fmtkit.core.tables import Segments
from fmtkit.formats.registry import converter

# A segment may be only white space, so blank texts are allowed; nulls are refused here.
Parts: TypeAlias = Annotated[
    Column, records({"text": TextKind(), "label": FlagKind()}, optional=("text",))
]


@converter(text=True)
def segments(segments: Parts) -> Segments:
    """https://docs.axolotl.ai/docs/input_output.html."""
    text, label = (pl.element().struct.field(name) for name in ("text", "label"))
    silent = segments.value.list.eval(text.is_null()).list.any()
    empty = ~segments.value.list.eval(text.str.len_bytes() > 0).list.any()
    context = ~segments.value.list.eval(label).list.any()
    made = segments.with_value(
        segments.value,
        Problem("null_field", "segments[].text", silent, "segments[].text is null"),
        Problem("empty_field", "segments", empty, "segments hold no text"),
        Problem(
            "no_assistant_turn", "segments", context, "no segment is trained on (`label: true`)"
        ),
    )
    return Segments(made, literal("none"))
