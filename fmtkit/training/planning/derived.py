"""Arguments that follow from several keys together, or from none: batches, schedules, precision."""

from collections.abc import Mapping

from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.config.problem import Problems
from fmtkit.training.planning.refusals import length_policy, plugin_notes
from fmtkit.training.planning.resolve import Argument, Resolution
from fmtkit.training.planning.trainer_source import installed
from fmtkit.training.run import launch
from fmtkit.training.run.job import ALL_LINEAR, BY_DEVICE

_TRL_LENGTH = 1024


def derive(
    config: Config,
    chosen: Runner,
    out: Resolution,
    launching: launch.Launch,
    problems: Problems,
) -> None:
    """Set the arguments that follow from several keys, or from none; collect contradictions."""
    with problems.collecting("conflict"):
        for name, value in launching.trainer.items():
            out.put("trainer", Argument(name, value, "how it is launched"))
    for step in (_batch, _schedule, _precision, _adapter, _kernels):
        with problems.collecting("conflict"):
            step(config, out)
    _mask(config, chosen, out)
    with problems.collecting("conflict"):
        _length(config, chosen, out)
    for derive_section in chosen.hooks("derive"):
        with problems.collecting("section"):
            derive_section(config, chosen, out, launching)
    with problems.collecting("conflict"):
        _variables(config, chosen, out)
    out.default("activation_checkpointing", False, "default of fmtkit")
    out.default(
        "report_to",
        _reports(config),
        "key report_to" if _reports(config) != "none" else "default of fmtkit",
    )
    _pushing(config, out)
    out.notes += plugin_notes(config)


def _batch(config: Config, out: Resolution) -> None:
    whole, micro = config.get("batch_size"), config.get("micro_batch_size")
    if isinstance(whole, int) and isinstance(micro, int):
        processes = config.get("num_processes")
        steps = whole // (micro * (processes if isinstance(processes, int) else 1))
        out.put("trainer", Argument("gradient_accumulation_steps", steps, "key batch_size"))


def _schedule(config: Config, out: Resolution) -> None:
    epochs = config.get("num_epochs")
    evaluates = has_evaluation(config)
    if not evaluates:
        _without_evaluation(config, out)
    for name in ("eval", "save") if evaluates else ("save",):
        each = config.get(f"{name}s_per_epoch")
        if isinstance(each, (int, float)) and each > 0:
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
    """Tell whether there are rows to evaluate on."""
    return bool(config.get("val_set_size") or config.test_datasets)


def _without_evaluation(config: Config, out: Resolution) -> None:
    """Leave out when to evaluate, where there is nothing to evaluate on: axolotl then does not."""
    for name in ("eval_steps", "eval_strategy"):
        out.trainer.pop(name, None)
    for name in ("evals_per_epoch", "eval_steps", "eval_strategy"):
        if config.get(name) not in {None, 0, "no"}:
            out.notes.append(
                f"{name} changes nothing: there is nothing to evaluate on; set val_set_size or "
                "test_datasets"
            )


def _floor(config: Config, out: Resolution) -> None:
    """Let a cosine fall to a floor; axolotl, too, has no floor for other schedules."""
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


def _precision(config: Config, out: Resolution) -> None:
    wish = config.get("bf16")
    if isinstance(wish, bool):
        out.put("trainer", Argument("bf16", wish, config.settings["bf16"].origin))
    elif config.is_true("fp16"):
        out.put("trainer", Argument("bf16", False, "key fp16"))
    else:
        out.put("trainer", Argument("bf16", "auto", "default of fmtkit"))
    # As in axolotl, bf16 is the precision of the weights too, and not of autocast alone.
    dtype = (
        {True: "bfloat16", "auto": BY_DEVICE}.get(wish) if isinstance(wish, bool | str) else None
    )
    origin = config.settings["bf16"].origin if dtype else "default of fmtkit"
    out.model.setdefault("dtype", Argument("dtype", dtype or "float32", origin))


def _pushing(config: Config, out: Resolution) -> None:
    """Push to the repository that is named, as axolotl does, and make it a private one."""
    if config.get("hub_model_id") and config.get("push_to_hub") is None:
        out.default("push_to_hub", True, "key hub_model_id")
        out.default("hub_private_repo", True, "as axolotl; set hub_private_repo")


def _adapter(config: Config, out: Resolution) -> None:
    adapter = config.get("adapter")
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
"""What Liger patches: all of it unless told otherwise, while axolotl's keys name what they want."""


def _kernels(config: Config, out: Resolution) -> None:
    """Switch Liger's kernels on where they are installed; they compute the same function."""
    parts = out.trainer.pop("liger_kernel_config", None)
    named = dict(parts.value) if parts and isinstance(parts.value, Mapping) else {}
    whole = config.get("use_liger_kernel")
    if not (whole is True or any(named.values())):
        return
    keys = [k for k in config.settings if k.startswith(("liger_", "use_liger_")) and config.get(k)]
    if installed("liger_kernel") is None:
        out.trainer.pop("use_liger_kernel", None)
        out.notes.append(
            f"{', '.join(sorted(keys))}: liger-kernel is not installed; the same function is computed "
            "without it, slower"
        )
        return
    if parts is None or whole is False:
        return
    if whole is None:
        named = dict.fromkeys(_LIGER, False) | named
    if "swiglu" in named:
        named["geglu"] = named["swiglu"]
    out.put("trainer", Argument("use_liger_kernel", True, parts.origin))
    out.put("trainer", Argument("liger_kernel_config", named, parts.origin))


def _mask(config: Config, chosen: Runner, out: Resolution) -> None:
    if chosen.mask != "completion" or config.get("assistant_only_loss") is not None:
        return
    out.default(
        "completion_only_loss", not config.is_true("train_on_inputs"), "key train_on_inputs"
    )


def _length(config: Config, chosen: Runner, out: Resolution) -> None:
    """Make TRL's own default explicit, since the conversion drops what is longer."""
    known = arguments_of(chosen).fields
    policy = length_policy(config)
    if "max_length" in known and "max_length" not in out.trainer:
        out.default("max_length", _TRL_LENGTH, "default of TRL")
        fate = _FATES.get(policy, "cut by the trainer")
        out.notes.append(f"rows longer than {_TRL_LENGTH} tokens are {fate}; set sequence_len")
    if policy == "truncate-start" and "truncation_mode" in known:
        out.put("trainer", Argument("truncation_mode", "keep_end", "key excess_length_strategy"))


_FATES = {"drop": "dropped", "fail": "rejected", "keep": "cut or dropped as TRL does"}


def _variables(config: Config, chosen: Runner, out: Resolution) -> None:
    """Give the template's variables to the trainer; others read them from the rows."""
    name = "chat_template_kwargs"
    if config.get(name) and name in arguments_of(chosen).fields:
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
