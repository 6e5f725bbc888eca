"""The keys of a training configuration, from three declarations of them.

1. The tables of `MODULES` and of the sections (`fmtkit.core.section`), with axolotl's spelling of each
   key: the keys that fmtkit renames, derives, explains or refuses. A key of a section has a dotted name
   (`trl.beta`).
2. The options of `fmtkit convert` without a row in those tables, from the declaration of their field.
3. Every other argument of a trainer's config class, under its own name, read from the source of the
   installed TRL and transformers. Where TRL is not installed, the names are those of the shipped schema,
   and their values are not checked.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from json import loads
from typing import cast

from fmtkit.core import runner as runners
from fmtkit.core import section
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import UnknownNameError
from fmtkit.core.runner import Runner
from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training.config import (
    keys_axolotl,
    keys_data,
    keys_method,
    keys_model,
    keys_online,
    keys_run,
)
from fmtkit.training.config.class_arguments import (
    COUNTS,
    POSITIVE,
    REMOVED,
    SHARES,
    Field,
    Fields,
    fields_of,
    has_class,
    near_spelling,
)
from fmtkit.training.config.key import DESTINATIONS, Key, destinations, is_kind
from fmtkit.training.config.our_arguments import OURS
from fmtkit.training.config.trainer_source import installed

MODULES = (keys_model, keys_data, keys_run, keys_method, keys_online, keys_axolotl)
OF_DATASET = "datasets."
"""Prefix of the names of keys of an entry of `datasets`."""
OF_SECTIONS, TRAINERS_ALONE, CONDITIONAL = "of sections", "to the trainer alone", "conditional"
GROUPS = frozenset({OF_SECTIONS, TRAINERS_ALONE, CONDITIONAL})
"""Words for keys that sections have, for arguments that the trainer alone reads, and for keys that may change
nothing."""
DATASET_PATHS = frozenset({"path", "data_files", "data_dir", "chat_template"})
"""The keys of an entry of `datasets` that may name a file or a folder."""


@cache
def table() -> dict[str, Key]:
    """Return every key outside of `datasets`, by name."""
    return _with_options(_declared(), of_dataset=False)


def _declared() -> list[Key]:
    """Return the keys of the tables and of the sections.

    Raises DependencyError for a package whose section or keys cannot be used.
    """
    rows = [key for module in MODULES for key in module.KEYS]
    taken = {key.name for key in rows}
    for one in section.every():
        if section.is_added(one.name) and one.name in taken | {SECTION}:
            raise section.unusable(one.name, f"{one.name} is a key already")
        for key in one.load_keys():
            why = _fault(key, taken)
            if why:
                raise section.unusable(one.name, why)
            taken.add(key.name)
            rows.append(key)
        if one.switch and one.switch not in taken:
            raise section.unusable(one.name, f"its switch {one.switch!r} is no key")
        for name in one.features:
            if f"{SECTION}.{name}" not in taken:
                raise section.unusable(one.name, f"its feature {name!r} is no key of {SECTION}")
    return rows


def _fault(key: object, taken: Container[str]) -> str:
    """Return what is wrong with a key that a section declares; empty where nothing is."""
    if not isinstance(key, Key):
        return f"{key!r:.80} is no {Key.__module__}.{Key.__name__}"
    if key.name in taken:
        return f"{key.name} is a key already"
    if key.to not in destinations():
        return f"key {key.name}: there is no {key.to!r} that it could go to"
    return "" if is_kind(key.kind) else f"key {key.name}: there is no kind {key.kind!r} of values"


@cache
def dataset_table() -> dict[str, Key]:
    """Return every key of an entry of `datasets`, by name."""
    return _with_options(keys_data.DATASET_KEYS, of_dataset=True)


def option_keys(*, of_dataset: bool) -> list[Key]:
    """Return the keys that are declared only as options of `fmtkit convert`."""
    every = dataset_table() if of_dataset else table()
    declared = keys_data.DATASET_KEYS if of_dataset else _declared()
    return [key for name, key in every.items() if name not in {row.name for row in declared}]


def _with_options(rows: Sequence[Key], *, of_dataset: bool) -> dict[str, Key]:
    by_name = {key.name: key for key in rows}
    if len(by_name) != len(rows):
        raise ValueError("duplicate key in the table of keys")
    for option, declared in ConvertOptions.declared().items():
        for name in declared.keys:
            bare = name.removeprefix(OF_DATASET)
            if name.startswith(OF_DATASET) is of_dataset and bare not in by_name:
                by_name[bare] = Key(bare, f"option:{option}", "fmtkit", declared.help)
    return by_name


@cache
def aliases() -> dict[str, str]:
    """Return alias -> name of the key."""
    return {alias: key.name for key in table().values() for alias in key.aliases}


@cache
def section_names() -> frozenset[str]:
    """Return the names of the sections: the part of dotted names before the dot."""
    return frozenset(name.partition(".")[0] for name in table() if "." in name)


SECTION = "trl"
"""The section with the arguments of the online methods' config classes, as in axolotl."""
MARK = "x-argument-of"
"""Property of the shipped schema that lists the methods that have an argument."""
GENERAL = "transformers:TrainingArguments"
"""The class whose arguments those of all methods have."""
_OURS = frozenset(
    {
        "chat_template_path",
        "dataset_kwargs",
        "dataset_num_proc",
        "dataset_text_field",
        "disable_tqdm",
        "do_eval",
        "do_predict",
        "do_train",
        "eos_token",
        "hub_token",
        "logging_nan_inf_filter",
        "max_length",
        "model_init_kwargs",
        "output_dir",
        "pad_token",
        "parallelism_config",
        "push_to_hub_token",
        "teacher_model_init_kwargs",
        "teacher_model_name_or_path",
        "teacher_model_revision",
    }
)
"""Arguments that fmtkit sets from keys with other names."""
_TYPES: dict[frozenset[str], str] = {
    frozenset({"bool"}): "bool",
    frozenset({"int"}): "integer",
    frozenset({"float"}): "number",
    frozenset({"int", "float"}): "number",
    frozenset({"str"}): "text",
    frozenset({"list"}): "list",
    frozenset({"dict"}): "object",
    frozenset({"list", "str"}): "text or texts",
    frozenset({"dict", "str"}): "text or object",
    frozenset({"bool", "str"}): "bool or text",
}


