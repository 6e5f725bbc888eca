"""Runners: each declares, as data, everything in which its training method differs from others.

A runner is one module with one constant, RUNNER: `runners/METHOD.py` or `runners/METHOD/runner.py` of
fmtkit, or a module of an installed package that its entry point in the group `fmtkit.runners` names.
Converting and planning read it too, so it imports nothing heavy: classes and functions that train are named
("trl:DPOTrainer") and loaded only in the training process.
"""

import importlib
import pkgutil
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

from fmtkit.core import plugins, section
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, FmtkitError, UnknownNameError, near_match
from fmtkit.core.tables import TABLES, UNRENDERED

GROUP = "fmtkit.runners"
"""Group of entry points by which an installed package adds methods; also fmtkit's own package of them."""
DEFAULT = "sft"
"""The method of a configuration that names none."""

Need = Literal["reference", "teacher", "rewards", "reward_model"]
Head = Literal["causal", "score", "steps"]
MaskRule = Literal["", "completion", "preference", "each_reply", "unpaired", "score", "teacher"]
TextEnds = Literal["", "text", "ids"]

TRLS_OWN = "trl"
"""Name of the variant that trains with TRL's own trainer, on a TRL that fmtkit's was not made for."""

TRL_FEATURES = frozenset({"tools", "environment_factory"})
"""Keys of `trl` that fmtkit passes to TRL's GRPOTrainer, or to a class derived from it."""
IDLE: Mapping[str, object] = {
    "rollout_func": None,
    "async_prefetch": False,
    "vllm_sync_interval": 1,
    "vllm_lora_sync": False,
    "vllm_sync": "nccl",
    "max_failed_share": 0,
}
"""Keys of `trl` on which trainers of fmtkit act that make answers -> the value that turns each off."""


PROMPTS = frozenset({"Prompt", "Reference"})
"""Tables of prompts to sample from: each trainer adds what the tokenizer adds to a text."""


def text_ends_of(method: str | None, table: str) -> TextEnds:
    """Return what a method's trainer puts around rows of text; without a method what most do."""
    if table in UNRENDERED:
        return ""
    return "text" if method is None or table in PROMPTS else find(method).text_ends


def our_features() -> Mapping[str, object]:
    """Return the keys of `trl` on which fmtkit's own trainers act, and the value that turns each off."""
    return dict(IDLE) | {n: idle for one in section.every() for n, idle in one.features.items()}


def __getattr__(name: str) -> object:
    if name == "OUR_FEATURES":
        warnings.warn(
            "fmtkit.core.runner.OUR_FEATURES is now FEATURES of fmtkit.runners.grpo_features.section; the "
            "former name goes with fmtkit 0.3",
            FutureWarning,
            stacklevel=2,
        )
        return TRL_FEATURES | our_features().keys()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Settings(Protocol):
    """The part of a configuration that a refusal reads: its keys by their dotted names."""

    def get(self, name: str) -> object:
        """Return a key's value, or None where it is unset."""

    def text(self, name: str) -> str | None:
        """Return a key's value as text, or None where it is unset."""

    def is_true(self, name: str) -> bool:
        """Return whether a key is set to true."""


F = TypeVar("F", bound=Callable[..., Any])
FEATURES: section.Hook[Callable[[Settings], Iterable[str]]] = section.Hook("features")
"""Returns the set keys that only fmtkit's own trainer honours."""
PROVIDES: section.Hook[Callable[[Settings], Iterable[section.Provided]]] = section.Hook("provides")
"""Returns which of datasets, rewards and answers the section supplies instead of the run's configuration."""

Refusal = Callable[[Settings], str | None]
"""Returns why a method cannot honour a configuration and what to do instead; None if it can."""


