"""Rewards on stdout: the library, and what functions gave when they were tried."""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fmtkit.core.escaping import one_line, visible
from fmtkit.reports.console import aligned, errors, output, print_json, show
from fmtkit.rewards import LIBRARY

if TYPE_CHECKING:
    from fmtkit.training.online.rewards.trial_outcome import Outcome, Trial

_SHOWN = 32
"""Characters of a prompt or a completion in the table; --json has all of them."""


def print_library(*, as_json: bool) -> None:
    """Print every reward of the library with its options."""
    entries = library()
    if as_json:
        print_json(entries)
        return
    table = aligned("left", "left", "left")
    for entry in entries:
        options = ", ".join(_option(name, value) for name, value in entry["options"].items())
        table.add_row(Text(entry["name"], style="cyan"), Text(options), Text(entry["about"]))
    show(output(), table)
    show(errors(), Text(_LEGEND, style="dim"))


_LEGEND = """\
trl.reward_funcs: [NAME], or with options [{NAME: {option: value}}]; `fmtkit rewards test CONFIG` runs them"""


def library() -> list[dict[str, Any]]:
    """Return every reward of the library: its name, its options with their defaults, what it does."""
    return [
        {
            "name": f"fmtkit.rewards.{name}",
            "options": {f.name: None if f.default is MISSING else f.default for f in fields(made)},
            "about": inspect.cleandoc(made.__doc__ or "").partition("\n")[0],
        }
        for name, made in LIBRARY.items()
    ]


def print_trial(trial: "Trial", *, as_json: bool) -> None:
    """Print the rewards row by row, then each function, then what looks wrong."""
    if as_json:
        print_json(trial.to_json())
        return
    data = trial.to_json()
    console = output()
    named = [function["name"] for function in data["functions"]]
    shown = [one for one in named if _ran(data, one)]
    rows = aligned("right", "left", "left", "left", *["right"] * (len(shown) + 1))
    rows.add_row(*_bold(["row", "prompt", "kind", "completion", *shown, "total"]))
    for tried, one in zip(trial.tried, data["completions"], strict=True):
        values = [_number(one["rewards"].get(name)) for name in shown]
        texts = [_short(_prompt(tried.prompt)), tried.kind, _short(tried.text)]
        rows.add_row(str(one["row"]), *map(Text, texts), *values, _number(one["total"]))
    show(console, rows, Text(""))
    functions = aligned("left", "right", "right", "right", "right", "right", "left")
    functions.add_row(*_bold(["function", "weight", "mean", "min", "max", "none", "took"]))
    for outcome, each in zip(trial.outcomes, data["functions"], strict=True):
        functions.add_row(*_function(outcome, each))
    show(console, functions)
    for outcome in trial.outcomes:
        for name, value in (outcome.logged or {}).items():
            show(console, Text(visible(f"{outcome.name} logged {name}: {_short(str(value))}")))
    for outcome in trial.outcomes:
        if outcome.error:
            show(console, Text(""), Text(visible(f"error: {outcome.error}"), style="red"))
            show(console, Text(visible(outcome.trace.rstrip()), style="dim"))
    for remark in trial.remarks:
        show(console, Text(visible(f"note: {remark}"), style="yellow"))


def _ran(data: Mapping[str, Any], name: str) -> bool:
    return all(name in one["rewards"] for one in data["completions"])


def _function(outcome: "Outcome", each: Mapping[str, Any]) -> list[Any]:
    label = Text(visible(outcome.label), style="red" if outcome.error else "cyan")
    if outcome.rewards is None:
        said = "not run" if outcome.is_model else "error"
        return [label, f"{outcome.weight:g}", said, "", "", "", ""]
    figures = [_number(each[name]) for name in ("mean", "min", "max")]
    return [
        label,
        f"{outcome.weight:g}",
        *figures,
        str(each["none"]),
        f"in {outcome.seconds:.2f} s",
    ]


def _bold(names: Sequence[str]) -> list[Text]:
    return [Text(name, style="bold") for name in names]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4g}"


def _prompt(prompt: Any) -> str:
    return prompt if isinstance(prompt, str) else str(prompt[-1].get("content") or "")


def _short(text: str) -> str:
    line = visible(one_line(text))
    return line if len(line) <= _SHOWN else line[: _SHOWN - 3] + "..."


def _option(name: str, value: object) -> str:
    return f"{name}" if value is None else f"{name}={value!r}"
