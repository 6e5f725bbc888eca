"""Refusals: settings of a config that cannot be honoured, each with the reason and what to do instead."""

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import TypeVar

from fmtkit.core import section
from fmtkit.core.errors import near_match
from fmtkit.core.runner import DEFAULT, Runner, find, guess, methods
from fmtkit.training.config import keys
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.planning import freezing
from fmtkit.training.planning.check import advise, check_config
from fmtkit.training.planning.dataset_entries import plugin_files, plugins
from fmtkit.training.planning.resolve import length_policy
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import LABELS

Rule = Callable[[Config, Runner], str | Iterator[str] | None]
"""Returns why keys cannot be honoured and what to do instead; None or nothing if they can."""
R = TypeVar("R", bound=Rule)


def _refusal(code: str, about: str) -> Callable[[R], R]:
    """Declare a rule about keys alone."""

    def declare(rule: R) -> R:
        @check_config(code, "config", about)
        @wraps(rule)
        def find(plan: Plan) -> str | Iterator[str] | None:
            return rule(plan.config, plan.runner)

        return rule

    return declare


@_refusal("method", "keys of a section with a method that does not use them")
def _method(config: Config, runner: Runner) -> str | None:
    """Refuse sections of other methods if the config does not set `rl`."""
    if runner.method != DEFAULT:
        return None
    for name in sorted(keys.section_names()):
        other = guess({name})
        if other is not None and any(n.startswith(f"{name}.") for n in config.settings):
            return f"{name}: these keys are for a method other than {DEFAULT}; write rl: {other}"
    return None


@_refusal("context_parallel", "context parallelism with a method that does not support it")
def _context_parallel(config: Config, runner: Runner) -> str | None:
    size = config.get("context_parallel_size")
    if size in {None, 1}:
        return None
    if not runner.splits_sequences:
        able = methods(lambda one: one.splits_sequences)
        return (
            f"context_parallel_size: {size} works only with {able}: TRL's trainer for "
            f"{runner.method} does not "
            "split sequences; leave it out, and use fsdp and gradient_checkpointing for long rows"
        )
    if config.is_true("sample_packing"):
        return (
            f"context_parallel_size: {size} does not go with sample_packing; turn one of them off"
        )
    return None


@_refusal("reference", "a reference model for a method that takes none")
def _reference(config: Config, runner: Runner) -> str | None:
    key = next((k for k in ("rl_adapter_ref_model", "ref_model") if config.get(k)), None)
    if key is None:
        return None
    if runner.makes_reference:
        return (
            f"{key}: the trainer for {runner.method} takes no reference model; it creates one "
            "if beta is set"
        )
    if "reference" not in runner.needs:
        return f"{key}: {runner.method} has no reference model; leave it out"
    return None


@_refusal("adapter_names", "names of adapters without an adapter to load, or without a reference")
def _adapter_names(config: Config, runner: Runner) -> str | None:
    key = next((k for k in ("ref_adapter_name", "model_adapter_name") if config.get(k)), None)
    if key is None:
        return None
    if "reference" not in runner.needs and not runner.makes_reference:
        return f"{key}: {runner.method} has no reference model; leave it out"
    if config.get("lora_model_dir") is None:
        return (
            f"{key}: it names an adapter that is loaded; set lora_model_dir to its folder, or leave "
            "it out: with a new adapter the reference is the model without it"
        )
    return None


@_refusal("sync_ref_model", "`sync_ref_model` with an adapter or precomputed log-probabilities")
def _sync(config: Config, _: Runner) -> str | None:
    synced = config.is_true("sync_ref_model") or config.is_true("trl.sync_ref_model")
    if synced and config.get("adapter") and not config.get("rl_adapter_ref_model"):
        return (
            "sync_ref_model: with an adapter the reference is the base model, which is never "
            "updated; leave one of the two out"
        )
    return None


@advise("sync_ref_model", "`sync_ref_model=True` together with `precompute_ref_log_probs=True`")
def _precomputed(_: Plan) -> str:
    return (
        "sync_ref_model: precomputed log-probabilities do not follow an updated reference; leave one of "
        "the two out"
    )


