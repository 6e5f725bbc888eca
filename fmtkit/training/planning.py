"""The plan of a run: every dataset, argument and command, and where each came from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fmtkit.errors import DependencyError, OptionError
from fmtkit.training import datatypes, ebft_plan, launch, refusals, runner, vllm_plan
from fmtkit.training.arguments import fields_of, has_class, installed
from fmtkit.training.config import Config, Entry, Setting, load
from fmtkit.training.datatypes import Reading
from fmtkit.training.resolve import Argument, Resolution, resolve
from fmtkit.training.rl.grpo import plan as online_plan
from fmtkit.training.rl.nemo_gym import plan as gym_plan
from fmtkit.training.runner import Runner

_TRL_LENGTH = 1024

LENGTH_POLICIES = {"truncate": "truncate-end", "raise": "fail"}
"""excess_length_strategy of the peer -> --on-overlong of convert; other values are the same."""


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
    launch: launch.Launch
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

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
        }

    def dumps(self) -> str:
        """Return the plan as JSON text."""
        return json.dumps(self.to_json(), indent=1, ensure_ascii=False, default=str)

    def __str__(self) -> str:
        """Return the plan as a table."""
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
        rows += [("note", note, "") for note in self.notes]
        return _aligned(rows)


def plan(
    source: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] = (),
    *,
    partial: bool = False,
) -> Plan:
    """Plan a run. With `partial` a fragment is planned too, and what it lacks is listed.

    Raises UnknownNameError, OptionError (a RefusalError for what cannot be honoured) and
    DependencyError where the installed TRL is not one that the method works with.
    """
    config = source if isinstance(source, Config) else load(source, overrides)
    if partial:
        config = _completed(config)
    chosen = _runner(config)
    package = _package(chosen)
    refusals.check(config, chosen)
    resolution = resolve(config, chosen)
    run = Path(config.text("output_dir") or Path("runs") / _stem(config))
    launching = launch.make(config, run)
    _derive(config, chosen, resolution, launching)
    sources = gym_plan.datasets(config)
    entries = (*sources, *config.test_datasets)
    readings = tuple(datatypes.read(entry, config, chosen) for entry in entries)
    missing = tuple(_missing(config, chosen))
    if missing and not partial:
        raise OptionError(
            f"{config.source}: {', '.join(missing)}: needed to train; a fragment is planned "
            "with --dry-run"
        )
    count = len(sources)
    planned = tuple(
        DatasetPlan(_source(entry), reading, " or ".join(reading.tables), entry)
        for entry, reading in zip(entries, readings, strict=True)
    )
    return Plan(
        config.source,
        config.method(),
        chosen,
        package,
        config,
        run,
        config.text("base_model"),
        resolution,
        datatypes.template_of(config, readings),
        planned[:count],
        planned[count:],
        launching,
        missing,
        (*resolution.notes, *launching.notes, *datatypes.notes(config, readings)),
    )


def is_fragment(config: Config) -> bool:
    """Tell whether a configuration lacks something without which nothing can train."""
    return bool(_missing(config, _runner(config)))


_METHOD_OF_SECTION = {"ebft": "ebft", "trl": "grpo", "vllm": "grpo", "nemo_gym_enabled": "grpo"}


def _completed(config: Config) -> Config:
    """Return a fragment with the method that its keys belong to, where it names none."""
    if config.method() != "sft" or config.get("rl") is not None:
        return config
    if config.datasets and (found := datatypes.method_of(config.datasets[0])):
        guess = Setting(found, "guess for a fragment")
        return replace(config, settings={**config.settings, "rl": guess})
    sections = {name.partition(".")[0] for name in config.settings}
    method = next((m for section, m in _METHOD_OF_SECTION.items() if section in sections), None)
    if method is None and sections & {"rl_adapter_ref_model", "ref_model"}:
        method = "dpo"
    if method is None:
        return config
    origin = "guess for a fragment"
    return replace(config, settings={**config.settings, "rl": Setting(method, origin)})


def _runner(config: Config) -> Runner:
    found = runner.find(config.method())
    return found.variant(config.get(found.variant_key)) if found.variant_key else found


def _package(chosen: Runner) -> str:
    """Return the package and version that the trainer comes from, or raise DependencyError."""
    name = chosen.trainer.partition(":")[0].partition(".")[0]
    if name == "fmtkit":
        return _package_of_ours(chosen)
    found = installed(name)
    if found is None:
        raise DependencyError(
            f"{name} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    if not has_class(chosen.trainer):
        instead = f"; {chosen.instead}" if chosen.instead else ""
        raise DependencyError(
            f"{chosen.method}: {name} {found} has no {chosen.trainer.partition(':')[2]}; "
            f"install a version that has: pip install '{name}{chosen.trl}'{instead}"
        )
    return f"{name} {found}"


def _package_of_ours(chosen: Runner) -> str:
    """Return the version of TRL that our own trainer stands on; it overrides what TRL may move."""
    from packaging.specifiers import SpecifierSet

    found = installed("trl")
    if found is None:
        raise DependencyError("trl is not installed; install it with: pip install 'fmtkit[train]'")
    if found not in SpecifierSet(chosen.trl, prereleases=True):
        raise DependencyError(
            f"{chosen.method}: fmtkit's trainer was made for trl{chosen.trl}, and trl {found} is "
            f"installed; install the other with: pip install 'trl{chosen.trl}'"
        )
    return f"trl {found}"


def _stem(config: Config) -> str:
    return Path(config.source).stem if config.source != "<mapping>" else config.method()


def _derive(config: Config, chosen: Runner, out: Resolution, launching: launch.Launch) -> None:
    """Set the arguments that follow from several keys, or from none."""
    for name, value in launching.trainer.items():
        out.put("trainer", Argument(name, value, "how it is launched"))
    _derive_batch(config, out)
    _derive_schedule(config, out)
    _derive_precision(config, out)
    _derive_adapter(config, out)
    _derive_mask(config, chosen, out)
    _derive_length(chosen, out)
    ebft_plan.derive(config, chosen, out)
    online_plan.derive(config, chosen, out, launching)
    vllm_plan.derive(config, chosen, out, launching)
    gym_plan.derive(config, chosen, out)
    _derive_variables(config, chosen, out)
    out.default("activation_checkpointing", False, "default of fmtkit")
    out.default(
        "report_to",
        _reports(config),
        "key report_to" if _reports(config) != "none" else "default of fmtkit",
    )
    out.model.setdefault("dtype", Argument("dtype", "float32", "default of fmtkit"))


def _derive_batch(config: Config, out: Resolution) -> None:
    whole, micro = config.get("batch_size"), config.get("micro_batch_size")
    if isinstance(whole, int) and isinstance(micro, int):
        processes = config.get("num_processes")
        steps = whole // (micro * (processes if isinstance(processes, int) else 1))
        out.put("trainer", Argument("gradient_accumulation_steps", steps, "key batch_size"))


def _derive_schedule(config: Config, out: Resolution) -> None:
    epochs = config.get("num_epochs")
    for name in ("eval", "save"):
        each = config.get(f"{name}s_per_epoch")
        if isinstance(each, (int, float)) and each > 0:
            share = 1.0 / (float(each) * float(epochs if isinstance(epochs, (int, float)) else 3))
            out.put("trainer", Argument(f"{name}_steps", share, f"key {name}s_per_epoch"))
            out.default(f"{name}_strategy", "steps", f"key {name}s_per_epoch")
    if config.get("eval_steps"):
        out.default("eval_strategy", "steps", "key eval_steps")
    if config.get("save_steps"):
        out.default("save_strategy", "steps", "key save_steps")
    if config.get("val_set_size") or config.test_datasets:
        out.default("eval_strategy", "epoch", "data to evaluate on")
    floor = config.get("cosine_min_lr_ratio")
    if floor is not None:
        out.put(
            "trainer",
            Argument("lr_scheduler_type", "cosine_with_min_lr", "key cosine_min_lr_ratio"),
        )
        out.put(
            "trainer",
            Argument("lr_scheduler_kwargs", {"min_lr_rate": floor}, "key cosine_min_lr_ratio"),
        )


def _derive_precision(config: Config, out: Resolution) -> None:
    wish = config.get("bf16")
    if isinstance(wish, bool):
        out.put("trainer", Argument("bf16", wish, config.settings["bf16"].origin))
    elif config.is_true("fp16"):
        out.put("trainer", Argument("bf16", False, "key fp16"))
    else:
        out.put("trainer", Argument("bf16", "auto", "default of fmtkit"))


def _derive_adapter(config: Config, out: Resolution) -> None:
    adapter = config.get("adapter")
    if adapter == "dora":
        out.put("peft", Argument("use_dora", True, "key adapter"))
    if adapter == "qlora":
        out.put("quantization", Argument("load_in_4bit", True, "key adapter"))
    if any(
        out.quantization[name].value is True
        for name in ("load_in_4bit",)
        if name in out.quantization
    ):
        for name, value in (
            ("bnb_4bit_quant_type", "nf4"),
            ("bnb_4bit_use_double_quant", True),
            ("bnb_4bit_compute_dtype", "bfloat16"),
        ):
            out.quantization.setdefault(name, Argument(name, value, "default of qlora"))


def _derive_mask(config: Config, chosen: Runner, out: Resolution) -> None:
    if chosen.method != "sft" or config.get("assistant_only_loss") is not None:
        return
    out.default(
        "completion_only_loss", not config.is_true("train_on_inputs"), "key train_on_inputs"
    )


def _derive_length(chosen: Runner, out: Resolution) -> None:
    """Make TRL's own default explicit, since the conversion drops what is longer."""
    if "max_length" in fields_of(chosen.config).annotations and "max_length" not in out.trainer:
        out.default("max_length", _TRL_LENGTH, "default of TRL")
        out.notes.append(f"rows longer than {_TRL_LENGTH} tokens are dropped; set sequence_len")


