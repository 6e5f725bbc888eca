"""The page of a run, or of two beside each other: verdict, warnings, curves, settings, data and answers.

It is one file that loads nothing (`fmtkit.reports.page`), and is made of what the run folder holds: a run
that was stopped or is still going has one too, once it has logged.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fmtkit.core import atomic
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.escaping import counted
from fmtkit.core.records import read_json
from fmtkit.core.runner import Runner, find
from fmtkit.reports import page
from fmtkit.training.online import samples_page
from fmtkit.training.run import curves
from fmtkit.training.run.verdict import Curve, Method, Verdict, verdict_of

PAGE = "report.html"
REPORT = "report.json"
MOST_POINTS = 1000
"""Points of a curve on the page."""
_KEY = "key "
"""How the origin of an argument begins that a config sets."""


def write(run: Path, report: Mapping[str, Any]) -> Path:
    """Write the page into the run folder, and return its path.

    Raises WriteError where that fails.
    """
    path = run / PAGE
    atomic.write_bytes(path, render([(run, report)]).encode())
    return path


def write_report(runs: Sequence[Path], out: Path | None = None) -> tuple[Path, list[Verdict]]:
    """Write the page of a run folder, or of two beside each other; return its path and their verdicts.

    Raises:
        OptionError: if a folder holds no run, or there are more than two.
        WriteError: if the page cannot be written.
    """
    if not 1 <= len(runs) <= 2:
        raise OptionError("give one run folder, or two that are compared")
    known = [(run, _report_of(run)) for run in runs]
    path = out or (runs[0] / PAGE if len(runs) == 1 else runs[-1] / "compared.html")
    atomic.write_bytes(path, render(known).encode())
    return path, [_verdict(run, report) for run, report in known]


def render(runs: Sequence[tuple[Path, Mapping[str, Any]]]) -> str:
    """Return the page of runs, each with its report, which may be empty; all of them becomes text."""
    names = _names([run for run, _ in runs])
    data = {
        "title": " and ".join(names),
        "runs": [
            _facts(run, name, report) for (run, report), name in zip(runs, names, strict=True)
        ],
    }
    return page.render("run", data, ())


def verdict(run: Path, method: str, planned: int | None) -> Verdict:
    """Return what the curves of a run folder say; nothing where the method's package is not installed."""
    runner = _runner(method)
    if runner is None:
        return Verdict("unclear", f"Not judged: no method {method} is installed here")
    return verdict_of(curves.read(run), _method(runner), planned)


def _names(runs: Sequence[Path]) -> list[str]:
    """Return a name for each run: that of its folder, or its path where two have one name."""
    names = [run.absolute().name for run in runs]
    return names if len(set(names)) == len(names) else [str(run) for run in runs]


def _report_of(run: Path) -> Mapping[str, Any]:
    """Return the report of a run; of one that has not ended what its plan says."""
    if not run.is_dir():
        raise OptionError(f"{run} is no run folder; give the output_dir of a run")
    found = read_json(run / REPORT)
    plan = read_json(run / "plan.json")
    if not plan or not {"method", "model"} <= plan.keys():
        raise OptionError(f"{run} holds no plan.json of fmtkit; give the output_dir of a run")
    return found or {"method": plan["method"], "model": plan["model"]}


def _runner(method: object) -> Runner | None:
    """Return the runner of a method; None if the package that added it is not installed here."""
    try:
        return find(str(method))
    except UnknownNameError:
        return None


def _method(runner: Runner) -> Method:
    return Method(runner.health is not None, "Preference" in runner.tables)


def _verdict(run: Path, report: Mapping[str, Any]) -> Verdict:
    given = report.get("verdict")
    if isinstance(given, Mapping) and {"state", "text", "advice"} <= given.keys():
        return Verdict(given["state"], given["text"], tuple(given["advice"]))
    return verdict(run, str(report.get("method")), _planned(read_json(run / "plan.json")))