@advise("sync_ref_model", "You passed `sync_ref_model=True` while `beta=0.0`")
def _without_reference(plan: Plan) -> str | None:
    # Another beta would not help a run with an adapter.
    return _sync(plan.config, plan.runner)


@advise(
    "loss_type",
    "when using 'exo_pair' loss",
    about="a loss that the method does not have, and `exo_pair` without `label_smoothing`",
)
def _exo_pair(_: Plan) -> str:
    return "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001"


@_refusal("environment_method", "an environment with a method that cannot use it")
def _environment(config: Config, runner: Runner) -> Iterator[str]:
    usual = find(runner.method)
    for one in section.every():
        if not one.switch or not config.get(one.switch) or one.name in runner.sections:
            continue
        if one.name in usual.sections and usual.variant_key:
            value = config.get(usual.variant_key)
            yield (
                f"{one.switch}: the trainer of {usual.variant_key}: {value} has no use for it; leave one "
                "of the two out"
            )
        else:
            able = methods(lambda other: one.name in other.sections)  # noqa: B023 - called at once
            yield f"{one.switch}: {runner.method} has no use for it; it is for {able}"


@_refusal("order", "`group_by_length` for rows that have no single length")
def _lengths(config: Config, runner: Runner) -> str | None:
    has_kto_order = "kto_order" in runner.refusals
    if runner.sees_lengths or has_kto_order or not config.is_true("group_by_length"):
        return None
    return (
        f"group_by_length: the rows of {runner.method} have no single length by which transformers could "
        "group them; leave it out"
    )


_HEADS = {
    "causal": "AutoModelForCausalLM",
    "score": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
}
_VISION = ("AutoModelForImageTextToText", "AutoModelForVision2Seq")
"""What loads a vision-language model: its config says so, too."""
SPECIAL_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "additional_special_tokens",
)
"""Names of special tokens in transformers' tokenizers."""
LOFTQ: Mapping[str, tuple[int, ...]] = {
    "loftq_bits": (4, 8),
    "loftq_iter": tuple(range(1, 11)),
}
"""Settings of LoftQ in PEFT, and their values."""


@_refusal(
    "quantized_weights",
    "quantized weights that cannot be trained, and contradictory keys of quantization",
)
def _quantized(config: Config, _: Runner) -> str | None:
    if config.is_true("load_in_4bit") and config.is_true("load_in_8bit"):
        return "load_in_4bit and load_in_8bit both choose a quantization; keep one"
    bits = next((k for k in ("load_in_4bit", "load_in_8bit") if config.is_true(k)), None)
    if bits and config.get("adapter") is None:
        return f"{bits}: quantized weights cannot be trained; add adapter: qlora"
    if (bits or config.get("adapter") == "qlora") and config.get("model_quantization_config"):
        return (
            f"model_quantization_config and {bits or 'adapter: qlora'} both choose a quantization; "
            "keep one"
        )
    kwargs = config.get("model_quantization_config_kwargs")
    dequantizes = isinstance(kwargs, Mapping) and kwargs.get("dequantize") is True
    if config.get("model_quantization_config") == "Mxfp4Config" and not dequantizes:
        return (
            "model_quantization_config: MXFP4 weights cannot be trained; add "
            "model_quantization_config_kwargs: {dequantize: true}, which loads them in bfloat16"
        )
    if kwargs and not config.get("model_quantization_config"):
        return "model_quantization_config_kwargs: name the class in model_quantization_config"
    if config.get("adapter") == "qlora" and config.is_true("load_in_8bit"):
        return (
            "adapter: qlora is 4 bits, load_in_8bit asks for 8; write adapter: lora with "
            "load_in_8bit"
        )
    return None


@advise(
    "padding_free",
    "`padding_free=True` without packing",
    about="`padding_free` without packing, where it keeps to no length",
)
def _padding(plan: Plan) -> str:
    return (
        f"padding_free: TRL's trainer for {plan.method} keeps to no length without packing; add "
        "sample_packing: true, whose rows need no padding either, or leave padding_free out"
    )


