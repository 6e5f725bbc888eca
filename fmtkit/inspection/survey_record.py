"""The survey as data: what a source is, what a model would read of it, and what is wrong with it.

fmtkit.inspection.inspection makes one; fmtkit.reports shows it on a terminal, as JSON, as a page, as a plot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fmtkit.core import notebook_html
from fmtkit.core.codes import found_among
from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted, one_line
from fmtkit.core.secret_keys import hidden
from fmtkit.core.text_parts import INDENT, LEFT, Columns, Line, Part, plain_text
from fmtkit.counting.lengths import Lengths
from fmtkit.detection.other_commands import Reading
from fmtkit.detection.unread_columns import OpenColumn, in_words
from fmtkit.findings.cutting import Cutting
from fmtkit.findings.image_tally import ImageSummary
from fmtkit.findings.mask_summary import MaskSummary
from fmtkit.findings.source_columns import ColumnSummary
from fmtkit.findings.verdicts import Verdict, judge
from fmtkit.formats.table_schemas import DRAFT
from fmtkit.inspection.anchor_counts import AnchorSummary
from fmtkit.inspection.shown_rows import Place, ShownRow
from fmtkit.inspection.type_guesses import Guess


@dataclass(frozen=True)
class SourceSummary:
    """One source."""

    path: str
    kind: str
    rows: int
    split: str
    """The split that its name implies: train, test or validation; empty if it implies none."""
    types: tuple[Guess, ...]
    """The types that its first rows fit, best first."""


@dataclass(frozen=True)
class BadRow:
    """A row that could not be converted."""

    place: Place
    code: str
    column: str | None
    message: str
    raw: str
    """The beginning of its bytes, as text."""


@dataclass(frozen=True)
class FindingSummary:
    """A finding, with the places of its first rows."""

    code: str
    severity: str
    """error, warning or note; `fmtkit.findings.advice` says what they mean."""
    count: int
    share: float
    places: tuple[Place, ...]
    message: str
    advice: str
    details: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Survey:
    """Everything that `fmtkit inspect` says."""

    fmtkit: str
    sources: tuple[SourceSummary, ...]
    best_guess: str | None
    """The type that fits all sources best."""
    certainty: str | None
    """How sure that guess is: sure, likely or unsure."""
    command: str | None
    """A command that converts the sources as the best guess, tried on their first rows."""
    type: str | None
    """The type by which the rows were read: the one asked for, else the best guess."""
    guessed: bool
    """Whether the type was detected, not named."""
    table: str | None
    template: str | None
    tokenizer: str | None
    method: str | None
    rows_read: int
    rows: int
    """Rows of the table, in which each pair made of a ranking is a row."""
    ledger: Mapping[str, Any]
    bad_rows: tuple[BadRow, ...]
    """The first bad rows of each code."""
    columns: tuple[ColumnSummary, ...]
    columns_rows: int
    """Rows that were looked at for `columns` and `scripts`."""
    first_rows: tuple[str, ...]
    """The first rows of the source as JSON, cut."""
    roles: Mapping[str, int]
    turns: Lengths | None
    scripts: Mapping[str, float]
    """Script -> share of the letters."""
    unit: str
    """What `lengths` count: tokens or characters."""
    lengths: tuple[Lengths, ...]
    lengths_rows: int
    """Rows whose lengths were counted: all that have a text, unless a sample was asked for."""
    cutting: Cutting | None
    masks: MaskSummary | None
    anchors: AnchorSummary | None
    """The windows of a Tokens table, None for other tables."""
    findings: tuple[FindingSummary, ...]
    shown: tuple[ShownRow, ...]
    """The rows that --show-mask and --row asked for."""
    notes: tuple[str, ...]
    """What the survey could not examine, and which option would allow it."""
    open_columns: tuple[OpenColumn, ...] = ()
    """Columns that the type does not read and that could hold something to train on."""
    readings: tuple[Reading, ...] = ()
    """Commands that read them, carry them through, or ignore them."""
    images: ImageSummary | None = None
    """The images of the rows; None where the table has none."""

    @property
    def verdict(self) -> Verdict:
        """Return the survey's conclusion as a sentence."""
        return judge(
            self.ledger,
            self.rows_read,
            [found.severity for found in self.findings],
            type=self.type,
            certainty=self.certainty if self.guessed else None,
            unread=in_words(self.open_columns) if self.open_columns else "",
        )

    def __str__(self) -> str:
        """Return the verdict, findings, lengths and notes; `fmtkit inspect --all` prints all."""
        parts: list[Part] = [
            Line(", ".join(one_line(source.path) for source in self.sources)),
            Line(f"read as {one_line(self.type)} -> {self.table}" if self.type else "no type fits"),
            Line(f"{notebook_html.MARKS.get(self.verdict.severity, '✖')} {self.verdict.text}"),
            _columns(
                (f"{found.severity}", found.code, f"{found.count:,}", found.message)
                for found in self.findings
            ),
            Line(f"lengths in {self.unit}: p50, p95, p99, max") if self.lengths else Line(""),
            _columns(
                (one.name, *(f"{n:,}" for n in (one.p50, one.p95, one.p99, one.max)))
                for one in self.lengths
            ),
            *(Line(f"note: {one_line(note)}") for note in self.notes),
            *([Line(one_line(self.command, len(self.command)))] if self.command else []),
        ]
        return hidden(
            "".join(line for line in plain_text(parts).splitlines(keepends=True) if line.strip())
        ).rstrip()

    def __repr__(self) -> str:
        """Return the type and the counts: `print` shows the rest."""
        found = f"{self.rows:,} rows, {counted(len(self.findings), 'finding')}"
        return f"<Survey of {self.type or 'rows that no type fits'}: {found}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, findings, lengths and columns."""
        verdict = self.verdict
        read = f"{self.type} -> {self.table}" if self.type else None
        return notebook_html.card(
            verdict.text,
            notebook_html.facts(
                {
                    "sources": ", ".join(source.path for source in self.sources),
                    "read as": read,
                    "best guess": self.best_guess,
                    "command": self.command,
                }
            ),
            notebook_html.table(
                ["finding", "severity", "rows", "meaning", "what to do"],
                ((f.code, f.severity, f.count, f.message, f.advice) for f in self.findings),
            ),
            notebook_html.table(
                [f"length in {self.unit}", "p50", "p95", "p99", "max"],
                ((one.name, one.p50, one.p95, one.p99, one.max) for one in self.lengths),
            ),
            notebook_html.table(
                ["column", "holds", "null or absent"],
                ((c.name, " or ".join(c.kinds), f"{c.null_share:.1%}") for c in self.columns),
            ),
            notebook_html.table(["note"], ((note,) for note in self.notes)),
            severity=verdict.severity,
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the survey as JSON-able data; schemas/survey.schema.json describes it."""
        return {"verdict": plain(self.verdict), **plain(self)}

    def found(self, codes: Iterable[str]) -> tuple[str, ...]:
        """Return which of these codes were found, among findings, bad rows and warnings."""
        named = (finding.code for finding in self.findings)
        counts = (self.ledger.get(name, {}) for name in ("reasons", "warnings"))
        return found_among(codes, named, *counts)


def _columns(rows: Iterable[tuple[str, ...]]) -> Columns:
    cells = [tuple(map(Line, row)) for row in rows]
    return Columns((LEFT,) * len(cells[0]) if cells else (), cells, INDENT)


def plain(value: Any) -> Any:
    """Turn dataclasses, tuples and mappings into what JSON has, and hide the secrets in texts."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: plain(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {hidden(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return hidden(value) if isinstance(value, str) else value


SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null"}


def survey_schema() -> dict[str, Any]:
    """Return the JSON Schema of a survey, made of its dataclasses: schemas/survey.schema.json."""
    definitions: dict[str, Any] = {}
    verdict = _schema(Verdict, definitions)
    own = _object(Survey, definitions)
    own["required"].insert(0, "verdict")
    own["properties"] = {"verdict": verdict, **own["properties"]}
    return {
        "$schema": DRAFT,
        "title": "survey",
        "description": "What `fmtkit inspect --json` prints.",
        **own,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(record: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(record)
    names = [entry.name for entry in fields(record)]
    return {
        "type": "object",
        "required": names,
        "properties": {name: _schema(hints[name], definitions) for name in names},
        "additionalProperties": False,
    }


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if hint in SCALARS:
        return {"type": SCALARS[hint]}
    if is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    arguments = get_args(hint)
    if isinstance(hint, UnionType):
        return {"anyOf": [_schema(argument, definitions) for argument in arguments]}
    if get_origin(hint) is tuple:
        return _array(arguments, definitions)
    if get_origin(hint) is Mapping:
        values = {} if arguments[1] is Any else _schema(arguments[1], definitions)
        return {"type": "object", "additionalProperties": values}
    return {}


def _array(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    items = [_schema(argument, definitions) for argument in arguments]
    return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
