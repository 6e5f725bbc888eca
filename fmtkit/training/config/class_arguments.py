"""What the arguments of installed classes take: names, types, defaults, choices and their first sentence.

All of it is read from the installed files (fmtkit.training.config.trainer_source), so that a plan needs no
torch, and a new version of TRL needs no new line here.
"""

import ast
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError, near_match
from fmtkit.training.config import argument_choices
from fmtkit.training.config.trainer_source import UNKNOWN, Class, find_class, installed

REMOVED: dict[str, str] = {
    "evaluation_strategy": "it is eval_strategy now",
    "generate_during_eval": "write generate_samples: N, which is shown in the run's page",
    "group_by_length": "it is train_sampling_strategy='group_by_length' now",
    "include_tokens_per_second": "metrics.jsonl has tokens per second",
    "logging_dir": "set the environment variable TENSORBOARD_LOGGING_DIR",
    "max_prompt_length": "prompts are no longer truncated; excess_length_strategy is for long rows",
    "max_seq_length": "it is max_length now",
    "no_cuda": "it is use_cpu now",
    "overwrite_output_dir": "use --resume, or a different output_dir",
    "rpo_alpha": "write loss_type: [sigmoid, sft] and loss_weights: [1.0, ALPHA]",
    "save_safetensors": "leave it out: weights are always saved as safetensors",
    "tokenizer": "it is processing_class now, and fmtkit passes it",
    "wandb_log_unique_prompts": "it is log_unique_prompts now",
    "warmup_ratio": "it is warmup_steps below 1 now",
}
"""Arguments that older versions had, and what to write instead."""
FORMER_NAMES = {
    "activation_checkpointing": "gradient_checkpointing",
    "activation_checkpointing_kwargs": "gradient_checkpointing_kwargs",
}
"""Arguments of transformers -> their names in older releases of version 5 (in 5.17, not in 5.23)."""

COUNTS = frozenset(
    {
        "dataloader_prefetch_factor",
        "ddp_bucket_cap_mb",
        "ddp_timeout",
        "generation_batch_size",
        "gradient_accumulation_steps",
        "max_completion_length",
        "max_length",
        "max_new_tokens",
        "max_tool_calling_iterations",
        "num_completions_to_print",
        "num_generations",
        "num_generations_eval",
        "num_iterations",
        "pad_to_multiple_of",
        "per_device_eval_batch_size",
        "per_device_train_batch_size",
        "precompute_ref_batch_size",
        "ref_model_sync_steps",
        "save_total_limit",
        "steps_per_generation",
        "torch_empty_cache_steps",
        "vllm_group_port",
        "vllm_max_model_length",
        "vllm_server_port",
        "vllm_tensor_parallel_size",
    }
)
"""Whole numbers from 1; the source only says `int`, and fails later or not at all."""
SHARES = frozenset(
    {
        "adam_beta1",
        "adam_beta2",
        "label_smoothing",
        "label_smoothing_factor",
        "ld_alpha",
        "lmbda",
        "min_p",
        "ref_model_mixup_alpha",
        "top_p",
        "vllm_gpu_memory_utilization",
    }
)
"""Numbers from 0 to 1."""
POSITIVE = frozenset({"repetition_penalty", "temperature"})
"""Numbers above 0: sampling divides by them."""
SIGNED = frozenset(
    {
        "alpha",
        "discopop_tau",
        "f_alpha_divergence_coef",
        "local_rank",
        "max_steps",
        "reward_weights",
        "simpo_gamma",
        "top_k",
    }
)
"""Numbers that may be below 0; others may not, unless their default is."""

MODEL_ARGUMENTS = frozenset(
    [
        "attn_implementation",
        "cache_dir",
        "config",
        "device_map",
        "dtype",
        "experts_implementation",
        "force_download",
        "ignore_mismatched_sizes",
        "key_mapping",
        "local_files_only",
        "low_cpu_mem_usage",
        "max_memory",
        "offload_buffers",
        "offload_folder",
        "quantization_config",
        "revision",
        "state_dict",
        "subfolder",
        "token",
        "tp_plan",
        "tp_size",
        "trust_remote_code",
        "use_cache",
        "use_kernels",
        "use_safetensors",
        "variant",
        "weights_only",
        "rope_scaling",
        "rope_theta",
        "rope_parameters",
        "max_position_embeddings",
        "sliding_window",
        "attention_dropout",
        "output_router_logits",
        "router_aux_loss_coef",
        "num_labels",
    ]
)
"""Arguments of from_pretrained, and the attributes of a model's config that training changes."""
_TYPES = {"int", "float", "bool", "str", "list", "dict", "None"}