@_refusal("prepared_rows", "TRL's own preparation of the rows switched off")
def _prepared(config: Config, _: Runner) -> str | None:
    passed = config.get("trainer_args")
    given = passed.get("dataset_kwargs") if isinstance(passed, Mapping) else None
    if not isinstance(given, Mapping) or given.get("skip_prepare_dataset") is not True:
        return None
    return (
        "dataset_kwargs: skip_prepare_dataset is for rows that are tokenized already, and fmtkit's are "
        "messages or text; leave it out: rows with images TRL leaves as they are by itself"
    )


@_refusal("model_config", "a `base_model_config` other than the model's own")
def _model_config(config: Config, _: Runner) -> str | None:
    named, model = config.text("base_model_config"), config.text("base_model")
    if named is None or model is None or named == model:
        return None
    return (
        f"base_model_config: {named} is not base_model: the model is loaded with its own config; leave it "
        "out, and change values with overrides_of_model_config"
    )


@_refusal("head_target", "an adapter on the output head, which TRL fuses with the loss")
def _targets(config: Config, _: Runner) -> str | None:
    modules = config.get("lora_target_modules")
    if isinstance(modules, list) and "lm_head" in modules:
        return (
            "lora_target_modules: lm_head cannot have an adapter with TRL's fused head; put "
            "it in lora_modules_to_save"
        )
    return None


@_refusal("model_head", "a model class or number of labels that the method does not use")
def _head(config: Config, runner: Runner) -> str | None:
    model_class = config.text("model_type")
    right = _HEADS[runner.head]
    is_right = model_class == right or (runner.head == "causal" and model_class in _VISION)
    if model_class is not None and model_class.startswith("Auto") and not is_right:
        return f"model_type: {runner.method} trains an {right}, not {model_class}; leave it out"
    labels = config.get("num_labels")
    if labels is not None and labels != LABELS.get(runner.head):
        right_labels = LABELS.get(runner.head)
        count = f"{right_labels} outputs" if right_labels else "no head with labels"
        return f"num_labels: {runner.method} trains {count}, not {labels}; leave it out"
    return None


@_refusal("attention", "an attention implementation that is not available")
def _attention(config: Config, _: Runner) -> str | None:
    name = config.text("attn_implementation")
    # A name with a slash is a kernel of the hub.
    if name is None or "/" in name or name.removeprefix("paged|") in {*ATTENTION, "xformers"}:
        return None
    near = near_match(name, ATTENTION)
    advice = f"did you mean {near!r}?" if near else f"known: {', '.join(ATTENTION)}"
    return f"attn_implementation: transformers has no {name!r}; {advice}"


@_refusal("loftq", "invalid settings of LoftQ, or weights that are already quantized")
def _loftq(config: Config, _: Runner) -> str | None:
    given = config.get("peft.loftq_config")
    for name, value in given.items() if isinstance(given, Mapping) else ():
        if name not in LOFTQ:
            near = near_match(str(name), LOFTQ)
            advice = f"did you mean {near!r}?" if near else f"known: {', '.join(LOFTQ)}"
            return f"peft.loftq_config.{name}: LoftQ has no such setting; {advice}"
        if not isinstance(value, int) or isinstance(value, bool) or value not in LOFTQ[name]:
            allowed = ", ".join(map(str, LOFTQ[name]))
            return f"peft.loftq_config.{name}: {value!r} is not one of {allowed}"
    if given and (config.get("load_in_4bit") or config.get("adapter") == "qlora"):
        return "peft.loftq_config: LoftQ quantizes the weights by itself; write adapter: lora"
    return None


@_refusal("frozen", "`unfrozen_parameters` with an adapter")
def _unfrozen(config: Config, _: Runner) -> str | None:
    if config.get("unfrozen_parameters") and config.get("adapter"):
        return "unfrozen_parameters chooses among all weights, adapter freezes them; keep one"
    patterns = config.get("unfrozen_parameters")
    for pattern in patterns if isinstance(patterns, list) else ():
        freezing.read(str(pattern))
    return None


@_refusal("special_tokens", "unknown names of special tokens")
def _special(config: Config, _: Runner) -> str | None:
    given = config.get("special_tokens")
    for name, text in given.items() if isinstance(given, Mapping) else ():
        if name not in SPECIAL_TOKENS:
            near = near_match(str(name), SPECIAL_TOKENS)
            advice = f"did you mean {near!r}?" if near else f"known: {', '.join(SPECIAL_TOKENS)}"
            return f"special_tokens.{name}: there is no special token of that name; {advice}"
        if name != "additional_special_tokens" and not isinstance(text, str | None):
            return f"special_tokens.{name}: {text!r} is not a string"
    return None


