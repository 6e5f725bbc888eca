"""Arguments that follow from several keys together, or from none: batches, schedules, precision."""

from fmtkit.runner import Runner
from fmtkit.training import launch
from fmtkit.training.config import Config
from fmtkit.training.job import BY_DEVICE
from fmtkit.training.named_arguments import arguments_of
from fmtkit.training.problem import Problems
from fmtkit.training.refusals_data import length_policy
from fmtkit.training.resolve import Argument, Resolution

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
    for step in (_batch, _schedule, _precision, _adapter):
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


def _batch(config: Config, out: Resolution) -> None:
    whole, micro = config.get("batch_size"), config.get("micro_batch_size")
    if isinstance(whole, int) and isinstance(micro, int):
        processes = config.get("num_processes")
        steps = whole // (micro * (processes if isinstance(processes, int) else 1))
        out.put("trainer", Argument("gradient_accumulation_steps", steps, "key batch_size"))


def _schedule(config: Config, out: Resolution) -> None:
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
