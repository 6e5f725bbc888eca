"""The arguments of each class: where every key goes, what follows from several keys, and who set them.

Keys that are set and change nothing are noted in `planning.idle`.
"""

import ast
from collections.abc import Iterator, Mapping

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner
from fmtkit.training.config.class_arguments import MODEL_ARGUMENTS, Field, Fields, fields_of
from fmtkit.training.config.config import Config
from fmtkit.training.config.key import Key
from fmtkit.training.config.keys import arguments_of, find_key, table
from fmtkit.training.config.problems import Problems
from fmtkit.training.config.trainer_source import installed
from fmtkit.training.config.user_objects import is_dotted
from fmtkit.training.planning import hooks
from fmtkit.training.planning.job import ALL_LINEAR, BY_DEVICE
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import DEFAULT_LENGTH, Argument, Arguments

_NOWHERE = frozenset({"fmtkit", "nothing", "refused"})
"""Where keys go that are no argument of anything."""
_CODES = {"loss_type": "loss_type"}
"""Argument -> the code of a wrong value, where another check reports the same."""
_FATES = {"drop": "dropped", "fail": "rejected", "keep": "cut or dropped as TRL does"}


def resolve(config: Config, runner: Runner, problems: Problems) -> Arguments:
    """Send every key to its destination; collect keys that the classes there do not take."""
    out = Arguments()
    for name, value in runner.arguments.items():
        out.put("trainer", Argument(name, value, f"method {runner.method}"))
    fields = arguments_of(runner)
    if not fields.checked:
        out.notes.append(
            f"{fields.package} is not installed: the arguments of {fields.class_name} pass unchecked"
        )
    for key, value, origin in set_keys(config):
        if section_of(key.name) in runner.idle or _is_left_out(key, value, config, fields):
            continue
        code = _CODES.get(key.target, "argument")
        with problems.collecting(code, key.name):
            for argument in _arguments(key, value, origin):
                with problems.collecting(code, _place_of(key, argument)):
                    if key.to in {"trainer", "rl"} and argument.name in runner.own:
                        out.own[argument.name] = argument
                    else:
                        _place(out, key, argument, fields)
    for name, value in runner.defaults.items():
        out.default(name, value, f"default of {runner.method}")
    return out


def _is_left_out(key: Key, value: object, config: Config, fields: Fields) -> bool:
    """Return whether a key has no effect on its own; the plan says why, where it is not obvious."""
    if key.name == "lora_target_modules":
        # axolotl takes the union; _adapter makes it.
        return config.is_true("lora_target_linear")
    if key.target in {"optim", "optim_args"} and optimizer_class(config):
        # They name no argument of the trainer: _optimizer places them.
        return True
    return lacks(key, fields) or (
        isinstance(value, (str, bool)) and value in key.values and key.values[value] is None
    )


def lacks(key: Key, fields: Fields) -> bool:
    """Return whether a speed-only key is for an argument that the class does not have."""
    return key.speed_only and key.target not in fields.fields


def optimizer_class(config: Config) -> str | None:
    """Return the class that `optimizer` names as module.Class; None for a name of transformers."""
    name = config.text("optimizer")
    return name if name is not None and is_dotted(name) else None


def _place_of(key: Key, argument: Argument) -> str:
    return f"{key.name}.{argument.name}" if key.target == "*" else key.name


def set_keys(config: Config) -> Iterator[tuple[Key, object, str]]:
    """Yield each key that is set, its value and its origin."""
    for name, setting in config.settings.items():
        key = find_key(name)
        if key is not None:
            yield key, setting.value, setting.origin


def _inner_origin(key: Key, name: str, origin: str) -> str:
    """Return where one entry of a mapping came from; `--set` may have set a different one."""
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
    # A switch that spells one value of an argument (flash_attention: true) sets nothing when false.
    if value is False and key.values and False not in key.values:
        return
    if key.target == "optim_args" and isinstance(value, Mapping):
        # transformers wants a string of this form.
        value = ",".join(f"{name}={inner}" for name, inner in value.items())
    yield Argument(key.target, key.translate(value), origin)


