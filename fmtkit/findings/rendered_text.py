"""Finds columns of rendered text, recognized by the template's control tokens, and transcripts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fmtkit.columns.transcripts import asked_in, marks_of
from fmtkit.detection.rendered_texts import written_with
from fmtkit.findings.findings import Finding

CODE = "rendered_text"
TRANSCRIPT = "transcript"
FULL = 0.5
"""Share of a column's strings that must be rendered or transcripts."""


def find(sample: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return the finding of text columns that a template wrote, with the template's name by column.

    `count` and `share` are those of the sample.
    """
    columns: dict[str, list[str]] = {}
    for row in sample:
        for name, value in row.items():
            if isinstance(value, str):
                columns.setdefault(name, []).append(value)
    found = {name: _template_of(texts) for name, texts in columns.items()}
    templates = {name: written for name, written in found.items() if written is not None}
    if not templates:
        return ()
    count = max(count for _, count in templates.values())
    details = {name: template for name, (template, _) in templates.items()}
    return (Finding(CODE, count, count / len(sample), (), details),)


def find_transcripts(sample: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
    """Return the finding of texts, and of user turns, that hold a conversation, with its marks.

    `count` and `share` are those of the sample.
    """
    rows: list[int] = []
    names: list[str] = []
    texts: list[str] = []
    for number, row in enumerate(sample):
        for name, text in asked_in(row):
            rows.append(number)
            names.append(name)
            texts.append(text)
    marks = marks_of(texts)
    found = [place for place, marked in enumerate(marks) if marked]
    if not found:
        return ()
    count = len({rows[place] for place in found})
    details = {names[place]: str(marks[place]) for place in reversed(found)}
    return (Finding(TRANSCRIPT, count, count / len(sample), (), details),)


def _template_of(texts: Sequence[str]) -> tuple[str, int] | None:
    """Return the template that most of the texts are written with, and how many are."""
    written = [template for text in texts if (template := written_with(text))]
    if len(written) < FULL * len(texts):
        return None
    return Counter(written).most_common(1)[0][0], len(written)