@dataclass(frozen=True)
class HealthLimits:
    """Ranges of an online run's metrics; training warns outside of them.

    The defaults are those that the documents give for GRPO: rewards above 0.15 within 20 steps, an
    entropy of 0.05 to 0.5, a gradient norm of 0.001 to 1 and never above 10.
    """

    first_steps: int = 20
    """Steps within which a reward should have been above `low_reward`."""
    low_reward: float = 0.15
    own_scale: frozenset[str] = frozenset()
    """Names of rewards to which `low_reward` does not apply."""
    collapsed: float = 0.01
    """Entropy (nats per token) below which the model gives one answer only."""
    low_entropy: float = 0.05
    high_entropy: float = 0.5
    small_gradient: float = 0.001
    large_gradient: float = 10.0
    cut_answers: float = 0.9
    """Share of answers cut at their longest length."""
    clipped_ratio: float = 0.3
    """Share of tokens with a clipped ratio."""
    off_policy: float = 0.5
    """Mean importance ratio to the sampler."""


@dataclass(frozen=True)
class Runner:
    """Which tables a method takes, which classes train on them, and what else differs from others."""

    method: str
    tables: tuple[str, ...]
    """Canonical tables that it takes (`fmtkit.core.tables.TABLES`)."""
    trainer: str
    """The class that is built: "package.module:Class"."""
    config: str
    """The dataclass of its arguments."""
    about: str
    trl: str = ">=1.8,<2"
    """TRL versions that it was run with; for a trainer of fmtkit's, those whose methods it overrides."""
    transformers: str = ""
    """Versions of transformers that it needs, if not every version that fmtkit supports will do."""
    without: str = ""
    """What a run lacks if TRL's own trainer replaces this one."""
    instead: str = ""
    """What to do if the installed TRL has no such trainer, or the version of transformers does not fit."""
    arguments: Mapping[str, object] = field(default_factory=dict)
    """Arguments that the method fixes."""
    defaults: Mapping[str, object] = field(default_factory=dict)
    """Arguments that the configuration may change."""
    needs: frozenset[Need] = frozenset()
    """What must be configured (a teacher, rewards, a reward model), or is created if it is not (a reference
    model)."""
    makes_reference: bool = False
    """Whether the trainer makes its reference by itself and takes none."""
    head: Head = "causal"
    sections: frozenset[str] = frozenset()
    """Sections of a configuration that it takes, besides those that name the method (`Section.methods`)."""
    idle: frozenset[str] = frozenset()
    """Sections whose keys change nothing."""
    ignores: Mapping[str, str] = field(default_factory=dict)
    """Argument of the config class -> why its trainer does not honour it."""
    own: frozenset[str] = frozenset()
    """Arguments that the config class lacks and fmtkit acts on (`max_length`), keys of `trl` among them."""
    features: frozenset[str] = frozenset()
    """Keys of `trl` that its trainer acts on, besides rewards; from `TRL_FEATURES`, `IDLE` or a section."""
    cuts: frozenset[str] = frozenset()
    """At which ends its trainer truncates rows that are too long: `truncate-end`, `truncate-start`."""
    mask: MaskRule = ""
    """How its trainer makes ids and masks of conversations; if empty, the table decides."""
    text_ends: TextEnds = ""
    """What its trainer puts around rows of text: EOS behind a reply that does not end with it, and what the
    tokenizer adds to any text (`text`), or the ids of BOS and EOS (`ids`); if empty, nothing."""
    row_variables: bool = False
    """Whether its trainer reads the template's variables from a column of the rows."""
    whole_conversations: bool = False
    """Whether its trainer takes only conversations, each a prompt joined with its completion."""
    both_labels: bool = False
    """Whether it needs desirable and undesirable rows, since it learns from their difference."""
    columns: frozenset[str] = frozenset()
    """Columns of the source that its trainer needs in each row, beside those of the table."""
    whole_batch: bool = False
    """Whether its trainer needs as many rows as a batch has."""
    splits_sequences: bool = False
    """Whether its trainer splits long sequences over devices (`context_parallel_size`)."""
    sees_lengths: bool = False
    """Whether its rows are single sequences of `input_ids`, by which batches can be grouped."""
    group: int = 0
    """Answers to a prompt unless `trl.num_generations` is set; 0 if there are no groups."""
    whole_groups: bool = False
    """Whether all answers to a prompt must be on one device."""
    prepares_rows: bool = False
    """Whether its trainer tokenizes each row by itself, by TRL's `_prepare_dataset`, and draws rows by
    transformers' samplers: rows that no step draws need not be tokenized."""
    takes_images: bool = False
    """Whether its trainer makes model inputs of images."""
    mixes_images: bool = True
    """Whether a batch of its trainer may have rows with images and rows without."""
    metrics: tuple[str, ...] = ()
    """Its own metrics that show whether anything is learned."""
    health: HealthLimits | None = None
    """Limits of its metrics, if its trainer logs the metrics of an online method."""
    refusals: Mapping[str, Refusal] = field(default_factory=dict)
    """Name -> function that refuses a configuration; `training.planning.refusals` refuses for any method."""
    advice: Mapping[str, tuple[str, Refusal]] = field(default_factory=dict)
    """Name -> words of an error that its trainer's source raises, and the function that says what to do."""
    key: str = ""
    """A key that chooses the method when it is true, besides `rl`."""
    guessed_from: frozenset[str] = frozenset()
    """Keys, sections and tables for which a fragment without a method is planned as this one."""
    build: str = ""
    """A function (job, parts) -> trainer; if empty, the one for its needs."""
    for_features: bool = False
    """Whether TRL's own trainer is used unless a key is set that only this one honours."""
    own_sampler: bool = False
    """Whether its trainer generates answers in separate processes, by a vLLM server."""
    needs_cuda: bool = False
    """Whether the trainer itself demands a device."""
    resumes: bool = True
    """Whether its trainer can continue from a checkpoint."""
    evaluates: bool = True
    """Whether its trainer can evaluate on rows."""
    variant_key: str = ""
    """A key on which the method's nature depends."""
    variants: Mapping[str, "Runner"] = field(default_factory=dict)
    """Value of `variant_key` -> the runner for it; `TRLS_OWN` -> the one of TRL's own trainer."""

    def __post_init__(self) -> None:
        """Raise ValueError for a table, section, need or rule that fmtkit does not have."""
        added = self.features - TRL_FEATURES - IDLE.keys()
        for one in section.shipped():
            added -= one.features.keys()
        for what, given, known in (
            ("table", self.tables, TABLES),
            ("section", section.unknown(self.sections | self.idle - {"trl"}), ()),
            ("need", self.needs, get_args(Need)),
            ("feature", added, our_features() if added else ()),
            ("head", {self.head}, get_args(Head)),
            ("mask rule", {self.mask}, get_args(MaskRule)),
            ("ends of text", {self.text_ends}, get_args(TextEnds)),
        ):
            for name in sorted(set(given) - set(known)):
                raise ValueError(f"{self.method}: no {what} named {name!r}")

    @property
    def is_online(self) -> bool:
        """Return whether the arguments of its config class are keys of the section `trl`."""
        return bool(self.sections & {"rl", "vllm"})

    def variant(self, value: object) -> "Runner":
        """Return the runner for this value of `variant_key`, or this runner if there is none."""
        return self.variants.get(str(value), self)

    def variant_of(self, settings: Settings) -> "Runner":
        """Return the runner for a configuration's value of `variant_key`."""
        return self.variant(settings.get(self.variant_key)) if self.variant_key else self

    def features_of(self, settings: Settings) -> list[str]:
        """Return the keys that are set and that only fmtkit's own trainer honours."""
        return [key for part in self.hooks(FEATURES) for key in part(settings)]

    def provided(self, settings: Settings) -> frozenset[section.Provided]:
        """Return what an environment has in place of the run's own datasets, rewards and answers."""
        return frozenset(one for part in self.hooks(PROVIDES) for one in part(settings))

    def hooks(self, hook: section.Hook[F]) -> Iterator[F]:
        """Yield the functions of its sections for a hook."""
        for one in section.every() if self.sections else ():
            if one.name in self.sections:
                yield from one.hooks(hook)

    @property
    def builder(self) -> str:
        """Return the function that makes the trainer."""
        online = "fmtkit.training.online.build:build_online"
        return self.build or (
            online if "rewards" in self.needs else "fmtkit.training.building.build:build_trainer"
        )