def _place(out: Arguments, key: Key, argument: Argument, fields: Fields) -> None:
    if key.to == "trainer":
        name, _, inner = argument.name.partition(".")
        fields.check(name, argument.origin)
        if inner:
            before = out.trainer.get(name)
            merged = dict(before.value) if before and isinstance(before.value, Mapping) else {}
            out.trainer[name] = Argument(name, {**merged, inner: argument.value}, argument.origin)
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
    elif key.to not in _NOWHERE:
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


def section_of(name: str) -> str:
    """Return the section that a dotted name of a key begins with; empty for one of the whole run."""
    return name.partition(".")[0] if "." in name else ""


def derive(plan: Plan, problems: Problems) -> None:
    """Set the arguments that follow from several keys, or from none; collect contradictions."""
    config, chosen, out = plan.config, plan.runner, plan.arguments
    with problems.collecting("conflict"):
        for name, value in plan.launch.trainer.items():
            out.put("trainer", Argument(name, value, "how it is launched"))
    for step in (_batch, _schedule, _precision, _optimizer, _adapter, _kernels):
        with problems.collecting("conflict"):
            step(config, out)
    _mask(config, chosen, out)
    with problems.collecting("conflict"):
        _length(config, chosen, out)
    for derive_section in chosen.hooks(hooks.DERIVE):
        with problems.collecting("section"):
            derive_section(plan)
    with problems.collecting("conflict"):
        _variables(config, chosen, out)
    out.default("activation_checkpointing", False, "default of fmtkit")
    out.default(
        "report_to",
        _reports(config),
        "key report_to" if _reports(config) != "none" else "default of fmtkit",
    )
    _pushing(config, out)


def _batch(config: Config, out: Arguments) -> None:
    batch_size, micro = config.get("batch_size"), config.get("micro_batch_size")
    # Both keys at once are refused.
    is_given = config.get("gradient_accumulation_steps") is not None
    if isinstance(batch_size, int) and isinstance(micro, int) and not is_given:
        steps = batch_size // (micro * (config.processes or 1))
        out.put("trainer", Argument("gradient_accumulation_steps", steps, "key batch_size"))


def _schedule(config: Config, out: Arguments) -> None:
    epochs = config.get("num_epochs")
    evaluates = has_evaluation(config)
    if not evaluates:
        _without_evaluation(config, out)
    for name in ("eval", "save") if evaluates else ("save",):
        each = config.get(f"{name}s_per_epoch")
        # Both keys at once are refused.
        is_given = bool(config.get(f"{name}_steps"))
        if isinstance(each, (int, float)) and each > 0 and not is_given:
            share = 1.0 / (float(each) * float(epochs if isinstance(epochs, (int, float)) else 3))
            out.put("trainer", Argument(f"{name}_steps", share, f"key {name}s_per_epoch"))
            out.default(f"{name}_strategy", "steps", f"key {name}s_per_epoch")
    if evaluates and config.get("early_stopping_patience"):
        # transformers stops by a metric that must be named; axolotl's is the loss.
        out.default("metric_for_best_model", "eval_loss", "key early_stopping_patience")
        out.default("greater_is_better", False, "key early_stopping_patience")
    if evaluates and config.get("eval_steps"):
        out.default("eval_strategy", "steps", "key eval_steps")
    if config.get("save_steps"):
        out.default("save_strategy", "steps", "key save_steps")
    if evaluates:
        out.default("eval_strategy", "epoch", "data to evaluate on")
    _floor(config, out)


def has_evaluation(config: Config) -> bool:
    """Return whether there are rows to evaluate on."""
    return bool(config.held_out or config.test_datasets)


