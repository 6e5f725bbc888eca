"""What no run can honour: combinations of keys, each with the reason and what to do instead.

A refusal is named, so that a test can say which configuration ends in which one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fmtkit.errors import OptionError
from fmtkit.message_kinds import FLAGS
from fmtkit.training.arguments import fields_of
from fmtkit.training.config import Config
from fmtkit.training.runner import Runner

DPO_LOSSES = frozenset(
    [
        "sigmoid",
        "hinge",
        "ipo",
        "exo_pair",
        "nca_pair",
        "robust",
        "bco_pair",
        "sppo_hard",
        "aot",
        "aot_unpaired",
        "apo_zero",
        "apo_down",
        "discopop",
        "sft",
        "sigmoid_norm",
    ]
)
LOSSES: dict[str, frozenset[str]] = {
    "sft": frozenset({"nll", "dft"}),
    "dpo": DPO_LOSSES,
    "ipo": frozenset({"ipo"}),
    "kto": frozenset({"kto", "apo_zero_unpaired"}),
    "cpo": frozenset({"sigmoid", "hinge", "ipo", "simpo", "alphapo"}),
    "simpo": frozenset({"simpo"}),
    "alphapo": frozenset({"alphapo"}),
}
"""Method -> the values of loss_type that its trainer computes."""

_HEADS = {
    "causal": "AutoModelForCausalLM",
    "reward": "AutoModelForSequenceClassification",
    "steps": "AutoModelForTokenClassification",
}
_LABELS = {"reward": 1, "steps": 2}
_VARIABLES_IN_ROWS = frozenset(
    {"sft", "dpo", "ipo", "kto", "reward", "orpo", "cpo", "simpo", "alphapo"}
)
"""Methods whose trainers read the template's variables from a column of the rows."""
_NO_REFERENCE_ARGUMENT = frozenset({"grpo", "gdpo", "rloo", "ebft"})


