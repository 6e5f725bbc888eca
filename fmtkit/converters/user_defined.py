"""The user's own columns and formats: a dict `type` of axolotl's configs."""

from fmtkit.columns import ABSENT, Flag, Text, filled
from fmtkit.columns.instructions import Style, answered
from fmtkit.columns.problems import Column, Problem
from fmtkit.columns.text_formats import formatted, mentions
from fmtkit.core.tables import Preference, Segments, Unpaired
from fmtkit.formats.registry import converter


@converter(
    name="user_defined.default",
    text=True,
    differs="placeholders are read from the source row, so swapped fields are safe; a format may "
    "name nothing but placeholders",
)
def preference(
    prompt: Text,
    chosen: Text,
    rejected: Text,
    system: Text = ABSENT,
    *,
    prompt_format: str = "{prompt}",
    chosen_format: str = "{chosen}",
    rejected_format: str = "{rejected}",
) -> Preference:
    """https://docs.axolotl.ai/docs/rlhf.html#user_defined.default."""
    columns = {"prompt": prompt, "system": system, "chosen": chosen, "rejected": rejected}
    formats = {"prompt": prompt_format, "chosen": chosen_format, "rejected": rejected_format}
    made = _filled(columns, formats)
    same = Problem(
        "no_preference",
        None,
        made["chosen"].value == made["rejected"].value,
        "chosen equals rejected",
    )
    worse = made["rejected"].with_value(made["rejected"].value, same)
    return Preference(made["prompt"], made["chosen"], worse)


@converter(
    name="user_defined.default",
    text=True,
    differs="a missing or null system is empty; axolotl raises KeyError",
)
def unpaired(
    prompt: Text,
    completion: Text,
    label: Flag,
    system: Text = ABSENT,
    *,
    prompt_format: str = "{prompt}",
    completion_format: str = "{completion}",
) -> Unpaired:
    """https://docs.axolotl.ai/docs/rlhf.html#user_defined.default-1."""
    columns = {"prompt": prompt, "system": system, "completion": completion}
    made = _filled(columns, {"prompt": prompt_format, "completion": completion_format})
    return Unpaired(made["prompt"], made["completion"], label)


@converter(
    name="user_defined.default",
    text=True,
    differs="formats may use only placeholders; a null system prompt counts as absent",
)
def instruction(
    instruction: Text,
    output: Text,
    input: Text = ABSENT,
    system: Text = ABSENT,
    *,
    system_prompt: str = "",
    system_format: str = "{system}",
    format: str = "{instruction} {input} ",
    no_input_format: str = "{instruction} ",
) -> Segments:
    """https://docs.axolotl.ai/docs/dataset-formats/inst_tune.html; a dict `type` of an sft config.

    A row without a system prompt has `system_prompt`; one whose system prompt is empty has none.
    """
    style = Style(format, no_input_format, system_format)
    with_default = system.with_value(system.value.fill_null(system_prompt))
    return answered(style, instruction, output, input=input, system=with_default)


def _filled(columns: dict[str, Column], formats: dict[str, str]) -> dict[str, Column]:
    """Fill every format; a system prompt that no format mentions is a warning."""
    made = {name: formatted(f"{name}_format", text, columns) for name, text in formats.items()}
    used = any(
        mentions(f"{name}_format", text, "system", columns) for name, text in formats.items()
    )
    dropped = filled(columns["system"].value)
    return made if used else made | {"prompt": made["prompt"].warn("system_dropped", dropped)}
