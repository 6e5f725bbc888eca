"""Refusals of keys about the model and its adapter: each with the reason and what to do instead."""

from collections.abc import Mapping

from fmtkit.core.errors import near_match
from fmtkit.core.runner import Runner
from fmtkit.tokenizers.tokens import SPECIAL_NAMES
from fmtkit.training.config.config import Config
from fmtkit.training.planning import freezing
from fmtkit.training.planning.check import advise, refuse
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import LABELS

_HEADS = {
    "causal": "AutoModelForCausalLM",
    "score": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
}
_VISION = ("AutoModelForImageTextToText", "AutoModelForVision2Seq")
"""What loads a vision-language model: its config says so, too."""
SPECIAL_TOKENS = (*SPECIAL_NAMES, "additional_special_tokens")
"""Names of special tokens in transformers' tokenizers."""
LOFTQ: Mapping[str, tuple[int, ...]] = {
    "loftq_bits": (4, 8),
    "loftq_iter": tuple(range(1, 11)),
}
"""Settings of LoftQ in PEFT, and their values."""


@refuse(
    "reference",
    "a reference model for a method that takes none",
    keys=("rl_adapter_ref_model", "ref_model"),
)
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


@refuse(
    "adapter_names",
    "names of adapters without an adapter to load, or without a reference",
    keys=("ref_adapter_name", "model_adapter_name"),
)
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


@refuse(
    "sync_ref_model",
    "`sync_ref_model` with an adapter or precomputed log-probabilities",
    keys=("sync_ref_model", "trl.sync_ref_model"),
)
def _sync(config: Config, _: Runner) -> str | None:
    synced = config.is_true("sync_ref_model") or config.is_true("trl.sync_ref_model")
    if synced and config.adapter and not config.get("rl_adapter_ref_model"):
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


@refuse(
    "quantized_weights",
    "quantized weights that cannot be trained, and contradictory keys of quantization",
    keys=(
        "load_in_4bit",
        "load_in_8bit",
        "model_quantization_config",
        "model_quantization_config_kwargs",
    ),
)
def _quantized(config: Config, _: Runner) -> str | None:
    if config.is_true("load_in_4bit") and config.is_true("load_in_8bit"):
        return "load_in_4bit and load_in_8bit both choose a quantization; keep one"
    bits = next((k for k in ("load_in_4bit", "load_in_8bit") if config.is_true(k)), None)
    if bits and config.adapter is None:
        return f"{bits}: quantized weights cannot be trained; add adapter: qlora"
    if (bits or config.adapter == "qlora") and config.get("model_quantization_config"):
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
    if config.adapter == "qlora" and config.is_true("load_in_8bit"):
        return (
            "adapter: qlora is 4 bits, load_in_8bit asks for 8; write adapter: lora with "
            "load_in_8bit"
        )
    return None


@refuse(
    "model_config", "a `base_model_config` other than the model's own", keys=("base_model_config",)
)
def _model_config(config: Config, _: Runner) -> str | None:
    named, model = config.text("base_model_config"), config.model
    if named is None or model is None or named == model:
        return None
    return (
        f"base_model_config: {named} is not base_model: the model is loaded with its own config; leave it "
        "out, and change values with overrides_of_model_config"
    )


@refuse(
    "head_target",
    "an adapter on the output head, which TRL fuses with the loss",
    keys=("lora_target_modules",),
)
def _targets(config: Config, _: Runner) -> str | None:
    modules = config.get("lora_target_modules")
    if isinstance(modules, list) and "lm_head" in modules:
        return (
            "lora_target_modules: lm_head cannot have an adapter with TRL's fused head; put "
            "it in lora_modules_to_save"
        )
    return None


@refuse(
    "model_head",
    "a model class or number of labels that the method does not use",
    keys=("model_type", "num_labels"),
)
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


ATTENTION = (
    "eager",
    "flash_attention_2",
    "flash_attention_3",
    "flash_attention_4",
    "flex_attention",
    "sdpa",
)
"""Attention implementations of transformers 5.23, besides kernels of the hub."""


@refuse(
    "attention", "an attention implementation that is not available", keys=("attn_implementation",)
)
def _attention(config: Config, _: Runner) -> str | None:
    name = config.text("attn_implementation")
    # A name with a slash is a kernel of the hub.
    if name is None or "/" in name or name.removeprefix("paged|") in {*ATTENTION, "xformers"}:
        return None
    near = near_match(name, ATTENTION)
    advice = f"did you mean {near!r}?" if near else f"known: {', '.join(ATTENTION)}"
    return f"attn_implementation: transformers has no {name!r}; {advice}"


@refuse(
    "loftq",
    "invalid settings of LoftQ, or weights that are already quantized",
    keys=("peft.loftq_config",),
)
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
    if given and (config.get("load_in_4bit") or config.adapter == "qlora"):
        return "peft.loftq_config: LoftQ quantizes the weights by itself; write adapter: lora"
    return None


@refuse("frozen", "`unfrozen_parameters` with an adapter", keys=("unfrozen_parameters",))
def _unfrozen(config: Config, _: Runner) -> str | None:
    if config.get("unfrozen_parameters") and config.adapter:
        return "unfrozen_parameters chooses among all weights, adapter freezes them; keep one"
    patterns = config.get("unfrozen_parameters")
    for pattern in patterns if isinstance(patterns, list) else ():
        freezing.read(str(pattern))
    return None


@refuse("special_tokens", "unknown names of special tokens", keys=("special_tokens",))
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


@refuse("new_tokens", "new tokens that an adapter cannot learn", keys=("tokens",))
def _tokens(config: Config, _: Runner) -> str | None:
    trained = config.get("lora_modules_to_save") or config.get("peft_trainable_token_indices")
    if config.get("tokens") and config.adapter and not trained:
        return (
            "tokens: new rows of the embedding cannot be trained by an adapter; add "
            "lora_modules_to_save: [embed_tokens, lm_head]"
        )
    return None
