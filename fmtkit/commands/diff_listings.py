"""What `fmtkit diff` prints: the rows of both sides by result, the rules, and rows side by side."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from fmtkit.core.escaping import one_line
from fmtkit.diffing.result import Diff, Example
from fmtkit.reports.console import aligned, output, print_json, show

_WIDTH = 100
"""Characters of a text in an example; --json prints all of them."""


def print_diff(found: Diff, *, as_json: bool) -> None:
    """Print a diff as JSON, or as a summary with examples; control bytes are shown, not obeyed."""
    if as_json:
        print_json(found.as_dict())
        return
    title = f"{found.left.name} and {found.right.name}: {_verdict(found)}"
    parts: list[Any] = [Text(one_line(title), style="bold"), Text(""), _counts(found)]
    parts += _rules(found)
    for side, counts in ((found.left, found.only_left), (found.right, found.only_right)):
        parts += _codes(f"only in {side.name}", counts, found)
    parts += _refusals(found)
    for example in found.examples:
        parts += [Text(""), *_example(example, found)]
    parts += [Text(one_line(f"note: {note}"), style="yellow") for note in found.notes]
    show(output(), *parts)


def _verdict(found: Diff) -> str:
    if found.is_equal:
        return "the same rows"
    return "not the same rows" if found.exit_code else "not the same rows, by what is allowed alone"


def _counts(found: Diff) -> Any:
    table = aligned("left", "right", "left")
    rows, left, right = found.rows, found.left, found.right
    for name, number, about in (
        (left.name, rows["left"], f"rows, {left.trained_tokens:,} trained tokens"),
        (right.name, rows["right"], f"rows, {right.trained_tokens:,} trained tokens"),
        ("equal", rows["equal"], "same tokens, same loss mask"),
        ("different", rows["different"], "aligned but different"),
        (f"only {left.name}", rows["only_left"], ""),
        (f"only {right.name}", rows["only_right"], ""),
    ):
        table.add_row(Text(one_line(name)), f"{number:,}", about)
    return table


def _rules(found: Diff) -> list[Any]:
    if not found.rules:
        return []
    table = aligned("left", "right", "right", "left")
    for code, count in found.rules.items():
        share = f"{found.shares[code]:.1%}"
        table.add_row(Text(code, style="cyan"), f"{count:,}", share, _meaning(code, found))
    return [Text(""), Text("differ by: rows, share of the trained tokens", style="bold"), table]


def _codes(title: str, counts: Mapping[str, int], found: Diff) -> list[Any]:
    if not counts:
        return []
    table = aligned("left", "right", "left")
    for code, count in counts.items():
        table.add_row(Text(code, style="cyan"), f"{count:,}", _meaning(code, found))
    return [Text(""), Text(one_line(title), style="bold"), table]


def _meaning(code: str, found: Diff) -> str:
    return f"{found.meaning(code)}{' (allowed)' if code in found.allowed else ''}"


def _refusals(found: Diff) -> list[Any]:
    lines = []
    if long := found.ledger.get("overlong_dropped"):
        lines.append(f"rows that fmtkit left out, longer than sequence_len: {long:,}")
    if found.reasons:
        codes = ", ".join(f"{code} {count:,}" for code, count in found.reasons.items())
        lines.append(f"rows that fmtkit refused: {codes}; `fmtkit convert -c` lists them")
    for why, count in found.refused.items():
        lines.append(f"refused by {found.right.name}: {count:,}: {why}")
    return [Text(""), *(Text(one_line(line)) for line in lines)] if lines else []


def _example(example: Example, found: Diff) -> list[Any]:
    names = found.left.name, found.right.name
    numbers = example.left_row, example.right_row
    places = [f"{n} row {row}" for n, row in zip(names, numbers, strict=True) if row is not None]
    side = f" {example.side}" if example.side else ""
    at = "" if example.token is None else f", token {example.token}"
    head = f"{', '.join(places)}{side}{at}: {', '.join(example.rules)}: {example.detail}"
    texts = [("before", example.before), (names[0], example.left), (names[1], example.right)]
    width = max(len(name) for name, _ in texts) + 1
    lines = [
        Text(f"  {one_line(name):{width}}{one_line(text, _WIDTH)}") for name, text in texts if text
    ]
    return [Text(one_line(head), style="cyan"), *lines]
