"""The chat template of a run: which one its keys and the types of its datasets name, and its text."""

import json
from collections.abc import Iterator
from pathlib import Path

from fmtkit.core import hub_access
from fmtkit.core.errors import OptionError
from fmtkit.rendering import template_sources
from fmtkit.training.config.config import Config
from fmtkit.training.planning.job import WITHOUT
from fmtkit.training.planning.types import Reading

TOKENIZER_DEFAULT = template_sources.TOKENIZER_DEFAULT
RENDERED = "prerendered text"
"""Where a run's template comes from if all of its rows are text: it has none, and the model keeps its own."""
FALLBACK = "tokenizer_default_fallback_"
"""Prefix of the name of a template for tokenizers without one."""


_OF_NO_ROW = frozenset({"identity", TOKENIZER_DEFAULT, *template_sources.OF_THE_TOKENIZER})
"""Templates that a tokenizer for rows of text alone is not given: it has them, or they write nothing."""


def is_plain(readings: tuple[Reading, ...]) -> bool:
    """Return whether no row of any dataset is rendered by a template."""
    return bool(readings) and not any(reading.needs_template for reading in readings)


def template_of(config: Config, readings: tuple[Reading, ...]) -> tuple[str, str]:
    """Return the run's chat template and where it was set; WITHOUT where no row needs one and none is named.

    Text is trained on as it is, beside messages too, which the template renders. One that is named is given
    to the tokenizer that is saved, though no row needs it, as in TRL (a note says so).

    Raises OptionError where two types, or a type and the configuration, name different ones.
    """
    named = _named(config, readings)
    if len(named) > 1:
        entries = (*config.datasets, *config.test_datasets)
        paths = {str(one.get("chat_template")): one.get("path") for one in reversed(entries)}
        both = " and ".join(
            f"{name} ({origin}{f' of {paths[name]}' if 'datasets.' in origin and name in paths else ''})"
            for name, origin in named.items()
        )
        raise OptionError(f"a model has one chat template, but these differ: {both}")
    if is_plain(readings) and not named.keys() - _OF_NO_ROW:
        texts = any(reading.is_text for reading in readings)
        return WITHOUT, RENDERED if texts else "rows that no template renders"
    name, origin = next(iter(named.items()), (TOKENIZER_DEFAULT, "default"))
    return _at_hand(name, config), origin


def _at_hand(name: str, config: Config) -> str:
    """Return the template that a name means if it depends on the model's tokenizer."""
    if name in template_sources.OF_THE_TOKENIZER:
        return TOKENIZER_DEFAULT
    if not name.startswith(FALLBACK):
        return name
    tokenizer = config.text("tokenizer_config") or config.model or ""
    return name.removeprefix(FALLBACK) if _lacks_template(tokenizer) else TOKENIZER_DEFAULT


def _lacks_template(tokenizer: str) -> bool:
    """Return whether a tokenizer that is on this machine has no chat template."""
    folder = Path(tokenizer).expanduser()
    if not folder.is_dir():
        file = hub_access.cached(tokenizer, "tokenizer_config.json")
        if file is None:
            return False
        folder = file.parent
    try:
        settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        settings = {}
    text = settings.get("chat_template") if isinstance(settings, dict) else None
    return not (text or (folder / "chat_template.jinja").is_file())


def template_notes(config: Config) -> Iterator[str]:
    """Yield notes on templates that the model's tokenizer brings."""
    entries = (*config.datasets, *config.test_datasets)
    named = [config.get("chat_template"), *(entry.get("chat_template") for entry in entries)]
    for name in dict.fromkeys(map(str, named)):
        if name in template_sources.OF_THE_TOKENIZER:
            yield (
                f"chat_template: {name} is axolotl's copy of a model's own template: that of the "
                "tokenizer is used; name a different one, or a FILE.jinja, if the model has none"
            )
        elif name.startswith(FALLBACK):
            yield f"chat_template: {name}: {_at_hand(name, config)} is taken"


def template_source(config: Config, template: tuple[str, str]) -> str:
    """Return the source of the run's template: a name or a file; for `jinja` its file or its text."""
    name, _ = template
    if name != "jinja":
        return name
    entries = (*config.datasets, *config.test_datasets)
    named = (config.get("chat_template_jinja"), *(e.get("chat_template_jinja") for e in entries))
    source = next((str(text) for text in named if text is not None), None)
    if source is None:
        raise OptionError(
            "chat_template: jinja: give its text or FILE.jinja as chat_template_jinja"
        )
    return source


def template_text(config: Config, template: tuple[str, str], *, is_plain: bool) -> str | None:
    """Return the text of the run's template: plain, or its training variant; None for the tokenizer's own."""
    name, origin = template
    if name in {TOKENIZER_DEFAULT, WITHOUT}:
        return None
    named_by_type = origin.startswith("type ")
    find = template_sources.find_family if named_by_type else template_sources.find_model_template
    found = find(template_source(config, template))
    # The training variant marks the replies, and keeps earlier turns as they were.
    return found.source if is_plain else found.training or found.source


def _named(config: Config, readings: tuple[Reading, ...]) -> dict[str, str]:
    """Return every template that is named, and where."""
    named: dict[str, str] = {}
    for reading in readings:
        if reading.template is not None:
            named.setdefault(reading.template, f"type {reading.type}")
    for part, entries in (("datasets", config.datasets), ("test_datasets", config.test_datasets)):
        for entry in entries:
            if "chat_template" in entry:
                named.setdefault(str(entry["chat_template"]), f"key {part}.chat_template")
            elif "chat_template_jinja" in entry:
                named.setdefault("jinja", f"key {part}.chat_template_jinja")
    template = config.text("chat_template")
    if config.get("chat_template_jinja") is not None:
        template = "jinja"
    if template is not None:
        named.setdefault(template, "key chat_template")
    return named