def near_spelling(name: str, known: Iterable[str]) -> str | None:
    """Return the known name of which one is a misspelling; None where no name is that near.

    A slip in every six characters, at least one: `use_peft` is no misspelt `use_eaft`.
    """
    most = max(1, len(name) // 6)
    near = [(_slips(name.lower(), one), one) for one in known if abs(len(one) - len(name)) <= most]
    slips, one = min(near, default=(most + 1, ""))
    return one if slips <= most else None


def _slips(one: str, other: str) -> int:
    """Count the characters to insert, delete, replace or swap with their neighbour (Damerau-Levenshtein)."""
    rows = [list(range(len(other) + 1))]
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and (a, one[i - 2]) == (other[j - 2], b):
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


@dataclass(frozen=True)
class Field:
    """An argument of a class. `types` are names of Python types; None where they are not understood.

    `default` is UNKNOWN where the source computes it.
    """

    name: str
    annotation: str
    types: frozenset[str] | None
    default: object = UNKNOWN
    choices: tuple[str, ...] = ()
    about: str = ""

    def problem(self, value: object) -> str | None:
        """Return why a value is not valid, or None."""
        if value is None:
            return None
        if self.types is not None and not self._fits(value):
            return f"{self.name} takes {self.annotation}, not {value!r}"
        items = value if isinstance(value, list) else [value]
        wrong = [t for t in items if isinstance(t, str) and self.choices and t not in self.choices]
        if wrong:
            near = near_match(wrong[0], self.choices)
            meant = f"; did you mean {near!r}?" if near else ""
            return f"{wrong[0]!r} is not one of {', '.join(self.choices)}{meant}"
        return self._range(value)

    def _fits(self, value: object) -> bool:
        types = self.types or frozenset()
        return (
            ("bool" in types and isinstance(value, bool))
            or ("int" in types and isinstance(value, int) and not isinstance(value, bool))
            or (
                "float" in types and isinstance(value, (int, float)) and not isinstance(value, bool)
            )
            or ("str" in types and isinstance(value, str))
            or ("list" in types and isinstance(value, list))
            or ("dict" in types and isinstance(value, Mapping))
        )

    def _range(self, value: object) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        if self.name in COUNTS and value < 1:
            return f"{value!r} is not a whole number from 1"
        if self.name in SHARES and not 0 <= value <= 1:
            return f"{value!r} is not a number from 0 to 1"
        if self.name in POSITIVE and value <= 0:
            return f"{value!r} is not a number above 0"
        if value < 0 and not self.is_signed:
            return f"{value!r} is not a number from 0"
        return None

    @property
    def is_signed(self) -> bool:
        """Return whether the argument may be below 0."""
        default = self.default
        return self.name in SIGNED or (isinstance(default, (int, float)) and default < 0)


@dataclass(frozen=True)
class Fields:
    """The arguments of a config class, by name."""

    class_name: str
    package: str
    fields: Mapping[str, Field] = field(default_factory=dict)
    checked: bool = True
    """False if the package is not installed, so that values cannot be checked."""

    @property
    def annotations(self) -> dict[str, str]:
        """Return the annotation of every argument, as in the source."""
        return {name: entry.annotation for name, entry in self.fields.items()}

    def check(self, name: str, origin: str) -> None:
        """Raise OptionError if the class has no such argument."""
        if self._named_here(name) in self.fields or not self.checked:
            return
        if name in REMOVED:
            advice = REMOVED[name]
        else:
            near = near_spelling(name, self.fields)
            advice = f"did you mean {near!r}?" if near else "see docs/config.md"
        raise OptionError(
            f"{origin}: {self.class_name} of {self.package} has no argument {name!r}; {advice}"
        )

    def _named_here(self, name: str) -> str:
        return name if name in self.fields else FORMER_NAMES.get(name, name)

    def check_value(self, name: str, value: object, origin: str) -> None:
        """Raise OptionError if a value is not one that the argument takes."""
        problem = self.fields[self._named_here(name)].problem(value) if self.checked else None
        if problem is not None:
            raise OptionError(f"{origin}: {problem}")


@cache
def fields_of(config: str, trainer: str = "") -> Fields:
    """Return the arguments of a config class named as in a runner ("trl:DPOConfig").

    `trainer` is the class that takes them; by default, the one with the matching name. Raises
    DependencyError where the package is not installed or has no such class.
    """
    module, _, class_name = config.partition(":")
    package = module.partition(".")[0]
    version = installed(package)
    if version is None:
        raise DependencyError(
            f"{package} is not installed; install it with: pip install 'fmtkit[train]'"
        )
    definition = find_class(config)
    if definition is None:
        raise DependencyError(f"{package} {version} has no {module}.{class_name}")
    taker = find_class(trainer or trainer_of(config))
    return Fields(class_name, f"{package} {version}", _fields(definition, taker))


def trainer_of(config: str) -> str:
    """Return the trainer that a config class of TRL is for, by its name."""
    module, _, class_name = config.partition(":")
    return f"{module}:{class_name.removesuffix('Config')}Trainer"


def has_class(path: str) -> bool:
    """Return whether the installed package defines the class that a runner names."""
    return find_class(path) is not None


def _fields(config: Class, trainer: Class | None) -> dict[str, Field]:
    choices = _choices(config, trainer)
    docs = argument_choices.docs_of(config)
    out: dict[str, Field] = {}
    for owner in reversed(config.lineage()):
        for node in owner.node.body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            annotation = ast.unparse(node.annotation)
            if annotation.startswith("ClassVar"):
                continue
            name = node.target.id
            types = types_of(annotation)
            literal = argument_choices.from_annotations(annotation)
            literals = choices.get(name, ()) if literal is None else literal
            out[name] = Field(
                name, annotation, types, _default(node.value), literals, docs.get(name, "")
            )
    return out


def _choices(config: Class, trainer: Class | None) -> dict[str, tuple[str, ...]]:
    documented = argument_choices.from_docstring(config)
    chains = argument_choices.from_chains(trainer) if trainer else {}
    both = {
        name: tuple(dict.fromkeys((*documented.get(name, ()), *sorted(chains.get(name, ())))))
        for name in {*documented, *chains}
    }
    return both | argument_choices.from_enumerations(config)


@cache
def types_of(annotation: str) -> frozenset[str] | None:
    """Return the plain types of an annotation (`list[str] | None`: list, None), or None."""
    names = {_type(part) for part in _parts(ast.parse(annotation, mode="eval").body)}
    if "list[str]" in annotation:
        # TRL makes a list of a single name.
        names.add("str")
    return frozenset(filter(None, names)) if None not in names else None


def _parts(node: ast.expr) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return [*_parts(left), *_parts(right)]
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return [*_parts(inner), ast.Constant(None)]
        case ast.Subscript(value=ast.Name(id="Union"), slice=ast.Tuple(elts=inner)):
            return [part for one in inner for part in _parts(one)]
        case ast.Constant(value=str() as text):
            return _parts(ast.parse(text, mode="eval").body)
    return [node]


def _type(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=None):
            return "None"
        case ast.Name(id=name) if name in _TYPES:
            return name
        case ast.Subscript(value=ast.Name(id="list" | "dict" | "List" | "Dict" as name)):
            return name.lower()
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            kinds = {type(i.value).__name__ if isinstance(i, ast.Constant) else None for i in items}
            return kinds.pop() if len(kinds) == 1 else None
        case ast.Name(id=name) if name.endswith(("Strategy", "SchedulerType", "OptimizerNames")):
            return "str"
    return None


def _default(node: ast.expr | None) -> object:
    """Return a field's default where the source states it as a literal."""
    match node:
        case None:
            return UNKNOWN
        case ast.Call(func=ast.Name(id="field"), keywords=keywords):
            by_name = {k.arg: k.value for k in keywords}
            factory = by_name.get("default_factory")
            if isinstance(factory, ast.Name) and factory.id in {"list", "dict"}:
                return [] if factory.id == "list" else {}
            if isinstance(factory, ast.Lambda):
                return _default(factory.body)
            return _default(by_name["default"]) if "default" in by_name else UNKNOWN
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN
