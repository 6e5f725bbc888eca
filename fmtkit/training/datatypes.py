"""What the `type:` of a dataset means for a run: its template, table and options.

This is the one place where training meets the names of formats.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fmtkit.errors import OptionError
from fmtkit.training.config import Config, Entry

TEXT_TYPES = frozenset({"text", "user_defined.default"})
"""Types whose dialogs are finished text: they reach the trainer through the identity template."""

_OPTION_KEYS = [
    "field",
    "field_messages",
    "field_chosen",
    "field_rejected",
    "field_tools",
    "field_system",
    "field_thinking",
    "message_property_mappings",
    "roles",
    "drop_system_message",
    "step_separator",
    "max_completion_length",
    "train_on_last_step_only",
    "pairs",
    "split_thinking",
    "message_field_training",
]
_FAMILIES = frozenset({"chatml", "llama3", "zephyr"})


@dataclass(frozen=True)
class Reading:
    """A dataset's type as the pipeline takes it, and the template that it names, if any."""

    type: str
    template: str | None = None
    is_text: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


def read(entry: Entry) -> Reading:
    """Read the type of a dataset's entry and the options that stand beside it."""
    wish = entry.get("type")
    options = {name: entry[name] for name in _OPTION_KEYS if name in entry} | _mapping(
        entry.get("options")
    )
    mappings = _mapping(options.get("message_property_mappings"))
    for short, name in (("message_field_role", "role"), ("message_field_content", "content")):
        if short in entry:
            mappings[name] = entry[short]
    if mappings:
        options["message_property_mappings"] = mappings
    if wish is None:
        return Reading("passthrough", options=options)
    if isinstance(wish, Mapping):
        return Reading("user_defined.default", is_text=True, options=options | dict(wish))
    name = str(wish)
    if name in _FAMILIES:
        return Reading(f"{name}.default", name, options=options)
    family, dot, source = name.partition(".")
    if dot and source and family in _FAMILIES:
        return Reading(name, family, options=options)
    if name.startswith("bradley_terry."):
        rest = name.removeprefix("bradley_terry.").partition(".")[0]
        return Reading(name, rest if rest in _FAMILIES else None, options=options)
    return Reading(name, is_text=name in TEXT_TYPES, options=options)


def template_of(config: Config, readings: tuple[Reading, ...]) -> tuple[str, str]:
    """Return the run's chat template and who named it.

    Raises OptionError where two types, or a type and the configuration, name different ones.
    """
    named = _templates(config, readings)
    if len(named) > 1:
        both = " and ".join(f"{name} ({origin})" for name, origin in named.items())
        raise OptionError(f"a model has one chat template, but these differ: {both}")
    if not any(reading.is_text for reading in readings):
        return next(iter(named.items()), ("tokenizer_default", "default"))
    if named:
        raise OptionError(
            f"{next(iter(named))} is a template, but {_text_type(readings)} holds finished text"
        )
    if not all(reading.is_text for reading in readings):
        raise OptionError(
            f"{_text_type(readings)} holds finished text and cannot be mixed with messages"
        )
    return "identity", "finished text"


def _templates(config: Config, readings: tuple[Reading, ...]) -> dict[str, str]:
    """Return every template that is named, and where."""
    named: dict[str, str] = {}
    for reading in readings:
        if reading.template is not None:
            named.setdefault(reading.template, f"type {reading.type}")
    for entry in (*config.datasets, *config.test_datasets):
        if "chat_template" in entry:
            named.setdefault(str(entry["chat_template"]), "key datasets.chat_template")
    wish = config.text("chat_template")
    if config.get("chat_template_jinja") is not None:
        wish = "jinja"
    if wish is not None:
        named.setdefault(wish, "key chat_template")
    return named


def _text_type(readings: tuple[Reading, ...]) -> str:
    return next(reading.type for reading in readings if reading.is_text)


def _mapping(value: object) -> dict[str, object]:
    return {str(key): item for key, item in value.items()} if isinstance(value, Mapping) else {}
