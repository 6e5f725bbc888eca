"""What `train` and `try` print: plans, what a run wrote, two models' answers."""

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from rich.text import Text

from fmtkit.core.errors import FmtkitError, OptionError
from fmtkit.core.escaping import counted, one_line, visible
from fmtkit.reports.console import aligned, errors, output, print_json, show

if TYPE_CHECKING:
    from fmtkit.training.planning.run_plan import Groups
    from fmtkit.training.run.run import Outcome
    from fmtkit.training.trained.trying import Item, Trial

_WIDTH = 100
"""Characters of a string in an example; --json prints all of them."""
_BY_DEFAULT = "default"
"""How the origin begins of what nobody set."""
_LEFT = ("model", "merged", "metrics.jsonl", "report.html", "answers.html")
"""Files of a run folder that are listed when the run has ended."""


def print_outcome(
    outcome: "Outcome", *, as_json: bool, dry_run: bool, prepared: bool = False
) -> None:
    """Print the plan of a dry run, the command of a prepared one, or where a finished one left its model."""
    if dry_run and not as_json and (console := output()).is_terminal:
        show(console, *_fitted(outcome.plan.groups(), console.width))
    elif dry_run:
        sys.stdout.write(f"{outcome.plan.dumps() if as_json else outcome.plan}\n")
    elif prepared:
        command = shlex.join(outcome.plan.launch.command)
        sys.stdout.write(f"{outcome.plan.dumps() if as_json else command}\n")
    elif outcome.report is not None:
        whole = json.dumps(outcome.report, indent=1, ensure_ascii=False)
        sys.stdout.write(f"{whole if as_json else outcome.plan.run / 'model'}\n")


def print_folder(folder: Path, given: Mapping[str, object], *, as_json: bool) -> int:
    """Plan each config below a folder, print a line on each and how many plan; return the exit code."""
    from fmtkit import training

    files = sorted(p for p in folder.rglob("*") if p.suffix in {".yaml", ".yml"} and p.is_file())
    if not files:
        raise OptionError(f"{folder}: there is no .yaml file in it")
    told: list[dict[str, object]] = []
    for file in files:
        try:
            outcome = training.train(file, **given)  # type: ignore[arg-type]
        except FmtkitError as error:
            told.append({"config": str(file), "plans": False, "why": " | ".join(error.lines)})
        else:
            missing = ", ".join(outcome.plan.missing)
            why = f"{missing}: needed to train" if missing else ""
            told.append(
                {
                    "config": str(file),
                    "plans": not missing,
                    "method": outcome.plan.method,
                    "why": why,
                }
            )
    planned = sum(one["plans"] is True for one in told)
    if as_json:
        sys.stdout.write(f"{json.dumps(told, indent=1, ensure_ascii=False)}\n")
    else:
        for one in told:
            what = f"plans: {one['method']}" if one["plans"] else f"does not plan: {one['why']}"
            sys.stdout.write(f"{one['config']}: {what}\n")
        sys.stdout.write(f"{planned} of {len(told)} plan\n")
    return 0 if planned == len(told) else OptionError.exit_code


def _fitted(groups: "Groups", width: int) -> Iterator[Text]:
    """Yield the lines of a plan for a window: what has no room beside the name continues below it.

    What nobody set is dim.
    """
    for number, (title, lines) in enumerate(groups.items()):
        yield from (Text("") for _ in range(number > 0))
        yield from (Text(title, style="bold") for _ in range(bool(title)))
        first = max(len(visible(name)) for name, _, _ in lines) + 2
        room = max(width - first, 20)
        # A line that fits is aligned with the others that fit.
        short = [(len(b), len(c)) for _, b, c in lines if c and len(b) + 2 + len(c) <= room]
        origins = max((of_origin for _, of_origin in short), default=0)
        second = max((n for n, _ in short if n + 2 + origins <= room), default=0)
        for name, value, origin in lines:
            cells = [visible(value).ljust(second), visible(origin)] if origin else [visible(value)]
            beside = "  ".join(cells)
            parts = [beside] if len(beside) <= room else [cell.strip() for cell in cells]
            below = [line for part in parts for line in wrap(part, room, break_on_hyphens=False)]
            style = "dim" if origin.startswith(_BY_DEFAULT) else ""
            for i, line in enumerate(below):
                yield Text(f"{'' if i else visible(name):<{first}}{line}", style=style)