@cache
def shipped_names() -> tuple[str, ...]:
    """Return the methods of fmtkit itself, sorted; no runner is imported."""
    modules = pkgutil.iter_modules(importlib.import_module(GROUP).__path__)
    files = [module.name for module in modules if not module.ispkg]
    return tuple(sorted((*files, *section.folders("runner"))))


@cache
def shipped() -> tuple[Runner, ...]:
    """Return the runners of fmtkit itself, by name."""
    return tuple(find(name) for name in shipped_names())


def names() -> tuple[str, ...]:
    """Return the methods that can be named, sorted."""
    return tuple(sorted({*shipped_names(), *plugins.installed(GROUP)}))


def methods(fits: Callable[[Runner], bool]) -> str:
    """Return the shipped methods that meet a condition, for a message; without TRL there may be none."""
    *others, last = [runner.method for runner in shipped() if fits(runner)] or ["no method"]
    return f"{', '.join(others)} and {last}" if others else last


def guess(hints: Collection[str]) -> str | None:
    """Return the shipped method that keys, sections or tables belong to; None if they determine none."""
    found = [runner for runner in shipped() if not runner.guessed_from.isdisjoint(hints)]
    # A method with sections of its own before one that a single key suggests.
    return max(found, key=lambda runner: len(runner.sections)).method if found else None


