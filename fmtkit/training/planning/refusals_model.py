"""Refusals about the model: its head, its precision and what of it trains."""

from collections.abc import Callable, Mapping

from fmtkit.core.errors import near_match
from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config
from fmtkit.training.run import freezing

_HEADS = {
    "causal": "AutoModelForCausalLM",
    "score": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
}
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
"""What tokenizers of transformers call their special tokens."""
LOFTQ: Mapping[str, tuple[int, ...]] = {
    "loftq_bits": (4, 8),
    "loftq_iter": tuple(range(1, 11)),
}
"""Settings of LoftQ in PEFT, and their values."""
_LABELS = {"score": 1, "steps": 2}


def _quantized(config: Config, _: Runner) -> str | None:
    bits = next((k for k in ("load_in_4bit", "load_in_8bit") if config.is_true(k)), None)
    if bits and config.get("adapter") is None:
        return f"{bits}: quantized weights cannot train; add adapter: qlora"
    if (bits or config.get("adapter") == "qlora") and config.get("model_quantization_config"):
        return (
            "model_quantization_config: the weights are read in one form; leave it out, or "
            f"{bits or 'adapter: qlora'}"
        )
    kwargs = config.get("model_quantization_config_kwargs")
    dequantizes = isinstance(kwargs, Mapping) and kwargs.get("dequantize") is True
    if config.get("model_quantization_config") == "Mxfp4Config" and not dequantizes:
        return (
            "model_quantization_config: weights in MXFP4 cannot train; add "
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


def _precision(config: Config, _: Runner) -> str | None:
    if config.is_true("bf16") and config.is_true("fp16"):
        return "bf16 and fp16 are both true; keep one"
    return None


def _targets(config: Config, _: Runner) -> str | None:
    modules = config.get("lora_target_modules")
    if isinstance(modules, list) and "lm_head" in modules:
        return (
            "lora_target_modules: lm_head cannot have an adapter with TRL's fused head; put "
            "it in lora_modules_to_save"
        )
    return None


def _head(config: Config, runner: Runner) -> str | None:
    wish = config.text("model_type")
    right = _HEADS[runner.head]
    if wish is not None and wish.startswith("Auto") and wish != right:
        return f"model_type: {runner.method} trains an {right}, not {wish}; leave it out"
    labels = config.get("num_labels")
    if labels is not None and labels != _LABELS.get(runner.head):
        right_labels = _LABELS.get(runner.head)
        count = f"{right_labels} outputs" if right_labels else "no head with labels"
        return f"num_labels: {runner.method} trains {count}, not {labels}; leave it out"
    return None


def _attention(config: Config, _: Runner) -> str | None:
    wish = config.text("attn_implementation")
    # A name with a slash is a kernel of the hub.
    if wish is None or "/" in wish or wish.removeprefix("paged|") in {*ATTENTION, "xformers"}:
        return None
    near = near_match(wish, ATTENTION)
    advice = f"did you mean {near!r}?" if near else f"known: {', '.join(ATTENTION)}"
    return f"attn_implementation: transformers has no {wish!r}; {advice}"


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


def _unfrozen(config: Config, _: Runner) -> str | None:
    if config.get("unfrozen_parameters") and config.get("adapter"):
        return "unfrozen_parameters chooses among all weights, adapter freezes them; keep one"
    patterns = config.get("unfrozen_parameters")
    for pattern in patterns if isinstance(patterns, list) else ():
        freezing.read(str(pattern))
    return None


def _special(config: Config, _: Runner) -> str | None:
    given = config.get("special_tokens")
    for name, text in given.items() if isinstance(given, Mapping) else ():
        if name not in SPECIAL_TOKENS:
            near = near_match(str(name), SPECIAL_TOKENS)
            advice = f"did you mean {near!r}?" if near else f"known: {', '.join(SPECIAL_TOKENS)}"
            return f"special_tokens.{name}: no special token is called so; {advice}"
        if name != "additional_special_tokens" and not isinstance(text, str | None):
            return f"special_tokens.{name}: {text!r} is not a text"
    return None


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
"""Implementations of attention of transformers 5.23, beside kernels of the hub."""

RULES: tuple[tuple[str, str, Callable[[Config, Runner], str | None]], ...] = (
    ("quantized_weights", "quantized weights that would have to train", _quantized),
    ("precision", "bfloat16 and float16 at once", _precision),
    ("head_target", "an adapter on the head that TRL fuses", _targets),
    ("model_head", "a model class or a number of labels that is not the method's", _head),
    ("attention", "an implementation of attention that is not there", _attention),
    ("loftq", "settings that LoftQ does not have, or weights that are quantized already", _loftq),
    ("frozen", "parameters chosen to train beside an adapter", _unfrozen),
    ("special_tokens", "special tokens that no tokenizer has", _special),
    ("new_tokens", "new tokens that an adapter cannot learn", _tokens),
)
"""Code, what it looks for, and what finds the reason why a configuration cannot be honoured."""