@dataclass(frozen=True)
class MethodsArgument:
    """An argument, and the methods whose config class has it."""

    field: Field
    methods: tuple[str, ...]


def arguments_of(runner: Runner) -> Fields:
    """Return the arguments of a runner's config class; `checked` is false if it is not installed."""
    package = runner.config.partition(":")[0].partition(".")[0]
    if installed(package) is not None and has_class(runner.config):
        return fields_of(runner.config, runner.trainer)
    names = {name for name, methods in _shipped().items() if runner.method in methods}
    targets = {key.target.partition(".")[0] for key in table().values() if key.to == "trainer"}
    fields = {
        name.rpartition(".")[2]: Field(name.rpartition(".")[2], "any", None)
        for name in {*names, *targets}
    }
    return Fields(runner.config.partition(":")[2], package, fields, checked=False)


def find_key(name: str) -> Key | None:
    """Return the key of a name or dotted name, or None. An alias is not looked up."""
    declared = table().get(name)
    return declared if declared is not None else _argument_keys().get(name)


def argument_of(name: str) -> str | None:
    """Return the trainer's argument that a key is, if no key of that very name is: None for others."""
    key = find_key(name)
    if key is None or key.to != "trainer" or key.target == "*":
        return None
    is_own = key.target == name.rpartition(".")[2] or find_key(key.target) is None
    return key.target if is_own else None


def check(name: str) -> None:
    """Raise UnknownNameError for a name that is neither a key, nor an alias, nor an argument."""
    if name not in aliases() and find_key(name) is None:
        error = UnknownNameError("key", name, ())
        error.args = (f"no key named {name!r}; {_advice(name)}",)
        raise error


@cache
def of_sections() -> frozenset[str]:
    """Return the names of the keys that sections declare, and of those that go to one."""
    declared = {key.name for one in section.every() for key in one.load_keys()}
    return frozenset(
        declared | {name for name, key in table().items() if key.to not in DESTINATIONS}
    )


def is_nameable(name: str) -> bool:
    """Return whether `Config.sets` knows a name: that of a key, of a group of keys, or a pattern of some."""
    if name.startswith("to ") and name not in GROUPS:
        return name.removeprefix("to ") in destinations()
    if name.startswith(OF_DATASET):
        return name.removeprefix(OF_DATASET) in dataset_table()
    if "*" in name:
        return any(fnmatchcase(known, name) for known in (*table(), *_argument_keys()))
    return name in GROUPS or find_key(name) is not None