def _derive_variables(config: Config, chosen: Runner, out: Resolution) -> None:
    """Give the template's variables to the trainer; others read them from the rows."""
    name = "chat_template_kwargs"
    if config.get(name) and name in fields_of(chosen.config).annotations:
        out.put("trainer", Argument(name, config.get(name), config.settings[name].origin))


def _reports(config: Config) -> object:
    wish = config.get("report_to")
    named = [str(w) for w in wish] if isinstance(wish, list) else [str(wish)] if wish else []
    for key, service in (
        ("use_tensorboard", "tensorboard"),
        ("use_wandb", "wandb"),
        ("use_mlflow", "mlflow"),
        ("use_comet", "comet_ml"),
        ("use_trackio", "trackio"),
    ):
        if config.is_true(key) and service not in named:
            named.append(service)
    if (
        config.get("wandb_project")
        and config.get("use_wandb") is not False
        and "wandb" not in named
    ):
        named.append("wandb")
    return named or "none"


def _missing(config: Config, chosen: Runner) -> list[str]:
    needed = ["base_model"] if config.text("base_model") is None else []
    if not config.datasets and not config.is_true("nemo_gym_enabled"):
        needed.append("datasets")
    needed += gym_plan.missing(config)
    if "teacher" in chosen.needs and config.get("teacher_model") is None:
        needed.append("teacher_model")
    rewards = ("trl.reward_funcs", "trl.environment_factory", "nemo_gym_enabled")
    if "rewards" in chosen.needs and not any(config.get(name) for name in rewards):
        needed.append("trl.reward_funcs")
    if "reward_model" in chosen.needs and config.get("reward_model_path") is None:
        needed.append("reward_model_path")
    return needed


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
