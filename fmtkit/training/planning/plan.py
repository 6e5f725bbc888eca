"""The plan of a run: every dataset, argument and command, where each came from, and what is missing."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fmtkit.core import notebook_html, runner
from fmtkit.core.credentials import public
from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.core.escaping import counted
from fmtkit.core.runner import TRL_FEATURES, Runner
from fmtkit.formats import registry
from fmtkit.training.config.arguments import has_class
from fmtkit.training.config.config import Config, Entry, Setting, load
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import find_key
from fmtkit.training.config.problem import NEEDED, Problem, Problems
from fmtkit.training.planning import checklist, dataset_entries, idle, refusals
from fmtkit.training.planning.check import Subject, of_method, of_sections, run_checks
from fmtkit.training.planning.dataset_entries import Reading
from fmtkit.training.planning.few_steps import few_steps
from fmtkit.training.planning.resolve import Resolution, derive, resolve
from fmtkit.training.planning.trainer_source import installed
from fmtkit.training.run import launch
from fmtkit.training.run.launch import Launch
from fmtkit.writing.outputs import local_path

Groups = Mapping[str, Sequence[tuple[str, str, str]]]
"""Title -> lines of a plan: name, value, origin."""


@dataclass(frozen=True)
class DatasetPlan:
    """A source, how it is read, and its table."""

    source: str
    reading: Reading
    table: str
    entry: Entry


@dataclass(frozen=True)
class Plan:
    """Everything that a run will do; `missing` is what a fragment still needs."""

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
    """Checks that a dry run cannot make: code, what each needs, what it looks for."""

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
            "max_steps": limits.to_json() if (limits := few_steps(self)) else None,
            "missing": list(self.missing),
            "notes": list(self.notes),
            "waiting": [
                {"check": code, "needs": needs, "about": about}
                for code, needs, about in self.waiting
            ],
        }

    def template_text(self) -> str | None:
        """Return the text of the run's chat template; None for the tokenizer's own."""
        section = self.resolution.sections.get("rl", {})
        # TRL knows how to read tool calls by the plain text, and takes its training variant by itself.
        is_plain = any(name in section and section[name].value for name in TRL_FEATURES)
        return dataset_entries.template_text(self.config, self.template, is_plain=is_plain)

    def dumps(self) -> str:
        """Return the plan as JSON text, without credentials."""
        return public(json.dumps(self.to_json(), indent=1, ensure_ascii=False, default=str))

    def __str__(self) -> str:
        """Return the plan as a table."""
        return _aligned(self.groups())

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the plan, with what is missing first."""
        severity, title = "fine", f"{self.method}: nothing is missing"
        if self.missing:
            severity, title = "error", f"{self.method}: missing {', '.join(self.missing)}"
        table = notebook_html.table(["", "value", "origin"], self.lines(), most=None)
        return notebook_html.card(title, table, severity=severity)

    def lines(self) -> list[tuple[str, str, str]]:
        """Return the lines of the plan: name, value, origin."""
        return [line for lines in self.groups().values() for line in lines]

    def groups(self) -> Groups:
        """Return the lines of the plan by what they are: set, following from it, checked later."""
        run: list[tuple[str, str, str]] = [
            ("method", self.method, self.runner.about),
            ("trainer", self.runner.trainer, self.package),
            ("model", self.model or "-", ""),
            ("chat template", self.template[0], self.template[1]),
            ("run folder", str(self.run), ""),
        ]
        for kind, entries in (("dataset", self.datasets), ("test dataset", self.test_datasets)):
            run += [
                (kind, entry.source, f"{entry.reading.type} -> {entry.table}") for entry in entries
            ]
        if limits := few_steps(self):
            run.append((f"rows of {counted(limits.steps, 'step')}", *limits.described()))
        arguments = self.to_json()["arguments"]
        values = [
            (f"{group}: {name}", _short(a["value"]), a["origin"])
            for group, named in (arguments.items() if isinstance(arguments, Mapping) else ())
            for name, a in named.items()
        ]
        was_set = self._set_keys(values)
        follows = [line for line in values if line not in was_set]
        if self.config.get("val_set_size") and self.config.get("split_by") is None:
            default = (
                "default of fmtkit: whole prompts are held out, so that none is in both splits"
            )
            follows.append(("split_by", "prompts", default))
        launch = ("launch", self.launch.profile, " ".join(self.launch.command))
        later = [("check", _LATER.get(needs, needs), about) for _, needs, about in self.waiting]
        groups = {
            "": run,
            "still to be set": [("missing", name, "needed to train") for name in self.missing],
            "set by you": was_set,
            "follows from it": [*follows, launch],
            "checked later": later,
            "needed to train, and missing here": [
                ("lacking", note.removesuffix(NEEDED), "")
                for note in self.notes
                if note.endswith(NEEDED)
            ],
            "notes": [("note", note, "") for note in self.notes if not note.endswith(NEEDED)],
        }
        return {
            title: [(name, public(value), public(origin)) for name, value, origin in lines]
            for title, lines in groups.items()
            if lines
        }

    def _set_keys(self, values: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
        """Return a line for each key that was set: the argument that it is, or its own value.

        What else follows from a key has its origin too, but is no value that was written.
        """
        found: list[tuple[str, str, str]] = []
        for name, setting in self.config.settings.items():
            key = find_key(name)
            # Parts of a mapping have its origin and their own name behind it.
            own = [
                line
                for line in values
                if line[2] == setting.origin or line[2].startswith(f"{setting.origin}.")
                if key is not None and _is_argument(key, line[0].partition(": ")[2])
            ]
            parts = setting.value if key is not None and key.target == "*" else {}
            is_whole = not isinstance(parts, Mapping) or len(own) >= len(parts)
            found += own if own and is_whole else [(name, _short(setting.value), setting.origin)]
        for kind in ("datasets", "test_datasets"):
            found += [
                (f"{kind}.{number}.{name}", _short(value), f"key {kind}.{number}.{name}")
                for number, entry in enumerate(getattr(self.config, kind))
                for name, value in entry.items()
                if name not in _SHOWN_BY_DATASET and value is not None
            ]
        return found


def _is_argument(key: Key, name: str) -> bool:
    """Return whether a key is this argument, or passes it on; not whether it only follows from it."""
    return key.to != "fmtkit" and (key.target == "*" or key.target.partition(".")[0] == name)


_SHOWN_BY_DATASET = frozenset({"path", "type"})
"""Keys of a dataset that its own line shows."""
_LATER: Mapping[str, str] = {
    "servers": "when the servers are asked",
    "data": "when the rows are converted",
}
"""What a check needs that no dry run has -> when it is made."""


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
        config = _completed(config)
    chosen = _runner(config)
    problems = Problems()
    problems.found += config.problems
    package = _package(config, chosen, problems)
    run_checks(Subject(config, chosen), problems, (*checklist.KEYS, *of_method(chosen)))
    resolution = resolve(config, chosen, problems)
    run = Path("runs") / _stem(config)
    with problems.collecting("value", "output_dir"):
        run = local_path(config.text("output_dir") or run, "output_dir")
    launching = Launch((), "one process")
    with problems.collecting("launch"):
        launching = launch.make(config, run)
    derive(config, chosen, resolution, launching, problems)
    subject = Subject(config, chosen, resolution, launching)
    resolution.notes += [*idle.notes(subject), *refusals.plugin_notes(config)]
    with problems.collecting("user_code", "plugins"):
        for plugin in dataset_entries.plugin_files(config):
            registry.load_plugin(plugin)
    read = list(_readings(config, chosen, problems))
    subject = Subject(config, chosen, resolution, launching, tuple((n, e, r) for n, e, r in read))
    run_checks(subject, problems, (*of_sections(chosen), *checklist.ARGUMENTS))
    template = ("tokenizer_default", "default")
    with problems.collecting("template"):
        samples = "rewards" in chosen.needs
        template = dataset_entries.template_of(
            config, tuple(r for _, _, r in read), samples=samples
        )
    missing = tuple(_missing(config, chosen))
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
            *_own_trainer_notes(config, chosen),
            *resolution.notes,
            *launching.notes,
            *dataset_entries.notes(config, tuple(r for _, _, r in read)),
            *dataset_entries.absent_functions(config, [r for _, _, r in read]),
        ),
    )


_TAKEN_AS_THEY_ARE = frozenset({"trl", "transformers"})
"""Packages whose trainers are used directly; others derive theirs from TRL's."""


def _completed(config: Config) -> Config:
    """Return a fragment with the method that its keys suggest, if it names none."""
    if config.method() != runner.DEFAULT or config.get("rl") is not None:
        return config
    tables = dataset_entries.tables_of(config.datasets[0]) if config.datasets else ()
    method = None
    # The default method's tables are no evidence for other methods.
    if not {*tables} & {*runner.find(runner.DEFAULT).tables}:
        method = next(filter(None, (runner.guess({table}) for table in tables)), None)
    if method is None:
        method = runner.guess({name.partition(".")[0] for name in config.settings})
    if method is None:
        return config
    guess = Setting(method, "guess for a fragment")
    return replace(config, settings={**config.settings, "rl": guess})


def _missing(config: Config, chosen: Runner) -> list[str]:
    """Return the required keys that are missing."""
    needed = ["base_model"] if config.text("base_model") is None else []
    has_environment = config.is_true("nemo_gym_enabled") or config.get("verifiers.environment")
    if not config.datasets and not has_environment:
        needed.append("datasets")
    needed += [key for part in chosen.hooks("missing") for key in part(config)]
    if "teacher" in chosen.needs and config.get("teacher_model") is None:
        needed.append("teacher_model")
    rewards = (
        *("trl.reward_funcs", "trl.environment_factory"),
        *("nemo_gym_enabled", "verifiers.environment"),
    )
    if "rewards" in chosen.needs and not any(config.get(name) for name in rewards):
        needed.append("trl.reward_funcs")
    if "reward_model" in chosen.needs and config.get("reward_model_path") is None:
        needed.append("reward_model_path")
    return needed


def _package(config: Config, chosen: Runner, problems: Problems) -> str:
    """Return the trainer's package; if it is not installed, train raises and a plan reports it."""
    name = chosen.config.partition(":")[0].partition(".")[0]
    if installed(name) is None:
        return f"{name}, which is not installed"
    features = chosen.features_of(config)
    with problems.collecting("package", next(iter(features), "")):
        return _version(chosen, features)
    return ""


def _version(chosen: Runner, features: Sequence[str]) -> str:
    """Return the package and version that the trainer comes from, or raise DependencyError."""
    if chosen.transformers:
        _check_transformers(chosen)
    name = chosen.trainer.partition(":")[0].partition(".")[0]
    if name not in _TAKEN_AS_THEY_ARE:
        return _on_trl(chosen, name, features)
    version = installed(name)
    if version is None:
        raise DependencyError(
            f"{name} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    if not has_class(chosen.trainer):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: {name} {version} has no {chosen.trainer.partition(':')[2]}; "
            f"install a version that has: pip install '{name}{chosen.trl}'{instead}"
        )
    return f"{name} {version}"


def _check_transformers(chosen: Runner) -> None:
    """Raise DependencyError for a transformers that the method cannot train with."""
    from packaging.specifiers import SpecifierSet

    version, wanted = installed("transformers"), chosen.transformers
    if version and version not in SpecifierSet(wanted, prereleases=True):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: its trainer needs transformers{wanted}, and transformers {version} is "
            f"installed; install a matching one with: pip install 'transformers{wanted}'{instead}"
        )