def is_for_trainer_alone(key: Key, value: object) -> bool:
    """Return whether a key sets an argument that TRL adds, and that fmtkit itself does not act on."""
    if key.to != "trainer":
        return False
    names = value if key.target == "*" and isinstance(value, Mapping) else (key.target,)
    general = fields_of(GENERAL).fields if has_class(GENERAL) else {}
    return any(name not in general and name not in OURS for name in names)


MEANT: dict[str, str] = {
    "adam_eps": "it is adam_epsilon",
    "base_model_attribute_name": "TRL has removed it; leave it out",
    "cliprange": "its present name is epsilon",
    "config_file": "the file of accelerate is accelerate_config here, as in TRL",
    "dataset_batch_size": "TRL has removed it; rows are converted in columns",
    "dataset_mixer": "write datasets: [{path: NAME, split: SPLIT}, ...]; a share of each is mixture_share",
    "dataset_mixture": "write datasets: [{path: NAME, split: SPLIT}, ...]; a share of each is mixture_share",
    "dataset_prompt_column": "write columns: {prompt: NAME} in an entry of datasets",
    "eta_min": "the floor of a cosine is cosine_min_lr_ratio, a share of learning_rate",
    "force_use_ref_model": "TRL has removed it; ref_model names a reference of your own",
    "full_finetune": "all weights are trained unless adapter is set",
    "gpu_ids": "write env: {CUDA_VISIBLE_DEVICES: '0,1'}",
    "hub_token": "a token belongs in the shell: HF_TOKEN=... fmtkit train FILE, or hf auth login",
    "is_encoder_decoder": "TRL has removed it, and trains decoder-only models",
    "judge": "TRL has removed its judges; reward_funcs scores while training, fmtkit try --judge afterwards",
    "kl_coef": "its present name is beta",
    "label_pad_token_id": "TRL has removed it; what is not trained on has the label -100",
    "local_rollout_forward_batch_size": "TRL has removed it; leave it out",
    "log_with": "its present name is report_to",
    "machine_rank": "for several machines name an accelerate file of your own as accelerate_config",
    "main_process_ip": "for several machines name an accelerate file of your own as accelerate_config",
    "mixed_precision": "write bf16: true or fp16: true; TRL's scripts set bf16 by default",
    "model_name": "write model_name_or_path, or base_model",
    "num_machines": "for several machines name an accelerate file of your own as accelerate_config",
    "num_mini_batches": "TRL has removed it; write steps_per_generation",
    "num_of_sequences": "TRL has removed it; packing fills rows of max_length",
    "num_ppo_epochs": "its present name is num_iterations",
    "optimize_cuda_cache": "its present name is torch_empty_cache_steps, a number of steps",
    "padding_value": "TRL has removed it; rows are padded with pad_token",
    "parallelism_config": "write context_parallel_size, dp_shard_size or dp_replicate_size",
    "preprocessing_num_workers": "its present name is dataset_num_proc",
    "push_to_hub_token": "a token belongs in the shell: HF_TOKEN=... fmtkit train FILE, or hf auth login",
    "ref_model_init_kwargs": "TRL has removed it; the reference is loaded as the model is",
    "reference_free": "TRL has removed it; for a loss without a reference use rl: orpo, cpo or simpo",
    "response_length": "its present name is max_completion_length",
    "rloo_k": "its present name is num_generations",
    "stop_token": "TRL has removed it; an answer ends at eos_token",
    "system_prompt": "put a system turn into the rows",
    "teacher_model_revision": "write teacher_model_init_kwargs: {revision: REVISION}",
    "token_level_kl": "TRL has removed it; leave it out",
    "total_episodes": "write max_steps or num_train_epochs",
    "use_liger": "its present name is use_liger_kernel",
    "use_logits_to_keep": "TRL has removed it; leave it out",
    "use_num_logits_to_keep": "TRL has removed it; leave it out",
    "vllm_device": "TRL has removed it; vllm_mode says where vLLM runs",
}
"""Keys of other tools and former versions -> what to write instead."""