def _without_evaluation(config: Config, out: Arguments) -> None:
    """Drop evaluation settings if there are no evaluation rows, as axolotl does."""
    for name in ("eval_steps", "eval_strategy"):
        out.trainer.pop(name, None)
    for name in ("evals_per_epoch", "eval_steps", "eval_strategy"):
        if config.get(name) not in {None, 0, "no"}:
            out.notes.append(
                f"{name} changes nothing: there is nothing to evaluate on; set val_set_size or "
                "test_datasets"
            )


def _floor(config: Config, out: Arguments) -> None:
    """Set the floor of a cosine schedule; other schedules have none, in axolotl too."""
    floor, origin = config.get("cosine_min_lr_ratio"), "key cosine_min_lr_ratio"
    if floor is None:
        return
    named = out.trainer.get("lr_scheduler_type")
    if named is not None and named.value not in {"cosine", "cosine_with_min_lr"}:
        out.notes.append(
            f"cosine_min_lr_ratio changes nothing: it is the floor of a cosine, and lr_scheduler is "
            f"{named.value}"
        )
        return
    out.trainer["lr_scheduler_type"] = Argument("lr_scheduler_type", "cosine_with_min_lr", origin)
    out.put("trainer", Argument("lr_scheduler_kwargs", {"min_lr_rate": floor}, origin))


def _precision(config: Config, out: Arguments) -> None:
    bf16 = config.get("bf16")
    if isinstance(bf16, bool):
        out.put("trainer", Argument("bf16", bf16, config.origin("bf16")))
    elif config.is_true("fp16"):
        out.put("trainer", Argument("bf16", False, "key fp16"))
    else:
        out.put("trainer", Argument("bf16", "auto", "default of fmtkit"))
    # As in axolotl, bf16 is the precision of the weights too, not only of autocast.
    dtype = (
        {True: "bfloat16", "auto": BY_DEVICE}.get(bf16) if isinstance(bf16, bool | str) else None
    )
    origin = config.origin("bf16") if dtype else "default of fmtkit"
    out.model.setdefault("dtype", Argument("dtype", dtype or "float32", origin))


def _optimizer(config: Config, out: Arguments) -> None:
    """Set the class of an optimizer and its arguments, which the training process gives to the trainer."""
    name = optimizer_class(config)
    if name is None:
        return
    out.put("own", Argument("optimizer", name, config.origin("optimizer")))
    if config.get("optim_args") is not None:
        given = read_arguments(config.get("optim_args"))
        out.put("own", Argument("optim_args", given, config.origin("optim_args")))
    idle = sorted(key for key in out.trainer if key.startswith("adam_"))
    if idle:
        out.notes.append(f"{', '.join(idle)}: {name} is given its arguments by optim_args alone")


def read_arguments(value: object) -> dict[str, object]:
    """Return `optim_args` as a mapping; as text it is NAME=VALUE, separated by commas."""
    if isinstance(value, Mapping):
        return {str(name): inner for name, inner in value.items()}
    parts = [part.partition("=") for part in str(value).split(",") if part.strip()]
    wrong = [name for name, sign, _ in parts if not sign or not name.strip()]
    if wrong:
        raise OptionError(f"optim_args: {wrong[0]!r}: write NAME=VALUE, or a mapping")
    return {name.strip(): _literal(text.strip()) for name, _, text in parts}


def _literal(text: str) -> object:
    """Return the number, truth value or text that an argument in text stands for."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False}.get(text, text)


def _pushing(config: Config, out: Arguments) -> None:
    """Push to the named repository, as axolotl does, a private one by default."""
    if config.get("hub_model_id") and config.get("push_to_hub") is None:
        out.default("push_to_hub", True, "key hub_model_id")
        out.default("hub_private_repo", True, "as axolotl; set hub_private_repo")


def _adapter(config: Config, out: Arguments) -> None:
    adapter = config.adapter
    named = config.get("lora_target_modules")
    if named and config.is_true("lora_target_linear"):
        # axolotl takes both; what is linear is known where the model is (build.make_peft).
        union = [ALL_LINEAR, *(named if isinstance(named, list) else [named])]
        out.peft["target_modules"] = Argument(
            "target_modules", union, "keys lora_target_linear and lora_target_modules"
        )
    if config.get("peft.loftq_config"):
        out.put("peft", Argument("init_lora_weights", "loftq", "key peft.loftq_config"))
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


_LIGER = ("rope", "rms_norm", "layer_norm", "swiglu", "cross_entropy", "fused_linear_cross_entropy")
"""What Liger patches: all of it unless configured otherwise, while axolotl's keys name what they want."""