@_refusal("new_tokens", "new tokens that an adapter cannot learn")
def _tokens(config: Config, _: Runner) -> str | None:
    if config.get("tokens") and config.get("adapter") and not config.get("lora_modules_to_save"):
        return (
            "tokens: new rows of the embedding cannot be trained by an adapter; add "
            "lora_modules_to_save: [embed_tokens, lm_head]"
        )
    return None


ATTENTION = (
    "eager",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    "flex_attention",
    "sdpa",
)
"""Attention implementations of transformers 5.23, besides kernels of the hub."""


_USUAL_TURNS: Mapping[str, tuple[object, ...]] = {
    "roles_to_train": (None, ["assistant"]),
    "train_on_eos": (None, "turn"),
    "train_on_eot": (None, "turn"),
    "message_field_training_detail": (None,),
}
"""Key that chooses the trained turns of sft -> the values that change nothing."""


@_refusal("mask", "a choice of trained turns or ends of turns for a method other than sft")
def _masks(config: Config, runner: Runner) -> str | None:
    if runner.mask == "completion":
        return None
    run = {key: config.get(key) for key in _USUAL_TURNS}
    for entry in (*config.datasets, *config.test_datasets, run):
        for key, usual in _USUAL_TURNS.items():
            if entry.get(key) not in usual:
                return (
                    f"{key}: only sft can choose which turns are trained on; leave it out (the method "
                    f"is {runner.method})"
                )
    return None


@_refusal("two_masks", "keys that say opposite things of what is trained on")
def _opposites(config: Config, runner: Runner) -> str | None:
    if runner.mask != "completion" or not config.is_true("train_on_inputs"):
        return None
    for name in ("assistant_only_loss", "completion_only_loss"):
        if config.is_true(name):
            return f"train_on_inputs: true trains on prompts, and {name}: true does not; keep one"
    return None


@_refusal("two_templates", "two keys that give the chat template")
def _templates(config: Config, _: Runner) -> str | None:
    if config.get("chat_template_jinja") and config.get("chat_template") not in {None, "jinja"}:
        return "chat_template and chat_template_jinja both give a template; keep one"
    return None


@_refusal("template_variables", "template variables that the trainer does not pass on")
def _variables(config: Config, runner: Runner) -> str | None:
    if not config.get("chat_template_kwargs"):
        return None
    if runner.row_variables or "chat_template_kwargs" in arguments_of(runner).fields:
        return None
    return (
        f"chat_template_kwargs: the trainer for {runner.method} passes no variables to the "
        "template; set them in the template itself, by chat_template_jinja"
    )


@_refusal("mix_weight", "a source with a weight of 0 or less in the mix")
def _weights(config: Config, _: Runner) -> str | None:
    for entry in config.datasets:
        weight = entry.get("weight")
        if isinstance(weight, (int, float)) and weight <= 0:
            return (
                f"weight: {weight} for {entry.get('path')}: must be above 0; to leave the "
                "source out, delete its entry"
            )
    return None


@_refusal(
    "overlong",
    "truncation that the trainer does not support, or supports only at the other end",
)
def _cuts(config: Config, runner: Runner) -> str | None:
    policy, applied = config.text("excess_length_strategy"), length_policy(config)
    if not applied.startswith("truncate"):
        return None
    if applied in runner.cuts and not (
        applied == "truncate-start" and config.is_true("sample_packing")
    ):
        return None
    other = sorted(runner.cuts - {applied})
    if applied in runner.cuts:
        why = "packing cuts a row at its end"
    elif other:
        why = f"{runner.method} cuts a row at its {other[0].rpartition('-')[2]}"
    else:
        why = f"{runner.method} cuts no row"
    advice = f"write {other[0]}, or drop" if other else "write drop, or raise sequence_len"
    return f"excess_length_strategy: {policy}: {why}; {advice}"