def _advice(name: str) -> str:
    """Return what to write instead of an unknown key: what it is elsewhere, or the name that was misspelt."""
    section, _, last = name.rpartition(".")
    if last in MEANT:
        return MEANT[last]
    every = {*table(), *aliases(), *_argument_keys()}
    works = {known for known in every if not _is_refused(known)}
    elsewhere = sorted(known for known in works if known.rpartition(".")[2] == last)
    if elsewhere:
        return f"did you mean {' or '.join(map(repr, elsewhere))}?"
    if last in dataset_table():
        return f"it is a key of an entry of datasets: datasets: [{{path: FILE, {last}: ...}}]"
    if last in REMOVED:
        return REMOVED[last]
    match = near_spelling(name, (known for known in works if known.rpartition(".")[0] == section))
    return f"did you mean {match!r}?" if match else "docs/config.md lists all keys"


def _is_refused(name: str) -> bool:
    key = find_key(aliases().get(name, name))
    return key is not None and key.to == "refused"


@cache
def _argument_keys() -> dict[str, Key]:
    """Return the key of every argument that the tables do not have, by its dotted name."""
    arguments = arguments_by_name()
    if not arguments:
        return {
            name: Key(name, "any", "trainer", f"argument of {', '.join(methods)}")
            for name, methods in _shipped().items()
        }
    return {name: _argument_key(name, one.field) for name, one in arguments.items()}


@cache
def arguments_by_name() -> dict[str, MethodsArgument]:
    """Return the arguments of the installed config classes of all methods, by dotted name.

    Arguments that the class of an online method adds to those of transformers are in the section `trl`; all
    others are at the top level.
    """
    general = fields_of(GENERAL).fields if has_class(GENERAL) else {}
    out: dict[str, MethodsArgument] = {}
    for runner in _runners():
        if not has_class(runner.config):
            continue
        online = runner.is_online
        for name, field in fields_of(runner.config, runner.trainer).fields.items():
            dotted = f"{SECTION}.{name}" if online and name not in general else name
            before = out.get(dotted)
            methods = (*before.methods, runner.method) if before else (runner.method,)
            both = _joined(before.field, field) if before else field
            out[dotted] = MethodsArgument(both, tuple(dict.fromkeys(methods)))
    return {name: one for name, one in sorted(out.items()) if _is_undeclared(name)}


def _is_undeclared(name: str) -> bool:
    last = name.rpartition(".")[2]
    return not (name in table() or name in aliases() or last in _OURS or last[0] == "_")


def _runners() -> Iterator[Runner]:
    for runner in runners.shipped():
        yield from (runner, *runner.variants.values())


def _joined(first: Field, second: Field) -> Field:
    """Return a field that accepts the values that either of two methods accepts."""
    both = first.choices and second.choices
    choices = tuple(dict.fromkeys((*first.choices, *second.choices))) if both else ()
    types = None if None in {first.types, second.types} else first.types | second.types  # type: ignore[operator]
    return replace(first, choices=choices, types=types)


def _argument_key(name: str, field: Field) -> Key:
    return Key(name, kind_of(field), "trainer", field.about or "an argument of the same name")


def kind_of(field: Field) -> str:
    """Return the kind of values of a field, as `Key.kind` names it."""
    types = None if field.types is None else field.types - {"None"}
    if types is None:
        return "any"
    if field.choices and types == {"str"}:
        return "enum:" + "|".join(field.choices)
    kind = _TYPES.get(types, "any")
    if field.annotation.startswith("list[float]"):
        return "numbers"
    if field.annotation.startswith("list[str]") and kind == "list":
        return "texts"
    if kind == "integer":
        signed = "steps" if field.name == "max_steps" else "integer"
        return "count" if field.name in COUNTS else signed if field.is_signed else "natural"
    if kind == "number":
        if field.name in SHARES | POSITIVE:
            return "fraction" if field.name in SHARES else "positive"
        return "number" if field.is_signed else "amount"
    return kind


@cache
def _shipped() -> dict[str, tuple[str, ...]]:
    """Return argument -> methods, from the shipped schema."""
    text = files("fmtkit.schemas").joinpath("config.schema.json").read_text(encoding="utf-8")
    properties = cast("dict[str, Mapping[str, object]]", loads(text)["properties"])
    inside = cast("Mapping[str, Mapping[str, object]]", properties[SECTION].get("properties", {}))
    every = {**properties, **{f"{SECTION}.{name}": value for name, value in inside.items()}}
    return {
        name: tuple(cast("list[str]", value[MARK]))
        for name, value in every.items()
        if MARK in value
    }