class RefusalError(OptionError):
    """Say which combination cannot be honoured, why, and what to do."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{message} [{name}]")
        self.name = name


@dataclass(frozen=True)
class Refusal:
    """A combination of keys that cannot be honoured; `why` returns None if it is fine."""

    name: str
    why: Callable[[Config, Runner], str | None]


def check(config: Config, runner: Runner) -> None:
    """Raise RefusalError for the first combination that cannot be honoured."""
    for refusal in REFUSALS:
        reason = refusal.why(config, runner)
        if reason is not None:
            raise RefusalError(refusal.name, reason)


def _method(config: Config, runner: Runner) -> str | None:
    if runner.method != "sft":
        return None
    section = next(
        (s for s in ("trl", "ebft") if any(n.startswith(f"{s}.") for n in config.settings)), None
    )
    if section is None:
        return None
    return (
        f"{section}: these keys are for another method than sft; write rl: "
        f"{'ebft' if section == 'ebft' else 'grpo'}"
    )


def _context_parallel(config: Config, runner: Runner) -> str | None:
    size = config.get("context_parallel_size")
    if size in {None, 1}:
        return None
    if runner.method != "sft":
        return (
            f"context_parallel_size: {size} works with sft alone: TRL's trainer for "
            f"{runner.method} does not "
            "split sequences; leave it out, and use fsdp and gradient_checkpointing for long rows"
        )
    if config.is_true("sample_packing"):
        return (
            f"context_parallel_size: {size} does not go with sample_packing; turn one of them off"
        )
    return None


def _reference(config: Config, runner: Runner) -> str | None:
    wish = next((k for k in ("rl_adapter_ref_model", "ref_model") if config.get(k)), None)
    if wish is None:
        return None
    if runner.method in _NO_REFERENCE_ARGUMENT:
        return (
            f"{wish}: the trainer for {runner.method} takes no reference model; it makes its "
            "own where beta is set"
        )
    if "reference" not in runner.needs:
        return f"{wish}: {runner.method} has no reference model; leave it out"
    return None


def _sync(config: Config, _: Runner) -> str | None:
    if not (config.is_true("sync_ref_model") or config.is_true("trl.sync_ref_model")):
        return None
    if config.get("adapter") and not config.get("rl_adapter_ref_model"):
        return (
            "sync_ref_model: with an adapter the reference is the base model, which does not "
            "move; leave one out"
        )
    if config.is_true("precompute_ref_log_probs"):
        return (
            "sync_ref_model: precomputed log-probabilities do not follow a moving reference; "
            "leave one out"
        )
    return None


def _quantized(config: Config, _: Runner) -> str | None:
    bits = next((k for k in ("load_in_4bit", "load_in_8bit") if config.is_true(k)), None)
    if bits and config.get("adapter") is None:
        return f"{bits}: quantized weights cannot train; add adapter: qlora"
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


def _losses(config: Config, runner: Runner) -> str | None:
    wish = config.get("loss_type")
    known = LOSSES.get(runner.method)
    if wish is None or known is None:
        return None
    several = isinstance(wish, list)
    names = [str(name) for name in wish] if isinstance(wish, list) else [str(wish)]
    if several and runner.method != "dpo":
        return f"loss_type: {runner.method} computes one loss; several of them are for dpo"
    unknown = sorted(set(names) - known)
    if unknown:
        return (
            f"loss_type: {unknown[0]!r} is not one of {runner.method}'s: {', '.join(sorted(known))}"
        )
    if "exo_pair" in names and not config.get("label_smoothing"):
        return "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001"
    weights = config.get("loss_weights")
    if isinstance(weights, list) and len(weights) != len(names):
        return f"loss_weights has {len(weights)} numbers for {len(names)} losses"
    return None


def _pairs_in_a_batch(config: Config, runner: Runner) -> str | None:
    if runner.method == "kto" and config.get("micro_batch_size") == 1:
        return (
            "micro_batch_size: kto needs at least 2: its KL term takes a reply from another "
            "row of the batch"
        )
    return None


def _order(config: Config, runner: Runner) -> str | None:
    if runner.method == "kto" and config.is_true("group_by_length"):
        return (
            "group_by_length: kto reads its rows in order, which fmtkit has shuffled; leave it out"
        )
    return None


def _masks(config: Config, _: Runner) -> str | None:
    entries = (*config.datasets, *config.test_datasets)
    for where in (*entries, {k: config.get(k) for k in ("roles_to_train", "train_on_eos")}):
        roles = where.get("roles_to_train")
        if roles not in (None, ["assistant"]):
            return (
                f"roles_to_train: {roles}: only [assistant] can be learnt; mark messages by "
                "message_field_training"
            )
        if where.get("train_on_eos") not in {None, "turn"}:
            return (
                f"train_on_eos: {where['train_on_eos']}: a reply is learnt with its own end of "
                "turn; write `turn`"
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


def _batch(config: Config, _: Runner) -> str | None:
    whole, micro = config.get("batch_size"), config.get("micro_batch_size")
    if not isinstance(whole, int):
        return None
    if config.get("gradient_accumulation_steps") is not None:
        return "batch_size sets gradient_accumulation_steps; keep one"
    if not isinstance(micro, int):
        return "batch_size needs micro_batch_size beside it"
    processes = config.get("num_processes")
    step = micro * (processes if isinstance(processes, int) else 1)
    if whole % step:
        return f"batch_size: {whole} is no multiple of {step} rows that all processes take at once"
    return None


def _evaluation(config: Config, _: Runner) -> str | None:
    if config.get("val_set_size") or config.test_datasets:
        return None
    for name in (
        "load_best_model_at_end",
        "early_stopping_patience",
        "evals_per_epoch",
        "eval_steps",
    ):
        if config.get(name):
            return f"{name}: there is nothing to evaluate on; set val_set_size or test_datasets"
    return None


def _templates(config: Config, _: Runner) -> str | None:
    for entry in (*config.datasets, *config.test_datasets):
        own, whole = entry.get("chat_template"), config.get("chat_template")
        if own is not None and whole is not None and own != whole:
            return (
                f"chat_template: {whole} for the run and {own} for {entry.get('path')}; a "
                "model has one template"
            )
    if config.get("chat_template_jinja") and config.get("chat_template") not in {None, "jinja"}:
        return "chat_template and chat_template_jinja both give a template; keep one"
    return None


def _unfrozen(config: Config, _: Runner) -> str | None:
    if config.get("unfrozen_parameters") and config.get("adapter"):
        return "unfrozen_parameters chooses among all weights, adapter freezes them; keep one"
    return None


def _tokens(config: Config, _: Runner) -> str | None:
    if config.get("tokens") and config.get("adapter") and not config.get("lora_modules_to_save"):
        return (
            "tokens: new rows of the embedding cannot be learnt by an adapter; add "
            "lora_modules_to_save: [embed_tokens, lm_head]"
        )
    return None


def _missing_plugin(config: Config, _: Runner) -> str | None:
    plugins = config.get("plugins")
    known = ("NemoGymPlugin", "LigerPlugin", "CutCrossEntropyPlugin", "KernelsPlugin")
    for plugin in plugins if isinstance(plugins, list) else ():
        if str(plugin).rpartition(".")[2] not in known:
            return f"plugins: {plugin} is the peer's own and has no counterpart here; leave it out"
    return None


def _variables(config: Config, runner: Runner) -> str | None:
    if not config.get("chat_template_kwargs"):
        return None
    if (
        runner.method in _VARIABLES_IN_ROWS
        or "chat_template_kwargs" in fields_of(runner.config).annotations
    ):
        return None
    return (
        f"chat_template_kwargs: the trainer for {runner.method} passes no variables to the "
        "template; set them in the template itself, by chat_template_jinja"
    )


def _marks(config: Config, _: Runner) -> str | None:
    for entry in (*config.datasets, *config.test_datasets):
        wish = entry.get("message_field_training")
        if wish not in {None, *FLAGS}:
            return (
                f"message_field_training: {wish}: whether a message is learnt is read from its "
                f"{', '.join(FLAGS[:-1])} or {FLAGS[-1]}; rename the key in the data"
            )
    return None


def _weights(config: Config, _: Runner) -> str | None:
    for entry in config.datasets:
        weight = entry.get("weight")
        if isinstance(weight, (int, float)) and weight <= 0:
            return (
                f"weight: {weight} for {entry.get('path')}: takes a number above 0; leave the "
                "entry out"
            )
    return None


def _steps(config: Config, _: Runner) -> str | None:
    for name in ("eval", "save"):
        if config.get(f"{name}s_per_epoch") and config.get(f"{name}_steps"):
            return f"{name}s_per_epoch sets {name}_steps; keep one"
    if config.get("warmup_ratio") and config.get("warmup_steps"):
        return "warmup_ratio and warmup_steps both set the warm-up; keep one"
    return None


def _jobs() -> Iterator[Refusal]:
    named: Mapping[str, Callable[[Config, Runner], str | None]] = {
        "method": _method,
        "context_parallel": _context_parallel,
        "reference": _reference,
        "sync_ref_model": _sync,
        "quantized_weights": _quantized,
        "precision": _precision,
        "head_target": _targets,
        "loss_type": _losses,
        "kto_batch": _pairs_in_a_batch,
        "kto_order": _order,
        "mask": _masks,
        "model_head": _head,
        "batch_size": _batch,
        "nothing_to_evaluate": _evaluation,
        "two_templates": _templates,
        "frozen": _unfrozen,
        "new_tokens": _tokens,
        "plugin": _missing_plugin,
        "template_variables": _variables,
        "message_field_training": _marks,
        "mix_weight": _weights,
        "two_schedules": _steps,
    }
    for name, why in named.items():
        yield Refusal(name, why)


REFUSALS: tuple[Refusal, ...] = tuple(_jobs())
