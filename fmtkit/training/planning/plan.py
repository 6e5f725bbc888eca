"""The plan of a run: every dataset, argument and command, and where each came from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fmtkit.core import notebook_html, runner
from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.formats import registry
from fmtkit.training.config import fragments
from fmtkit.training.config.config import Config, Entry, load
from fmtkit.training.config.problem import Problem, Problems
from fmtkit.training.planning import checklist, data_checks, datatypes, derived, trainer_package
from fmtkit.training.planning.check import Subject, run_checks
from fmtkit.training.planning.datatypes import Reading
from fmtkit.training.planning.resolve import Resolution, resolve
from fmtkit.training.planning.trainer_source import installed
from fmtkit.training.run import launch
from fmtkit.training.run.launch import Launch
from fmtkit.writing.outputs import local_path


@dataclass(frozen=True)
class DatasetPlan:
    """A source, how it is read, and the table that comes of it."""

    source: str
    reading: Reading
    table: str
    entry: Entry


@dataclass(frozen=True)
class Plan:
    """Everything that a run will do; `missing` is what it still needs, for a plan of a fragment."""

    source: str
    method: str
    runner: Runner
    package: str
    config: Config
    run: Path
    model: str | None
    resolution: Resolution
    template: tuple[str, str]
    datasets: tuple[DatasetPlan, ...]
    test_datasets: tuple[DatasetPlan, ...]
    launch: Launch
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    waiting: tuple[tuple[str, str, str], ...] = ()
    """Checks that a dry run cannot make: code, what it needs, what it looks for."""

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain values, every argument with its origin."""
        resolution = self.resolution
        groups = {
            "trainer": resolution.trainer,
            "model": resolution.model,
            "peft": resolution.peft if self.config.get("adapter") else {},
            "quantization": resolution.quantization,
            "teacher": resolution.teacher,
            **resolution.sections,
        }
        return {
            "source": self.source,
            "method": self.method,
            "trainer": self.runner.trainer,
            "config_class": self.runner.config,
            "package": self.package,
            "model": self.model,
            "run": str(self.run),
            "chat_template": {"name": self.template[0], "origin": self.template[1]},
            "datasets": [_dataset(entry) for entry in self.datasets],
            "test_datasets": [_dataset(entry) for entry in self.test_datasets],
            "arguments": {
                group: {a.name: {"value": a.value, "origin": a.origin} for a in arguments.values()}
                for group, arguments in groups.items()
                if arguments
            },
            "adapter": self.config.get("adapter"),
            "launch": {
                "how": self.launch.profile,
                "command": list(self.launch.command),
                "accelerate": self.launch.accelerate,
            },
            "missing": list(self.missing),
            "notes": list(self.notes),
            "waiting": [
                {"check": code, "needs": needs, "about": about}
                for code, needs, about in self.waiting
            ],
        }

    def dumps(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False, default=str)

    def __str__(self) -> str:
        """Return the plan as a table."""
        return _aligned(self.lines())

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the plan, and what it misses first."""
        severity, told = "fine", f"{self.method}: nothing is missing"
        if self.missing:
            severity, told = "error", f"{self.method}: missing {', '.join(self.missing)}"
        table = notebook_html.table(["", "value", "origin"], self.lines(), most=None)
        return notebook_html.card(told, table, severity=severity)

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the plan line by line: what, its value, where that comes from."""
        rows: list[tuple[str, str, str]] = [
            ("method", self.method, self.runner.about),
            ("trainer", self.runner.trainer, self.package),
            ("model", self.model or "-", ""),
            ("chat template", self.template[0], self.template[1]),
            ("run folder", str(self.run), ""),
        ]
        for kind, entries in (("dataset", self.datasets), ("test dataset", self.test_datasets)):
            rows += [
                (kind, entry.source, f"{entry.reading.type} -> {entry.table}") for entry in entries
            ]
        groups = self.to_json()["arguments"]
        for group, arguments in groups.items() if isinstance(groups, Mapping) else ():
            rows += [
                (f"{group}: {name}", _short(a["value"]), a["origin"])
                for name, a in arguments.items()
            ]
        rows.append(("launch", self.launch.profile, " ".join(self.launch.command)))
        rows += [("missing", name, "needed to train") for name in self.missing]
        rows += [(f"checked with {n}", code, about) for code, n, about in self.waiting]
        rows += [("note", note, "") for note in self.notes]
        return rows


