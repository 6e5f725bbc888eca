"""Makes the survey of an inspection: its figures, the rows of its findings, and masks of some rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from fmtkit.core.codes import Reject
from fmtkit.core.data_classes import dataclass
from fmtkit.core.distributions import own_version
from fmtkit.core.secret_keys import AHEAD, beginning, hidden, secrets_in
from fmtkit.counting.lengths import Lengths, Tally, summarize, summarize_all
from fmtkit.detection.no_type_advice import unfitting, unread
from fmtkit.detection.unread_columns import TURNS, OpenKeys
from fmtkit.findings.advice import ADVICE, SEVERITIES
from fmtkit.findings.cutting import EXAMPLES, Cutting
from fmtkit.findings.findings import Finding
from fmtkit.findings.mask_summary import MaskTally
from fmtkit.findings.source_columns import ColumnCounts, texts_of
from fmtkit.inspection.collector import RowStatistics, Viewer
from fmtkit.inspection.row_fetch import Fetched, RowFetch
from fmtkit.inspection.shown_rows import Place, RowViewer, ShownRow, without_secrets
from fmtkit.inspection.survey_record import BadRow, FindingSummary, SourceSummary, Survey
from fmtkit.masks.masked import Masked
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.running.ledger import Ledger
from fmtkit.running.task_work import naming_lost_tasks
from fmtkit.sources.blocks import Block
from fmtkit.sources.source import Source
from fmtkit.work.engine_choice import engine_of
from fmtkit.work.tasks import Task, blocks_of, can_travel, tasks_of

MASK_ROWS = 200
"""Rows whose loss masks are counted."""

BAD_EXAMPLES = 3
"""Bad rows of each code that are shown."""

RAW_SHOWN = 500
ORDER = (
    "prompt", "chosen", "prompt+chosen", "rejected", "prompt+rejected", "completion",
    "prompt+completion", "ground_truth", "prompt+ground_truth", "steps", "prompt+steps",
)  # fmt: skip


@dataclass
class BadRows:
    """The first bad rows of each code."""

    found: dict[str, list[tuple[int, Reject]]] = field(default_factory=dict)

    def add(self, rejects: Iterable[Reject], first: int) -> None:
        """Add the first rejects of each code of a source whose row 0 is row `first` here."""
        for reject in rejects:
            self._keep(reject.code, first + reject.row, reject)

    def absorb(self, other: "BadRows", first: int) -> None:
        """Add the first bad rows of each code of other rows, whose row 0 is row `first` here."""
        for code, rejects in other.found.items():
            for number, reject in rejects:
                self._keep(code, number + first, reject)

    def placed(self, line: Callable[[int, int | None], int | None]) -> "BadRows":
        """Return the same with the line numbers that `line` returns for row and line."""
        return BadRows(
            {
                code: [(n, replace(r, line=line(n, r.line))) for n, r in rejects]
                for code, rejects in self.found.items()
            }
        )

    def _keep(self, code: str, number: int, reject: Reject) -> None:
        known = self.found.setdefault(code, [])
        if len(known) < BAD_EXAMPLES:
            known.append((number, reject))

    def rows(self, fetch: RowFetch) -> tuple[BadRow, ...]:
        """Return the bad rows with their places, in the order of their codes."""
        return tuple(
            bad_row(fetch.place(number, reject.line), reject)
            for _, rejects in sorted(self.found.items())
            for number, reject in rejects
        )


def bad_row(place: Place, reject: Reject) -> BadRow:
    """Return a reject as a bad row of a survey."""
    raw = reject.raw[:RAW_SHOWN].decode("utf-8", "backslashreplace")
    longer = reject.raw[: RAW_SHOWN + AHEAD].decode("utf-8", "backslashreplace")
    shown = beginning(longer, len(raw)) if secrets_in(longer) else raw
    return BadRow(place, reject.code, reject.column, hidden(reject.message), shown)


@dataclass(frozen=True)
class Passed:
    """The results of the first pass over the rows."""

    statistics: RowStatistics
    ledger: Ledger
    fetch: RowFetch


def make_survey(passed: Passed, viewer: Viewer, rows: RowViewer, options: InspectOptions) -> Survey:
    """Make the survey from the results of the first pass."""
    statistics, ledger, fetch = passed.statistics, passed.ledger, passed.fetch
    cutting = statistics.cutting.report(options.loss_budget) if statistics.cutting else None
    if cutting is not None and options.max_length:
        _note_equal(statistics, cutting)
    found = {one.name: one.could_be for one in fetch.job.open_columns}
    keys = fetch.job.open_keys
    found_in_rows = statistics.images.detailed(statistics.findings.result())
    findings = (*found_in_rows, *_unread(ledger, found), *_of_keys(keys))
    seen = _look_closely(statistics, fetch, rows, findings, options)
    # A code of all rows says more than that of the rows whose masks were looked at.
    known = {finding.code for finding in findings}
    findings = (*findings, *(f for f in seen.tally.findings() if f.code not in known))
    tallies = sorted(statistics.tallies.items(), key=_order)
    masks = seen.tally.summary()
    letters = statistics.columns.scripts.total() or 1
    return Survey(
        fmtkit=own_version(),
        sources=(),
        best_guess=None,
        certainty=None,
        command=None,
        type=fetch.job.options.type,
        guessed=False,
        table=fetch.job.table.name(),
        template=viewer.template.name if viewer.template else None,
        tokenizer=viewer.tokenizer.name if viewer.tokenizer else None,
        method=rows.masking.method,
        rows_read=ledger.rows_read,
        rows=ledger.rows_written,
        ledger=ledger.as_dict(),
        bad_rows=(),
        columns=statistics.columns.summaries(),
        columns_rows=statistics.columns.rows,
        first_rows=(),
        roles=dict(statistics.shapes.roles.most_common()),
        turns=summarize("turns", statistics.shapes.turns),
        scripts={name: n / letters for name, n in statistics.columns.scripts.most_common()},
        unit="tokens" if viewer.tokenizer else "characters",
        lengths=summarize_all(tallies),
        lengths_rows=statistics.counted,
        cutting=cutting,
        masks=masks,
        anchors=statistics.anchors.summary(rows.masking.anchors),
        findings=tuple(
            _found(finding, fetch, statistics.lines | seen.lines) for finding in findings
        ),
        shown=tuple(seen.shown),
        images=statistics.images.summary(),
        notes=tuple(_notes(statistics, fetch, viewer)),
        open_columns=(
            *(one for one in fetch.job.open_columns if one.name in ledger.unread),
            *keys.found,
        ),
    )


def _of_keys(keys: OpenKeys) -> list[Finding]:
    """Return the finding for keys of messages that the type does not read, in the first rows."""
    if not keys.found:
        return []
    details = {one.name: one.could_be for one in keys.found}
    return [Finding("open_keys", keys.rows, keys.rows / keys.of_rows, (), details)]


def _unread(ledger: Ledger, found: Mapping[str, str]) -> list[Finding]:
    """Return the findings for columns that the type does not read, with the rows of each.

    `found` are the open columns with what they could be; of others their names say what they are.
    """
    counts = {
        "unread_turns": {
            n: rows for n, rows in ledger.unread.items() if found.get(n, TURNS) == TURNS
        },
        "open_columns": {
            n: rows for n, rows in ledger.unread.items() if found.get(n, TURNS) != TURNS
        },
    }
    return [
        Finding(
            code, ledger.warnings[code], ledger.warnings[code] / max(ledger.converted, 1), (), rows
        )
        for code, rows in counts.items()
        if ledger.warnings[code]
    ]


def make_bare_survey(
    sources: Sequence[Source],
    summaries: Sequence[SourceSummary],
    samples: Sequence[Sequence[Mapping[str, Any]]],
    options: InspectOptions,
) -> Survey:
    """Make the survey of sources that no type reads: their rows, columns and lengths."""
    columns, counts = _counted_sources(sources, options)
    summaries = tuple(replace(s, rows=counts[i]) for i, s in enumerate(summaries))
    guesses = {summary.types[0].type for summary in summaries if summary.types}
    reason = (
        f"the sources are of different types, {', '.join(sorted(guesses))}: inspect each separately"
        if guesses
        else unfitting([source.given for source in sources], samples, sources, options)
    )
    if columns.unread and not columns.rows:
        codes = ", ".join(f"{code} {count}" for code, count in columns.unread.most_common())
        reason = f"{unread(sources, f' ({codes})')}; `fmtkit validate` lists all"
    letters = columns.scripts.total() or 1
    return Survey(
        fmtkit=own_version(),
        sources=summaries,
        best_guess=None,
        certainty=None,
        command=None,
        type=None,
        guessed=False,
        table=None,
        template=None,
        tokenizer=None,
        method=None,
        rows_read=counts.total(),
        rows=0,
        ledger={},
        bad_rows=(),
        columns=columns.summaries(),
        columns_rows=columns.rows,
        first_rows=(),
        roles={},
        turns=None,
        scripts={name: n / letters for name, n in columns.scripts.most_common()},
        unit="characters",
        lengths=_column_lengths(samples),
        lengths_rows=sum(map(len, samples)),
        cutting=None,
        masks=None,
        anchors=None,
        findings=(),
        shown=(),
        notes=(reason,),
    )


def _counted_sources(
    sources: Sequence[Source], options: InspectOptions
) -> tuple[ColumnCounts, Counter[int]]:
    """Count the columns of sources, and the rows of each."""
    engine, tasks = engine_of(options), tasks_of(sources)
    if options.engine == "ray" and all(map(can_travel, sources)):
        mapped = engine.map(BareTask(tuple(sources)), iter(tasks))
        found: Iterator[tuple[ColumnCounts, Counter[int]]] = naming_lost_tasks(mapped, sources)
    else:
        found = engine.map(_counted, blocks_of(sources, tasks))
    columns, counts = ColumnCounts(), Counter[int]()
    for more, rows in found:
        columns.absorb(more)
        counts.update(rows)
    return columns, counts


@dataclass(frozen=True)
class BareTask:
    """Counts the columns of a task, and the rows of each of its sources; it can be pickled."""

    sources: tuple[Source, ...]

    def __call__(self, task: Task) -> tuple[ColumnCounts, Counter[int]]:
        """Read a task."""
        columns, counts = ColumnCounts(), Counter[int]()
        for more, rows in map(_counted, blocks_of(self.sources, [task])):
            columns.absorb(more)
            counts.update(rows)
        return columns, counts


def _counted(numbered: tuple[int, int, Block]) -> tuple[ColumnCounts, Counter[int]]:
    """Count the columns and rows of a block."""
    index, number, block = numbered
    columns = ColumnCounts()
    columns.add_block(block, number)
    return columns, Counter({index: len(block.records()) + len(block.rejects)})


def _column_lengths(samples: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[Lengths, ...]:
    """Count the characters of each column's texts in the first rows."""
    tallies: dict[str, Tally] = {}
    for name, value in ((n, v) for rows in samples for row in rows for n, v in row.items()):
        texts = texts_of(value)
        if texts:
            size = np.array([sum(map(len, texts))], dtype=np.int64)
            tallies.setdefault(name, Tally()).add(size)
    return summarize_all(list(tallies.items()))


