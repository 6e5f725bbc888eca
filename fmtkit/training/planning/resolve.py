"""Where every key of a configuration goes: the arguments of each class, and who set them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import SECTIONS, Runner
from fmtkit.training.config.arguments import Field, Fields, fields_of
from fmtkit.training.config.config import Config
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import SECTION, arguments_of, find_key
from fmtkit.training.config.problem import Problems
from fmtkit.training.planning.trainer_source import installed

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

_CODES = {"loss_type": "loss_type"}
"""Argument -> the code of what is wrong with its value, where that is checked elsewhere too."""
_SECTIONS = frozenset({*SECTIONS, "environment", "launch"})


@dataclass(frozen=True)
class Argument:
    """An argument, its value and who set it."""

    name: str
    value: object
    origin: str


Arguments = Mapping[str, Argument]


@dataclass
class Resolution:
    """The arguments of each destination, and what the user should know."""

    trainer: dict[str, Argument] = field(default_factory=dict)
    model: dict[str, Argument] = field(default_factory=dict)
    peft: dict[str, Argument] = field(default_factory=dict)
    quantization: dict[str, Argument] = field(default_factory=dict)
    teacher: dict[str, Argument] = field(default_factory=dict)
    own: dict[str, Argument] = field(default_factory=dict)
    sections: dict[str, dict[str, Argument]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def of(self, destination: str) -> dict[str, Argument]:
        """Return the arguments of a destination."""
        own = {
            "trainer": self.trainer,
            "model": self.model,
            "peft": self.peft,
            "quantization": self.quantization,
            "teacher": self.teacher,
        }
        return own[destination] if destination in own else self.sections.setdefault(destination, {})

    @property
    def is_quantized(self) -> bool:
        """Tell whether bitsandbytes quantizes the weights, which needs a CUDA device."""
        return bool(self.quantization) and "config_class" not in self.quantization

    def put(self, destination: str, argument: Argument) -> None:
        """Set an argument; two keys that set it to different values are an error."""
        where = self.of(destination)
        before = where.get(argument.name)
        if before is not None and before.value != argument.value and not _is_default(before):
            raise OptionError(
                f"{argument.origin} sets {argument.name} to {argument.value!r}, "
                f"but {before.origin} sets it to {before.value!r}; keep one"
            )
        where[argument.name] = argument

    def default(self, name: str, value: object, origin: str) -> None:
        """Set an argument of the trainer that nothing has set yet."""
        self.trainer.setdefault(name, Argument(name, value, origin))


def resolve(config: Config, runner: Runner, problems: Problems) -> Resolution:
    """Send every key to its destination; collect what the classes there do not take."""
    out = Resolution()
    for name, value in runner.arguments.items():
        out.put("trainer", Argument(name, value, f"method {runner.method}"))
    fields = arguments_of(runner)
    if not fields.judged:
        out.notes.append(
            f"{fields.package} is not installed: the arguments of {fields.class_name} pass unchecked"
        )
    for key, value, origin in _set_keys(config):
        if _section(key.name) in runner.idle or _is_left_out(key, value, config, fields):
            continue
        code = _CODES.get(key.target, "argument")
        with problems.collecting(code, key.name):
            for argument in _arguments(key, value, origin):
                with problems.collecting(code, _place_of(key, argument)):
                    if key.to == "trainer" and argument.name in runner.own:
                        out.own[argument.name] = argument
                    else:
                        _place(out, key, argument, fields)
    for name, value in runner.defaults.items():
        out.default(name, value, f"default of {runner.method}")
    _notes(config, runner, out)
    return out


def _is_left_out(key: Key, value: object, config: Config, fields: Fields) -> bool:
    """Tell whether a key sets nothing by itself: the plan says why, where that is not plain."""
    if key.name == "lora_target_modules":
        # axolotl takes the union; fmtkit.training.planning.derived makes it.
        return config.is_true("lora_target_linear")
    return _lacks(key, fields) or (
        isinstance(value, (str, bool)) and value in key.values and key.values[value] is None
    )


def _lacks(key: Key, fields: Fields) -> bool:
    """Tell whether a key that changes speed alone is for an argument that the class does not have."""
    return key.speed_only and key.target not in fields.fields


def _place_of(key: Key, argument: Argument) -> str:
    return f"{key.name}.{argument.name}" if key.target == "*" else key.name


def _set_keys(config: Config) -> Iterator[tuple[Key, object, str]]:
    for name, setting in config.settings.items():
        key = find_key(name)
        if key is not None:
            yield key, setting.value, setting.origin


def _inner_origin(key: Key, name: str, origin: str) -> str:
    """Say where one entry of a mapping came from; `--set` may have set another one of it."""
    given = origin.removeprefix("--set ")
    if given in {origin, key.name}:
        return f"{origin}.{name}"
    return origin if given == f"{key.name}.{name}" else f"key {key.name}.{name}"


def _arguments(key: Key, value: object, origin: str) -> Iterator[Argument]:
    """Yield what a key sets: one argument, those of a pass-through mapping, or none."""
    if key.target == "*":
        if not isinstance(value, Mapping):
            raise OptionError(f"{origin}: takes a mapping, not {value!r}")
        for name, inner in value.items():
            yield Argument(str(name), inner, _inner_origin(key, str(name), origin))
        return
    # A switch that spells one value of an argument (flash_attention: true) says nothing when false.
    if value is False and key.values and False not in key.values:
        return
    if key.target == "optim_args" and isinstance(value, Mapping):
        # transformers wants a text of this form.
        value = ",".join(f"{name}={inner}" for name, inner in value.items())
    yield Argument(key.target, key.translate(value), origin)


def _place(out: Resolution, key: Key, argument: Argument, fields: Fields) -> None:
    if key.to == "trainer":
        name, _, inner = argument.name.partition(".")
        fields.check(name, argument.origin)
        if inner:
            before = out.trainer.get(name)
            whole = dict(before.value) if before and isinstance(before.value, Mapping) else {}
            out.trainer[name] = Argument(name, {**whole, inner: argument.value}, argument.origin)
            return
        fields.check_value(name, argument.value, argument.origin)
        out.put("trainer", argument)
    elif key.to == "model":
        _check_model_argument(argument, own=key.target != "*")
        out.put("model", argument)
    elif key.to == "peft":
        if installed("peft") is not None:
            taken = fields_of("peft:LoraConfig")
            taken.check(argument.name, argument.origin)
            taken.check_value(argument.name, argument.value, argument.origin)
        out.put("peft", argument)
    elif key.to in {"quantization", "teacher", *_SECTIONS}:
        out.put(key.to, argument)


def _check_model_argument(argument: Argument, *, own: bool) -> None:
    if own or argument.name in MODEL_ARGUMENTS:
        return
    if argument.name == "torch_dtype":
        raise OptionError(f"{argument.origin}: transformers calls it dtype now")
    if argument.origin.startswith("key overrides_of_model_config"):
        return
    known = {name: Field(name, "any", None) for name in MODEL_ARGUMENTS}
    Fields("from_pretrained", "transformers", known).check(argument.name, argument.origin)


def _notes(config: Config, runner: Runner, out: Resolution) -> None:
    """Say which keys were set and change nothing, so that nothing is ignored in silence."""
    fields = arguments_of(runner)
    for key, value, _ in sorted(_set_keys(config), key=lambda one: one[0].name):
        if _lacks(key, fields) and value is not False:
            out.notes.append(
                f"{key.name} changes nothing: {fields.class_name} has no {key.target}, which would "
                "change speed and memory alone"
            )
        elif said := key.remark(value):
            out.notes.append(said)
        other = _acts_with(key)
        if other and value is not False and runner.sections & {"rl"} and _is_idle(config, other):
            out.notes.append(f"{key.name} changes nothing without {other}")
    dead = sorted(name for name in config.settings if _section(name) in runner.idle)
    if dead:
        out.notes.append(
            f"{runner.trainer.partition(':')[2]} takes no keys of {' or '.join(sorted(runner.idle))}: "
            f"{', '.join(dead)} change nothing"
        )
    for section in SECTIONS:
        if section not in runner.sections and out.sections.get(section):
            keys = ", ".join(
                sorted(a.origin.removeprefix("key ") for a in out.sections[section].values())
            )
            out.notes.append(f"{runner.method} does not use {keys}")
    if out.peft and config.get("adapter") is None:
        keys = ", ".join(sorted(a.origin.removeprefix("key ") for a in out.peft.values()))
        out.notes.append(f"without `adapter` all weights train: {keys} change nothing")


def _acts_with(key: Key) -> str:
    """Return the key that one needs to act; every argument of TRL's for vLLM needs that it is used."""
    is_vllm = key.name.startswith(f"{SECTION}.vllm_")
    return key.acts_with or (f"{SECTION}.use_vllm" if is_vllm else "")


def _is_idle(config: Config, name: str) -> bool:
    """Tell whether a key asks for nothing; the asynchronous trainer always samples by vLLM."""
    if name == f"{SECTION}.use_vllm" and config.text(f"{SECTION}.backend") == "async":
        return False
    return config.get(name) in (None, False, 0)


def _section(name: str) -> str:
    return name.partition(".")[0] if "." in name else ""


def _is_default(argument: Argument) -> bool:
    return argument.origin.startswith("default of ")