def _on_trl(chosen: Runner, package: str, features: Sequence[str]) -> str:
    """Return the TRL version that a derived trainer needs.

    It overrides what TRL may move, so that the runner's range counts.
    """
    from packaging.specifiers import SpecifierSet

    version = installed("trl")
    if version is None:
        raise DependencyError("trl is not installed; install it with: pip install 'fmtkit[train]'")
    if version not in SpecifierSet(chosen.trl, prereleases=True):
        keys = ", ".join(features) if runner.TRLS_OWN in chosen.variants else ""
        needs = f"{keys}: needs {package}'s trainer, which" if keys else f"{package}'s trainer"
        without = f", or leave out {keys}, and TRL's own trains" if keys else ""
        raise DependencyError(
            f"{chosen.method}: {needs} was made for trl{chosen.trl}, and trl {version} is installed; "
            f"install a matching one with: pip install 'trl{chosen.trl}'{without}"
        )
    if package == "fmtkit":
        return f"trl {version}"
    if not has_class(chosen.trainer):
        raise DependencyError(f"{chosen.method}: there is no {chosen.trainer}")
    return f"{package} {installed(package)}, trl {version}"


def _readings(
    config: Config, chosen: Runner, problems: Problems
) -> Iterator[tuple[str, Entry, Reading]]:
    """Yield every dataset with its dotted name and how its type is read."""
    named = [(f"datasets.{number}", entry) for number, entry in enumerate(config.datasets)]
    with problems.collecting("section"):
        for datasets in chosen.hooks("datasets"):
            if listed := datasets(config):
                named = list(listed.items())
    named += [(f"test_datasets.{n}", entry) for n, entry in enumerate(config.test_datasets)]
    for name, entry in named:
        with problems.collecting("type", f"{name}.type"):
            yield name, entry, dataset_entries.read(entry, config, chosen)


def _incomplete(missing: tuple[str, ...]) -> Problem:
    return Problem(
        "missing",
        f"{', '.join(missing)}: needed to train; --dry-run --partial plans what is there",
        error=OptionError,
    )


def is_fragment(config: Config) -> bool:
    """Return whether a configuration is a part of one: nothing trains without a model."""
    return config.text("base_model") is None


def _runner(config: Config) -> Runner:
    """Return the runner of a method: TRL's own trainer where fmtkit's does not fit and no key needs it."""
    chosen = runner.find(config.method()).variant_of(config)
    own = chosen.variants.get(runner.TRLS_OWN)
    if own is None or _fits(chosen) or chosen.features_of(config):
        return chosen
    return own


def _fits(chosen: Runner) -> bool:
    """Return whether the installed TRL is one that the method's trainer was made for, or there is none."""
    from packaging.specifiers import SpecifierSet

    version = installed("trl")
    return version is None or version in SpecifierSet(chosen.trl, prereleases=True)


def _own_trainer_notes(config: Config, chosen: Runner) -> list[str]:
    """Return the note on TRL's own trainer where it stands in for fmtkit's."""
    usual = runner.find(config.method()).variant_of(config)
    if usual.variants.get(runner.TRLS_OWN) != chosen:
        return []
    name = chosen.trainer.partition(":")[2]
    return [
        f"trl {installed('trl')}: TRL's own {name} trains, since fmtkit's was made for trl{usual.trl}: no "
        "batch is skipped for its advantages, and a reward that fails ends the run"
    ]


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


_SENTENCES = frozenset({"lacking", "note"})
"""Names of lines that are one sentence, and so have no origin."""
_WIDE = 60
"""Characters of a value beyond which the origin no longer stands below the others."""


def _aligned(groups: Groups) -> str:
    rows = [row for lines in groups.values() for row in lines]
    first = max(len(row[0]) for row in rows)
    second = max(
        (n for row in rows if row[0] not in _SENTENCES and (n := len(row[1])) <= _WIDE), default=0
    )
    parts = [
        [
            *filter(None, [title]),
            *(f"{a:<{first}}  {b:<{second}}  {c}".rstrip() for a, b, c in lines),
        ]
        for title, lines in groups.items()
    ]
    return "\n\n".join("\n".join(part) for part in parts)
