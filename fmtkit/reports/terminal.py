"""A survey on a terminal: coloured and as wide as the window there, plain text in a pipe.

Whatever comes from the data goes through `visible` or `one_line` and is shown as text: neither its
control bytes nor what looks like rich's markup is obeyed.
"""

from collections.abc import Iterable
from dataclasses import fields

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fmtkit.codes import REASONS
from fmtkit.counting.lengths import Lengths
from fmtkit.escaping import one_line
from fmtkit.reports.histograms import bars, sparkline
from fmtkit.reports.token_text import side_text
from fmtkit.surveying.shown_rows import Place, ShownRow, ShownSide
from fmtkit.surveying.survey_record import Found, Survey

PLACES = 8
"""Places that a finding names on the terminal; --json has more."""

COLUMNS = 40
TYPES = 4
ROW = 160
"""Characters of a source row that are shown."""
COMMAND = 4000


def print_survey(survey: Survey, console: Console) -> None:
    """Print all of a survey."""
    _print_sources(survey, console)
    _print_columns(survey, console)
    _print_rows(survey, console)
    _print_lengths(survey, console)
    _print_cutting(survey, console)
    _print_masks(survey, console)
    _print_anchors(survey, console)
    for row in survey.shown:
        print_row(row, console)
    _print_findings(survey, console)
    for note in survey.notes:
        console.print(Text(f"note: {one_line(note)}", style="yellow"))
    if survey.command:
        _heading(console, "convert it")
        # Not wrapped: it is there to be pasted.
        console.print(Text(one_line(survey.command, COMMAND)), soft_wrap=True)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _table(*columns: str, right: Iterable[str] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", overflow="fold")
    return table


def _print_sources(survey: Survey, console: Console) -> None:
    for source in survey.sources:
        split = f" ({source.split})" if source.split else ""
        console.print(
            Text.assemble(
                (one_line(source.path), "bold"), f": {source.kind}, {source.rows:,} rows{split}"
            )
        )
        if not source.types:
            console.print(Text("  no type fits", style="yellow"))
        for place, guess in enumerate(source.types[:TYPES]):
            mark = "best guess" if place == 0 else "also fits"
            sure = f"{guess.certainty}: " if place == 0 else ""
            line = f"  {mark}: {guess.type} -> {guess.table} ({sure}{guess.reason})"
            console.print(Text(one_line(line)))
    if survey.type:
        parts = [f"read as {survey.type} -> {survey.table}"]
        parts += [f"template {survey.template}"] if survey.template else []
        parts += [f"tokenizer {survey.tokenizer}"] if survey.tokenizer else []
        console.print(Text(one_line(", ".join(parts)), style="italic"))


def _print_columns(survey: Survey, console: Console) -> None:
    whole = survey.columns_rows >= survey.rows_read
    _heading(console, "columns" if whole else f"columns, in {survey.columns_rows:,} of the rows")
    table = _table("column", "holds", "null", right=["null"])
    for column in survey.columns[:COLUMNS]:
        holds = ", ".join(f"{kind} {count:,}" for kind, count in list(column.kinds.items())[:4])
        null = f"{column.null_share:.1%}" if column.null_share else ""
        table.add_row(Text(one_line(column.name, 60)), Text(holds or "nothing"), null)
    console.print(table)
    for row in survey.first_rows:
        console.print(Text(one_line(row, ROW), style="dim"), soft_wrap=True)
    if len(survey.columns) > COLUMNS:
        console.print(
            Text(f"and {len(survey.columns) - COLUMNS:,} more (--json has all)", style="dim")
        )


def _print_rows(survey: Survey, console: Console) -> None:
    if survey.table is None:
        return
    _heading(console, "rows")
    terms = [f"{survey.rows_read:,} read"]
    terms += [
        f"{survey.ledger[term]:,} {term.replace('_', ' ')}"
        for term in ("converted", "quarantined", "no_pair", "filtered")
        if survey.ledger.get(term)
    ]
    terms += [f"{survey.rows:,} rows of the table"]
    console.print(Text(", ".join(terms)))
    if survey.roles:
        roles = ", ".join(f"{one_line(role)} {count:,}" for role, count in survey.roles.items())
        turns = survey.turns
        spread = (
            f"; turns a row: p50 {turns.p50}, p95 {turns.p95}, max {turns.max}" if turns else ""
        )
        console.print(Text(f"messages: {roles}{spread}"))
    if survey.scripts:
        scripts = ", ".join(
            f"{name} {share:.1%}" for name, share in survey.scripts.items() if share >= 0.0005
        )
        console.print(Text(f"scripts: {scripts}"))
    for code, count in survey.ledger.get("reasons", {}).items():
        console.print(Text(f"bad: {count:,} {code} ({REASONS.get(code, '')})", style="red"))
        for bad in (bad for bad in survey.bad_rows if bad.code == code):
            console.print(Text(f"  {place(bad.place)}: {one_line(bad.message, 160)}"))


def _print_lengths(survey: Survey, console: Console) -> None:
    if not survey.lengths:
        return
    _heading(console, f"lengths in {survey.unit}, {survey.lengths_rows:,} rows")
    numbers = ("mean", "p50", "p90", "p95", "p99", "max", "total")
    table = _table(
        "", *numbers, "" if not console.is_terminal else "from shortest to longest", right=numbers
    )
    for figures in survey.lengths:
        spark = sparkline(figures, 20) if console.is_terminal else ""
        values = (figures.p50, figures.p90, figures.p95, figures.p99, figures.max, figures.tokens)
        table.add_row(figures.name, f"{figures.mean:,.1f}", *(f"{v:,}" for v in values), spark)
    console.print(table)
    for figures in main_lengths(survey.lengths):
        scale = ", log scale" if figures.logarithmic else ""
        console.print(Text(f"\n{figures.name} ({survey.unit}{scale})"))
        width = min(console.width, 100) - 2
        for line in bars(figures, width, plain=not console.is_terminal):
            console.print(Text(f"  {line}".rstrip()))


def main_lengths(lengths: Iterable[Lengths]) -> list[Lengths]:
    """Return the figures of whole sequences; of the first column where there are none."""
    everything = list(lengths)
    return [figures for figures in everything if "+" in figures.name] or everything[:1]


def _print_cutting(survey: Survey, console: Console) -> None:
    cutting = survey.cutting
    if cutting is None:
        return
    _heading(console, "what a maximum length costs (rows lost or cut, tokens lost)")
    names = ("max length", "rows", "tokens", "equal", "emptied", "no end of turn")
    table = _table("max length", "way", *names[1:], right=names)
    for cut in cutting.cuts:
        rows = cut.rows_lost + cut.rows_cut
        table.add_row(
            f"{cut.max_length:,}" if cut.way == "drop" else "",
            cut.way,
            f"{rows:,} {rows / cutting.rows:.1%}",
            f"{cut.tokens_lost:,} {cut.tokens_lost / max(cutting.tokens, 1):.1%}",
            *(
                f"{n:,}" if n else ""
                for n in (cut.rows_equal, cut.rows_empty, cut.rows_without_end)
            ),
        )
    console.print(table)
    console.print(
        Text(
            f"smallest length that drops at most {cutting.loss_budget:.2%} of the rows: "
            f"{cutting.smallest_max_length:,}"
        )
    )


def _print_masks(survey: Survey, console: Console) -> None:
    masks = survey.masks
    if masks is None:
        return
    _heading(console, f"trained tokens, in {masks.rows:,} of the rows")
    for why in masks.why:
        console.print(Text(why))
    share = masks.trained / max(masks.tokens, 1)
    console.print(
        Text(
            f"{masks.trained:,} of {masks.tokens:,} tokens ({share:.1%}); a sequence: "
            f"p5 {masks.share_p5:.1%}, p50 {masks.share_p50:.1%}, p95 {masks.share_p95:.1%}"
        )
    )
    table = _table("role", "tokens", "trained", right=["tokens", "trained"])
    for role in masks.roles:
        table.add_row(role.role, f"{role.tokens:,}", f"{role.trained / max(role.tokens, 1):.1%}")
    console.print(table)
    if masks.untrained_rows:
        rows = ", ".join(map(str, masks.untrained_rows))
        console.print(Text(f"rows of which nothing is trained: {rows}", style="red"))
    for note, count in masks.notes.items():
        console.print(Text(f"{count:,} sequences: {one_line(note)}", style="yellow"))


def _print_anchors(survey: Survey, console: Console) -> None:
    anchors = survey.anchors
    if anchors is None:
        return
    keys = ", ".join(
        f"{entry.name} {getattr(anchors.rule, entry.name)}" for entry in fields(anchors.rule)
    )
    _heading(console, f"windows that strided EBFT generates anew ({keys})")
    figures = anchors.per_row
    console.print(
        Text(
            f"{anchors.anchors:,} anchors in {anchors.rows:,} rows; a row: p50 {figures.p50:,}, "
            f"p95 {figures.p95:,}, max {figures.max:,}; rows without any: {anchors.rows_without:,}"
        )
    )
    share = anchors.generated / max(anchors.tokens, 1)
    console.print(
        Text(f"{anchors.generated:,} of {anchors.tokens:,} tokens ({share:.1%}) lie in a window")
    )


def print_row(row: ShownRow, console: Console) -> None:
    """Print one row: trained tokens green, the others grey, every second token underlined."""
    _heading(console, f"row {row.place.row:,}, {place(row.place)}")
    for name, value in row.details.items():
        console.print(Text(f"{one_line(name)}: {one_line(str(value), 200)}", style="dim"))
    if row.problem:
        console.print(Text(one_line(row.problem), style="yellow"))
    for side in row.sides:
        if side.ids:
            share = side.trained_tokens / len(side.ids)
            size = f"{len(side.ids):,} tokens, {share:.1%} trained{windows_of(side)}"
            label = f"{side.side or 'sequence'}: {size}; {side.why}"
            console.print(Text(label, style="italic"))
        elif side.side:
            console.print(Text(side.side, style="italic"))
        console.print(side_text(side, plain=not console.is_terminal))
        for note in side.notes:
            console.print(Text(one_line(note), style="yellow"))


def windows_of(side: ShownSide) -> str:
    """Say how many windows a sequence has and how much they cover; nothing where it has none."""
    if not side.windows:
        return ""
    start, end = side.windows[0]
    share = side.generated_tokens / len(side.ids)
    return f", {len(side.windows):,} windows of {end - start:,} tokens over {share:.1%}"


def _print_findings(survey: Survey, console: Console) -> None:
    if survey.table is None and not survey.findings:
        return
    if not survey.findings:
        _heading(console, "findings: none")
        return
    _heading(console, "findings")
    for found in survey.findings:
        line = Text.assemble(
            (f"{found.count:,} ({found.share:.1%}) ", "bold"),
            (found.code, "red"),
            f": {found.message}",
        )
        console.print(line)
        console.print(Text(f"  {found.advice}", style="dim"))
        for text in _of(found):
            console.print(Text(f"  {text}"))


def _of(found: Found) -> list[str]:
    lines = []
    if found.details:
        shown = (
            f"{k} {v:,.4g}" if isinstance(v, float) else f"{k} {v}"
            for k, v in found.details.items()
        )
        lines.append(one_line(", ".join(shown)))
    if found.places:
        more = found.count - min(len(found.places), PLACES)
        lines.append(places(found.places[:PLACES]) + (f" and {more:,} more" if more > 0 else ""))
    return lines


def places(found: Iterable[Place]) -> str:
    """Write places, the path of each source once."""
    words, source = [], None
    for where in found:
        same = where.source == source and where.line is not None
        words.append(str(where.line) if same else place(where))
        source = where.source
    return ", ".join(words)


def place(where: Place) -> str:
    """Write a place as file:line, or with its row where there is no line."""
    path = one_line(where.source)
    return f"{path}:{where.line}" if where.line is not None else f"{path} row {where.source_row}"