def _kernels(config: Config, out: Arguments) -> None:
    """Switch Liger's kernels on where they are installed; they compute the same function."""
    parts = out.trainer.pop("liger_kernel_config", None)
    named = dict(parts.value) if parts and isinstance(parts.value, Mapping) else {}
    use_liger = config.get("use_liger_kernel")
    if not (use_liger is True or any(named.values())):
        return
    keys = [k for k in config.settings if k.startswith(("liger_", "use_liger_")) and config.get(k)]
    if installed("liger_kernel") is None:
        out.trainer.pop("use_liger_kernel", None)
        out.notes.append(
            f"{', '.join(sorted(keys))}: liger-kernel is not installed; the same function is computed "
            "without it, slower"
        )
        return
    if parts is None or use_liger is False:
        return
    if use_liger is None:
        named = dict.fromkeys(_LIGER, False) | named
    if "swiglu" in named:
        named["geglu"] = named["swiglu"]
    out.put("trainer", Argument("use_liger_kernel", True, parts.origin))
    out.put("trainer", Argument("liger_kernel_config", named, parts.origin))


def _mask(config: Config, chosen: Runner, out: Arguments) -> None:
    asked = config.get("assistant_only_loss")
    if chosen.mask == "completion" and asked is False:
        out.notes.append(
            "assistant_only_loss: false: rows of messages are trained on with all their tokens, as in TRL"
        )
    if chosen.mask != "completion" or asked is not None:
        return
    out.default(
        "completion_only_loss", not config.is_true("train_on_inputs"), "key train_on_inputs"
    )


def length_policy(config: Config) -> str:
    """Return what becomes of longer rows, by the words of --on-overlong; the default is to drop them."""
    strategy = config.text("excess_length_strategy") or "drop"
    return str(table()["excess_length_strategy"].translate(strategy))


def _length(config: Config, chosen: Runner, out: Arguments) -> None:
    """Set TRL's default length explicitly, since the conversion drops longer rows."""
    known = arguments_of(chosen).fields
    policy = length_policy(config)
    if "max_length" in known and "max_length" not in out.trainer:
        out.default("max_length", DEFAULT_LENGTH, "default of TRL")
        fate = _FATES.get(policy, "cut by the trainer")
        out.notes.append(f"rows longer than {DEFAULT_LENGTH} tokens are {fate}; set sequence_len")
    if policy == "truncate-start" and "truncation_mode" in known:
        out.put("trainer", Argument("truncation_mode", "keep_end", "key excess_length_strategy"))


def _variables(config: Config, chosen: Runner, out: Arguments) -> None:
    """Pass the template's variables to the trainer; other trainers read them from the rows."""
    name = "chat_template_kwargs"
    if config.get(name) and name in arguments_of(chosen).fields:
        out.put("trainer", Argument(name, config.get(name), config.origin(name)))


def _reports(config: Config) -> object:
    report_to = config.get("report_to")
    named = (
        [str(w) for w in report_to]
        if isinstance(report_to, list)
        else [str(report_to)]
        if report_to
        else []
    )
    for key, service in (
        ("use_tensorboard", "tensorboard"),
        ("use_wandb", "wandb"),
        ("use_mlflow", "mlflow"),
        ("use_comet", "comet_ml"),
        ("use_trackio", "trackio"),
        ("use_swanlab", "swanlab"),
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