ACCEPTED_PLUGINS = {
    "LigerPlugin": "",
    "SwanLabPlugin": "",
    "CutCrossEntropyPlugin": "not needed: the loss is computed without its kernel, with the same result",
    "KernelsPlugin": "not needed: layers are computed without its kernels, with the same result",
}
"""Plugins of axolotl that a config may name, besides those of sections -> the plan's note on it, if any."""
REFUSED_PLUGINS = {
    "ExpertParallelPlugin": "experts are not spread over devices",
    "DiffusionPlugin": "the objective of diffusion language models is not implemented",
    "LLMCompressorPlugin": "weights are not pruned while training",
    "KDPlugin": "use rl: gkd or rl: distillation with a teacher_model",
    "SpectrumPlugin": "name the parameters that train in unfrozen_parameters",
    "GrokfastPlugin": "gradients are not filtered",
    "DenseMixerPlugin": "only the experts that the router selects are trained",
}
"""Plugins of axolotl that change the training -> why they are refused, or what to set instead."""


@_refusal(
    "batch_size",
    "a `batch_size` that is not a multiple of the rows of one step of all processes",
)
def _batch(config: Config, _: Runner) -> str | None:
    batch_size, micro = config.get("batch_size"), config.get("micro_batch_size")
    if not isinstance(batch_size, int):
        return None
    if config.get("gradient_accumulation_steps") is not None:
        return "batch_size sets gradient_accumulation_steps; keep one"
    if not isinstance(micro, int):
        return "batch_size needs micro_batch_size too"
    processes = config.get("num_processes")
    step = micro * (processes if isinstance(processes, int) else 1)
    if batch_size % step:
        return (
            f"batch_size: {batch_size} is not a multiple of {step}, the rows of one step of all "
            "processes"
        )
    return None


@_refusal(
    "nothing_to_evaluate",
    "evaluation without data to evaluate on, or with a trainer that cannot evaluate",
)
def _evaluation(config: Config, runner: Runner) -> str | None:
    rows = {"val_set_size": config.get("val_set_size"), "test_datasets": config.test_datasets}
    named = next((name for name, value in rows.items() if value), None)
    if named is not None and not runner.evaluates:
        return f"{named}: TRL's trainer for {runner.method} cannot evaluate; leave it out"
    if named is not None:
        return None
    for name in ("load_best_model_at_end", "early_stopping_patience", "eval_on_start"):
        if config.get(name):
            return f"{name}: there is nothing to evaluate on; set val_set_size or test_datasets"
    return None


@advise("nothing_to_evaluate", "--load_best_model_at_end requires the sav")
def _best(plan: Plan) -> str | None:
    # What of the two schedules to match matters only where there is something to evaluate.
    return _evaluation(plan.config, plan.runner)


@_refusal("plugin", "axolotl plugins without a counterpart")
def _missing_plugin(config: Config, _: Runner) -> str | None:
    for plugin in plugins(config):
        name = plugin.rpartition(".")[2]
        if plugin not in plugin_files(config) and name not in accepted_plugins():
            why = REFUSED_PLUGINS.get(
                name, "fmtkit does not know it; to add code of your own, name a FILE.py"
            )
            return f"plugins: {plugin} cannot be honoured: {why}; leave it out"
    return None


@_refusal("two_schedules", "two keys that set the same schedule, and a schedule of no step")
def _steps(config: Config, _: Runner) -> str | None:
    for name in ("eval", "save"):
        if config.get(f"{name}s_per_epoch") and config.get(f"{name}_steps"):
            return f"{name}s_per_epoch sets {name}_steps; keep one"
    if config.get("num_epochs") == 0 and config.get("max_steps") in {None, -1}:
        return "num_epochs: 0 makes no step; write 1 or more, or max_steps"
    return None


def accepted_plugins() -> Mapping[str, str]:
    """Return the plugins of axolotl that a config may name, those of sections too -> the note on each."""
    return ACCEPTED_PLUGINS | {
        n: note for one in section.every() for n, note in one.plugins.items()
    }


def plugin_notes(config: Config) -> list[str]:
    """Return the plan's notes on plugins of axolotl that have no effect here."""
    accepted = accepted_plugins()
    named = {plugin: accepted.get(plugin.rpartition(".")[2]) for plugin in plugins(config)}
    return [f"plugins: {plugin}: {note}" for plugin, note in named.items() if note]
