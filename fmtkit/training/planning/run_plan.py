"""The plan of a run: what is known of it, and how that is shown as JSON, as a table and in a notebook."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from fmtkit.core import notebook_html
from fmtkit.core.credentials import public
from fmtkit.core.data_classes import dataclass
from fmtkit.core.escaping import counted
from fmtkit.core.runner import TRL_FEATURES, Runner
from fmtkit.training.config.config import Config
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import find_key
from fmtkit.training.config.problems import NEEDED
from fmtkit.training.config.slices import Slice, slice_of
from fmtkit.training.planning import chat_templates
from fmtkit.training.planning.types import Arguments, DatasetPlan, FewSteps, Launch

Groups = Mapping[str, Sequence[tuple[str, str, str]]]
"""Title -> lines of a plan: name, value, origin."""


@dataclass(frozen=True)
class Plan:
    """Everything that a run will do.

    It is made step by step: the checks of a configuration see it with all arguments and datasets, and
    without its template and limits.
    """

    config: Config
    runner: Runner
    run: Path
    """The folder of the run."""
    package: str = ""
    """The package and version that the trainer comes from."""
    arguments: Arguments = field(default_factory=Arguments)
    launch: Launch = field(default_factory=Launch)
    datasets: tuple[DatasetPlan, ...] = ()
    test_datasets: tuple[DatasetPlan, ...] = ()
    template: tuple[str, str] = ("tokenizer_default", "default")
    missing: tuple[str, ...] = ()
    """What a fragment still needs."""
    notes: tuple[str, ...] = ()
    waiting: tuple[tuple[str, str, str], ...] = ()
    """Checks that a dry run cannot make: code, what each needs, what it looks for."""
    limits: FewSteps | None = None
    """Which rows `max_steps` can draw; None where it is not set."""

    @property
    def source(self) -> str:
        """Return the file of the configuration."""
        return self.config.source

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return self.config.method()

    @property
    def model(self) -> str | None:
        """Return the model that trains; None in a fragment that names none."""
        return self.config.model

    @property
    def tokenizer(self) -> str | None:
        """Return the tokenizer of the run: a folder or a hub id, the model's own where no key names one."""
        return self.config.text("tokenizer_config") or self.model

    @property
    def adapter(self) -> str | None:
        """Return the kind of adapter that trains; None where all weights do."""
        return self.config.adapter

    @property
    def uses_cpu(self) -> bool:
        """Return whether the run is to train without a GPU, even where there is one."""
        return self.config.is_true("use_cpu")

    @property
    def trains_on_inputs(self) -> bool:
        """Return whether prompts are trained on as replies are."""
        return self.config.is_true("train_on_inputs")

    @property
    def all_datasets(self) -> tuple[DatasetPlan, ...]:
        """Return the datasets to train on, and those to evaluate on."""
        return (*self.datasets, *self.test_datasets)

    def slice_of(self, dataset: DatasetPlan) -> Slice:
        """Return which rows of a dataset the run takes."""
        return slice_of(dataset.entry, self.config.get("seed"))

    def to_json(self) -> dict[str, object]:
        """Return the plan as plain values, every argument with its origin."""
        given = self.arguments
        groups = {
            "trainer": given.trainer,
            "model": given.model,
            "peft": given.peft if self.adapter else {},
            "quantization": given.quantization,
            "teacher": given.teacher,
            **given.sections,
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
            "adapter": self.adapter,
            "launch": {
                "how": self.launch.profile,
                "command": list(self.launch.command),
                "accelerate": self.launch.accelerate,
            },
            "max_steps": self.limits.to_json() if self.limits else None,
            "missing": list(self.missing),
            "notes": list(self.notes),
            "waiting": [
                {"check": code, "needs": needs, "about": about}
                for code, needs, about in self.waiting
            ],
        }

    def template_text(self) -> str | None:
        """Return the text of the run's chat template; None for the tokenizer's own."""
        # TRL knows how to read tool calls by the plain text, and takes its training variant by itself.
        is_plain = any(self.arguments.value(name, "rl") for name in TRL_FEATURES)
        return chat_templates.template_text(self.config, self.template, is_plain=is_plain)

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
        if limits := self.limits:
            run.append((f"rows of {counted(limits.steps, 'step')}", *limits.described()))
        arguments = self.to_json()["arguments"]
        values = [
            (f"{group}: {name}", _short(a["value"]), a["origin"])
            for group, named in (arguments.items() if isinstance(arguments, Mapping) else ())
            for name, a in named.items()
        ]
        was_set = self._set_keys(values)
        follows = [line for line in values if line not in was_set]
        if self.config.held_out and self.config.get("split_by") is None:
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