@dataclass
class _Seen:
    tally: MaskTally = field(default_factory=MaskTally)
    shown: list[ShownRow] = field(default_factory=list)
    lines: dict[int, int | None] = field(default_factory=dict)


def _look_closely(
    statistics: RowStatistics,
    fetch: RowFetch,
    rows: RowViewer,
    findings: Sequence[Finding],
    options: InspectOptions,
) -> _Seen:
    """Fetch the rows whose masks are counted, that are shown, or whose line is not known yet."""
    seen = _Seen(MaskTally(rows.masking.turns.ends))
    masked = set(fetch.sample(MASK_ROWS)) if rows.tokenizer else set()
    shown = {
        *fetch.begin(options.show_mask),
        *(r for r in options.rows if r < fetch.rows),
    }
    late = {row for f in findings for row in f.rows if row not in statistics.lines}
    for fetched in fetch.fetch(masked | shown | late):
        number = fetched.place.row
        seen.lines[number] = fetched.place.line
        if number in shown or (number in masked and fetched.row is not None):
            found = _see(seen, fetched, rows, is_masked=number in masked, is_shown=number in shown)
            if statistics.observed is not None and number in masked:
                statistics.observed.add_masks(number, found)
    return seen


def _see(
    seen: _Seen, fetched: Fetched, rows: RowViewer, *, is_masked: bool, is_shown: bool
) -> tuple[Masked, ...]:
    row, masked = show(fetched, rows)
    if is_masked and fetched.row is not None:
        seen.tally.add(masked, fetched.place.row)
    if is_shown:
        seen.shown.append(row)
    return masked


