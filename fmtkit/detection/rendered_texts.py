"""Text that a template wrote already, which no template should write once more.

The metadata or the report of fmtkit's own outputs says so; elsewhere the text does, by its control tokens.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fmtkit.core.errors import FmtkitError, OptionError, TemplateError
from fmtkit.core.records import entries_of, read_json
from fmtkit.core.tables import CONVERSATION_COLUMNS, TEXT_NAMES
from fmtkit.rendering import template_sources
from fmtkit.rendering.chat import ChatTemplate
from fmtkit.rendering.row_templates import RowTemplate
from fmtkit.stages.control_tokens import LOOKS, tokens_in
from fmtkit.writing import working_folder
from fmtkit.writing.file_output import FileOutput

Row = Mapping[str, Any]

TOKENS = 2
"""Control tokens of one template that a string must hold: a text may quote a single one."""
_WRITTEN = CONVERSATION_COLUMNS | frozenset(TEXT_NAMES.values())
"""Columns of fmtkit's outputs that hold what a template wrote."""
_SAID = "\U0010ffe0"
_PROBES: tuple[list[Mapping[str, Any]], ...] = (
    [{"role": "system", "content": _SAID}, {"role": "user", "content": "x"}],
    [{"role": "user", "content": _SAID}],
)


def check_unrendered(
    source: object, sample: Sequence[Row], read: frozenset[str] | None, template: str
) -> None:
    """Raise OptionError where text of a source that a template wrote would be written by one again.

    Args:
        source: A source; only files know what fmtkit wrote.
        sample: Its first rows.
        read: The columns that its type reads; None for all.
        template: The template that would write the text.
    """
    texts: dict[str, list[str]] = {}
    for name, text in _texts(sample):
        if read is None or name in read:
            texts.setdefault(name, []).append(text)
    type_name = rendered_as(source) if _WRITTEN & texts.keys() else None
    for name, found in texts.items():
        if type_name is not None and name in _WRITTEN and isinstance(sample[0].get(name), str):
            by = f"fmtkit rendered as {type_name}"
        elif frame := _frame_of(found):
            by = f"is rendered already (each of its first {len(found)} begins as {frame} does)"
            by = by.replace("each of its first 1 begins", "it begins")
        else:
            continue
        raise OptionError(
            f"{getattr(source, 'name', 'rows')}: column {name!r} holds text that {by}, and {template} would "
            "render it a second time: convert it as it is (--type passthrough), or render it all the "
            "same with --allow-rendered"
        )


def rendered_as(source: object) -> str | None:
    """Return the type whose template fmtkit rendered a file with, as its metadata or report says."""
    kind, name = getattr(source, "kind", ""), str(getattr(source, "name", ""))
    schema = getattr(source, "schema", None) if kind == "arrow" else None
    said = (schema.metadata if schema is not None else None) or {}
    if said.get(b"fmtkit.template"):
        return bytes(said.get(b"fmtkit.type", b"")).decode()
    report = report_of_file(Path(name)) if name and "://" not in name else {}
    return str(report.get("type")) if report.get("template") else None


def report_of_file(path: Path) -> Mapping[str, Any]:
    """Return the report that names a file as one of its outputs; empty if there is none."""
    of_folder = (path.parent.parent / working_folder.REPORT, f"{path.parent.name}/{path.name}")
    for place, name in ((FileOutput(path).report, path.name), of_folder):
        report = read_json(place)
        if name in (entries_of(report) or {}):
            return report
    return {}


def written_with(text: str) -> str | None:
    """Return the template of whose control tokens a string holds the largest share."""
    if not any(mark in text for mark in ("<", "[")):
        return None
    held = {name: sum(token in text for token in tokens) for name, tokens in _tokens().items()}
    fitting = [name for name, count in held.items() if count >= TOKENS]
    return max(fitting, key=lambda name: held[name] / len(_tokens()[name]), default=None)


def _texts(sample: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the texts of rows, and what the first message of each conversation says, with their columns."""
    for row in sample:
        for name, value in row.items():
            first = value[0] if isinstance(value, list) and value else value
            if isinstance(first, Mapping):
                first = first.get("content", first.get("value"))
            if isinstance(first, str) and first.strip():
                yield name, first


def _frame_of(texts: Sequence[str]) -> str | None:
    """Return the template whose beginning and whose control tokens all of the texts have."""
    # Templates are compiled only for texts that are likely to be rendered.
    if any(len(set(LOOKS.findall(text))) < TOKENS for text in texts):
        return None
    for name, heads in _heads().items():
        if all(_begins(text, heads) for text in texts):
            return name
    return None


def _begins(text: str, heads: tuple[str, ...]) -> bool:
    """Return whether a text begins as a template does, with or without a BOS token."""
    text = text.lstrip()
    first = LOOKS.match(text)
    return text.startswith(heads) or (first is not None and text.startswith(heads, first.end()))


@cache
def _heads() -> dict[str, tuple[str, ...]]:
    """Return what each template with control tokens writes before the first content."""
    found = {}
    for name in _tokens():
        template = template_sources.find_model_template(name)
        heads = {head for probe in _PROBES if (head := _head(template, probe))}
        if heads:
            found[name] = tuple(sorted(heads))
    return found


def _head(template: ChatTemplate, probe: list[Mapping[str, Any]]) -> str:
    try:
        head, said, _ = RowTemplate(template).render(probe).partition(_SAID)
    except TemplateError:
        # Such as a template without a system turn.
        return ""
    head = head.strip()
    return head if said and re.search(LOOKS, head) else ""


@cache
def _tokens() -> dict[str, tuple[str, ...]]:
    """Return the control tokens of the templates that fmtkit ships."""
    found = {}
    for name in template_sources.names():
        if ":" in name:
            continue
        try:
            found[name] = tokens_in(template_sources.find_model_template(name).source)
        except FmtkitError:
            # A template of an installed package that cannot be used says nothing here.
            continue
    return {name: tokens for name, tokens in found.items() if len(tokens) >= TOKENS}