def unknown(method: str) -> FmtkitError:
    """Return the error for a method that is not there: what it needs, or the near one, and all others."""
    if absent := section.lacking(method):
        return DependencyError(
            f"method {method} needs {GROUP}.{absent}, which this installation of fmtkit lacks"
        )
    error = UnknownNameError("method", method, names())
    if near_match(method, names()):
        error.args = (f"{error}; installed: {', '.join(names())}",)
    return error


def find(method: str) -> Runner:
    """Return the runner of a method.

    Raises UnknownNameError where there is none, OptionError where two packages have one of that name,
    DependencyError where the package that has it, or one with a section for it, cannot be used, or where a
    folder of fmtkit is missing that it needs.
    """
    is_ours = method in shipped_names()
    is_added = method in plugins.installed(GROUP)
    point = (
        plugins.entry_point_named(GROUP, "method", method, shipped=is_ours) if is_added else None
    )
    if point is not None:
        return _with_sections(plugins.constant(point, "method", "RUNNER", Runner, "method"))
    if not is_ours:
        raise unknown(method)
    return _of_fmtkit(method)


def find_known(method: object) -> Runner | None:
    """Return the runner of a method, of the default one for None; None for a method that is not there."""
    name = DEFAULT if method is None else method
    return find(str(name)) if name in names() else None


@cache
def _of_fmtkit(method: str) -> Runner:
    place = f"{method}.runner" if method in section.folders("runner") else method
    return _with_sections(importlib.import_module(f"{GROUP}.{place}").RUNNER)


def _with_sections(runner: Runner) -> Runner:
    """Return a runner with the sections that name its method, train it, or act on one of its features.

    Where a section has a trainer for the method, TRL's own stays as a variant, with the other sections.
    """
    # fmtkit's own first: of two with a trainer for a method, the package is at fault.
    every = sorted(section.every(), key=lambda one: section.is_added(one.name))
    training = [one for one in every if runner.method in one.trainers]
    for one in training[1:]:
        why = f"it has a trainer for {runner.method}, as section {training[0].name} has"
        raise section.unusable(one.name, why)
    trained_by = {one.name for one in training}
    own = section.of_method(runner.method) | trained_by
    own |= {one.name for one in every if runner.features & one.features.keys()}
    if not own:
        return runner
    variants = dict(runner.variants)
    plain = variants.get(TRLS_OWN)
    if plain is None and training and runner.trainer.startswith(("trl:", "trl.")):
        plain = replace(runner, variants={})
    if plain is not None:
        variants[TRLS_OWN] = replace(plain, sections=plain.sections | (own - trained_by))
    found = replace(runner, sections=runner.sections | own, variants=variants)
    for one in training:
        try:
            found = replace(found, **cast("dict[str, Any]", dict(one.trainers[runner.method])))
        except (TypeError, ValueError) as error:
            raise section.unusable(one.name, f"its trainer for {runner.method}: {error}") from error
    if found.for_features and plain is not None:
        # Setting a feature takes the other trainer, so that no key is refused for this one.
        own |= plain.sections
        variants[TRLS_OWN] = replace(plain, sections=own, features=found.features)
    return found