def show(fetched: Fetched, rows: RowViewer) -> tuple[ShownRow, tuple[Masked, ...]]:
    """Return a fetched row as it is shown, or the reason why there is none."""
    if fetched.row is not None:
        shown, masked = rows.show(fetched.row, fetched.place)
        return without_secrets(shown), masked
    reject = fetched.reject
    why = (
        f"{reject.code}: {reject.message}"
        if reject
        else "no row of the table is made of this row: it is part of another one, or left out"
    )
    return ShownRow(fetched.place, (), why, {}), ()


def _note_equal(statistics: RowStatistics, cutting: Cutting) -> None:
    """Add a finding for pairs that become equal when they are truncated to `max_length`."""
    equal = [cut for cut in cutting.cuts if cut.rows_equal and cut.way != "drop"]
    if equal:
        worst = max(equal, key=lambda cut: cut.rows_equal)
        statistics.findings.counts["equal_after_cutting"] = worst.rows_equal
        statistics.findings.examples["equal_after_cutting"] = list(worst.equal_rows)[:EXAMPLES]


def _found(finding: Finding, fetch: RowFetch, lines: Mapping[int, int | None]) -> FindingSummary:
    places = tuple(fetch.place(row, lines.get(row)) for row in dict.fromkeys(finding.rows))
    return finding_summary(finding, places)