def print_end(outcome: "Outcome", report: Mapping[str, Any]) -> None:
    """Print on stderr which files a run wrote, and the commands to use them with."""
    plan = outcome.plan
    adapter = plan.adapter
    lines = aligned("left", "left")
    for i, path in enumerate(filter(Path.exists, (plan.run / name for name in _LEFT))):
        lines.add_row("" if i else "wrote", Text(visible(str(path)), style="cyan"))
    run = shlex.quote(str(plan.run))
    tried = "--prompt TEXT" if plan.runner.head == "causal" else "--data FILE"
    lines.add_row("next", Text(visible(f"fmtkit try {run} {tried}")))
    if adapter and not (plan.run / "merged").exists():
        lines.add_row("", Text(visible(f"fmtkit merge {run}")))
    trained = f"{adapter} adapter" if adapter else "model"
    title = f"{plan.method} -> {trained}, {counted(report['steps'], 'step')}"
    seconds = Text(f"in {report['seconds']:.2f} s", style="dim")
    verdict = report.get("verdict", {})
    said = [verdict.get("text", ""), *(f"  {one}" for one in verdict.get("advice", ()))]
    told = [Text(visible(line)) for line in said if line]
    show(errors(), Text(title, style="bold"), *told, lines, seconds)


def print_trial(trial: "Trial", *, as_json: bool) -> None:
    """Print what a base model and a trained one make of each row; control bytes are shown, not obeyed."""
    if as_json:
        print_json(trial.as_dict())
        return
    console = output()
    if trial.kind == "answers":
        for item in trial.items:
            show(console, *_answers(item))
    else:
        names = [
            "row",
            "base",
            "trained",
            *["implicit reward"] * (trial.items[0].reward is not None),
            "prompt",
        ]
        table = aligned("right", *["left"] * (len(names) - 1))
        table.add_row(*(Text(name, style="bold") for name in names))
        for item in trial.items:
            answers = [item.base, item.trained] + ([item.reward] if item.reward is not None else [])
            values = [Text(_values(one)) for one in answers]
            table.add_row(str(item.row), *values, Text(one_line(item.prompt, 60)))
        show(console, table)
    summary = aligned("left", "left")
    for name, figures in trial.summary.items():
        shown_figures = ", ".join(f"{figure} {value:.4g}" for figure, value in figures.items())
        summary.add_row(Text(name, style="cyan"), Text(shown_figures))
    show(console, Text(""), summary)


def _answers(item: "Item") -> list[Any]:
    parts = [Text(visible(item.prompt), style="bold")]
    texts = [("base", item.base["answer"]), ("trained", item.trained["answer"])]
    if item.expected is not None:
        texts.append(("expected", item.expected))
    table = aligned("left", "left")
    for name, text in texts:
        table.add_row(Text(name, style="cyan"), Text(visible(str(text))))
    for name, made in (("base", item.base), ("trained", item.trained)):
        if "rewards" in made:
            table.add_row(Text(f"{name} rewards", style="cyan"), Text(_rewards(made["rewards"])))
    return [*parts, table, Text("")]


def _rewards(rewards: Sequence[float | None]) -> str:
    return "  ".join("none" if reward is None else f"{reward:.4g}" for reward in rewards)


def _values(values: Mapping[str, Any]) -> str:
    parts = []
    for side, value in values.items():
        if isinstance(value, list):
            parts.append(" ".join(f"{one:.2f}" for one in value))
        else:
            number = value.get("score", value.get("logps")) if isinstance(value, Mapping) else value
            parts.append(f"{side} {number:.4g}")
    return ", ".join(parts)