def _planned(plan: Mapping[str, Any]) -> int | None:
    """Return how many steps a plan names; epochs become steps only in the run."""
    steps = _arguments(plan).get("max_steps", {}).get("value")
    return steps if isinstance(steps, int) and steps > 0 else None


def _arguments(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of all objects of a plan by name, those of the trainer first."""
    groups = plan.get("arguments")
    found: dict[str, Any] = {}
    for group in groups.values() if isinstance(groups, Mapping) else ():
        for name, argument in group.items() if isinstance(group, Mapping) else ():
            if isinstance(argument, Mapping):
                found.setdefault(name, argument)
    return found


def _facts(run: Path, name: str, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a run; run.js names the keys."""
    found = curves.read(run)
    runner = _runner(report.get("method"))
    place = curves.placed(runner.metrics if runner is not None else ())
    first, last = (_mapping(report, key) for key in ("first_metrics", "metrics"))
    if not last:
        first = {key: curve[0][1] for key, curve in found.items()}
        last = {key: curve[-1][1] for key, curve in found.items()}
    plan = read_json(run / "plan.json")
    return {
        "name": name,
        "what": _what(found, report),
        "verdict": _verdict(run, report).as_dict(),
        "findings": [str(text) for text in _list(report, "findings")],
        "facts": _cards(found, report, plan),
        "order": sorted(found, key=place),
        "curves": {key: curves.thinned(curve, MOST_POINTS) for key, curve in found.items()},
        "metrics": [
            [key, first.get(key), last.get(key)] for key in sorted({**first, **last}, key=place)
        ],
        "settings": _settings(plan),
        "versions": ", ".join(f"{n} {v}" for n, v in _mapping(report, "versions").items()),
        "data": [
            [str(entry["file"]), entry["rows"], str(entry["sha256"])]
            for entry in _list(report, "data")
            if isinstance(entry, Mapping)
        ],
        "answers": samples_page.summary(run),
    }


def _what(found: Mapping[str, Curve], report: Mapping[str, Any]) -> str:
    begun = f"{report.get('method')} of {report.get('model')}"
    if "steps" in report:
        return f"{begun}: {counted(report['steps'], 'step')} in {report.get('seconds')} s"
    last = max((curve[-1][0] for curve in found.values()), default=0)
    return f"{begun}: it has no report; it logged up to step {last:g}"


def _cards(
    found: Mapping[str, Curve], report: Mapping[str, Any], plan: Mapping[str, Any]
) -> list[tuple[str, str]]:
    """Return single facts, each with its name."""
    speeds = [value for _, value in found.get("tokens_per_second", ()) if value is not None]
    tokens = [value for _, value in found.get("num_tokens", ()) if value is not None]
    rows = sum(e["rows"] for e in _list(report, "data") if isinstance(e, Mapping))
    template = _mapping(plan, "chat_template").get("name")
    sources = [str(e.get("source")) for e in _list(plan, "datasets") if isinstance(e, Mapping)]
    facts = {
        "Rows": f"{rows:,}" if rows else "",
        "Sources": ", ".join(sources),
        "Template": str(template or ""),
        "Adapter": str(plan.get("adapter") or ""),
        "Tokens": f"{tokens[-1]:,.0f}" if tokens else "",
        "Tokens a second": f"{median(speeds):,.0f}" if speeds else "",
    }
    return [(name, text) for name, text in facts.items() if text]


def _settings(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the keys that a config sets, with their values."""
    found: dict[str, str] = {}
    for name, argument in _arguments(plan).items():
        origin = str(argument.get("origin"))
        if origin.startswith(_KEY):
            value = argument.get("value")
            key = origin.removeprefix(_KEY)
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            found.setdefault(key if key.rpartition(".")[2] == name else f"{key} ({name})", text)
    return sorted(found.items())


def _mapping(report: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = report.get(key)
    return value if isinstance(value, Mapping) else {}


def _list(report: Mapping[str, Any], key: str) -> list[Any]:
    value = report.get(key)
    return value if isinstance(value, list) else []