def worst_first(findings: Iterable[FindingSummary]) -> tuple[FindingSummary, ...]:
    """Order findings by severity, then by their rows."""
    return tuple(sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), -f.count, f.code)))


def finding_summary(finding: Finding, places: tuple[Place, ...] = ()) -> FindingSummary:
    """Return a finding with its advice."""
    message, advice, severity = ADVICE[finding.code]
    count, share = finding.count, finding.share
    return FindingSummary(
        finding.code, severity, count, share, places, message, advice, finding.details
    )


def _order(item: tuple[str, object]) -> tuple[int, str]:
    name = item[0]
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def _notes(statistics: RowStatistics, fetch: RowFetch, viewer: Viewer) -> list[str]:
    notes = []
    if viewer.stride > 1:
        notes.append(
            f"lengths are of one row in {viewer.stride:,} (--sample): {statistics.counted:,} rows"
        )
    if viewer.template is None and viewer.tokenizer is not None and statistics.shapes.roles:
        notes.append("lengths count only the contents: there is no template that writes the turns")
    if viewer.visual is not None and statistics.images.rows:
        notes.append("lengths include the tokens of images; masks show an image as its placeholder")
    for message, count in statistics.refusals.most_common(3):
        notes.append(f"the template refuses {count:,} rows: {message}")
    if any(source.once for source in fetch.job.sources):
        notes.append("a stream is read once: rows are shown from its beginning only")
    return notes