def plan(
    source: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] = (),
    *,
    partial: bool = False,
) -> Plan:
    """Plan a run, and run every check of fmtkit.training.planning.checklist that needs no model and no data.

    With `partial` a fragment is planned too, and what it lacks is listed. Raises one error with every
    problem that was found: a RefusalError, or where there is only one its own class: UnknownNameError,
    OptionError, DependencyError where the installed TRL is not one that the method works with.
    """
    config = source if isinstance(source, Config) else load(source, overrides, collect=True)
    if partial:
        config = fragments.completed(config)
    chosen = _runner(config)
    problems = Problems()
    problems.found += config.problems
    package = _package(chosen, problems)
    run_checks(Subject(config, chosen), problems, (*checklist.KEYS, *checklist.of_method(chosen)))
    resolution = resolve(config, chosen, problems)
    run = Path("runs") / _stem(config)
    with problems.collecting("value", "output_dir"):
        run = local_path(config.text("output_dir") or run, "output_dir")
    launching = Launch((), "one process")
    with problems.collecting("launch"):
        launching = launch.make(config, run)
    derived.derive(config, chosen, resolution, launching, problems)
    with problems.collecting("user_code", "plugins"):
        for plugin in datatypes.plugin_files(config):
            registry.load_plugin(plugin)
    read = list(_readings(config, chosen, problems))
    subject = Subject(config, chosen, resolution, launching, tuple((n, e, r) for n, e, r in read))
    run_checks(subject, problems, (*checklist.of_sections(chosen), *checklist.ARGUMENTS))
    template = ("tokenizer_default", "default")
    with problems.collecting("template"):
        template = datatypes.template_of(config, tuple(r for _, _, r in read))
    missing = tuple(fragments.missing(config, chosen))
    if missing and not partial:
        problems.found.append(_incomplete(missing))
    problems.check(config.source, config.lines)
    planned = [
        (name, DatasetPlan(_source(entry), reading, " or ".join(reading.tables), entry))
        for name, entry, reading in read
    ]
    return Plan(
        config.source,
        config.method(),
        chosen,
        package,
        config,
        run,
        config.text("base_model"),
        resolution,
        template,
        tuple(dataset for name, dataset in planned if not name.startswith("test_")),
        tuple(dataset for name, dataset in planned if name.startswith("test_")),
        launching,
        missing,
        (
            *config.notes,
            *resolution.notes,
            *launching.notes,
            *datatypes.notes(config, tuple(r for _, _, r in read)),
            *data_checks.absent_functions(config, [r for _, _, r in read]),
        ),
    )


def _package(chosen: Runner, problems: Problems) -> str:
    """Return the package of the trainer; where it is not installed, train raises and a plan says so."""
    name = chosen.config.partition(":")[0].partition(".")[0]
    if installed(name) is None:
        return f"{name}, which is not installed"
    with problems.collecting("package"):
        return trainer_package.version_of(chosen)
    return ""


def _readings(
    config: Config, chosen: Runner, problems: Problems
) -> Iterator[tuple[str, Entry, Reading]]:
    """Yield every dataset with its dotted name and how its type is read."""
    named = [(f"datasets.{number}", entry) for number, entry in enumerate(config.datasets)]
    with problems.collecting("section"):
        for datasets in chosen.hooks("datasets"):
            if own := datasets(config):
                named = list(own.items())
    named += [(f"test_datasets.{n}", entry) for n, entry in enumerate(config.test_datasets)]
    for name, entry in named:
        with problems.collecting("type", f"{name}.type"):
            yield name, entry, datatypes.read(entry, config, chosen)


def _incomplete(missing: tuple[str, ...]) -> Problem:
    return Problem(
        "missing",
        f"{', '.join(missing)}: needed to train; a fragment is planned with --dry-run",
        error=OptionError,
    )


def is_fragment(config: Config) -> bool:
    """Tell whether a configuration lacks something without which nothing can train."""
    return bool(fragments.missing(config, _runner(config)))


def _runner(config: Config) -> Runner:
    found = runner.find(config.method())
    return found.variant(config.get(found.variant_key)) if found.variant_key else found


def _stem(config: Config) -> str:
    return Path(config.source).stem if config.source != "<mapping>" else config.method()


def _source(entry: Entry) -> str:
    files = entry.get("data_files")
    listed = ", ".join(map(str, files)) if isinstance(files, list) else str(files or "")
    parts = [str(entry[name]) for name in ("path", "name") if name in entry]
    split = f" [{entry['split']}]" if "split" in entry else ""
    return (" ".join(parts + ([listed] if listed else [])) or "-") + split


def _dataset(entry: DatasetPlan) -> dict[str, object]:
    return {
        "source": entry.source,
        "type": entry.reading.type,
        "template": entry.reading.template,
        "table": entry.table,
        "options": dict(entry.reading.options),
        "entry": dict(entry.entry),
    }


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _aligned(rows: Sequence[tuple[str, str, str]]) -> str:
    first = max(len(row[0]) for row in rows)
    second = min(max(len(row[1]) for row in rows if row[0] != "note"), 60)
    return "\n".join(f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in rows)
