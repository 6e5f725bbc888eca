"""What a file of TRL's scripts means by what it leaves out, where fmtkit's own default is another.

Arguments that fmtkit sets to nothing have the default of TRL's config class by themselves. The rest is here:
each is a key of fmtkit that the file, or the command line, could have set, and what cannot be said by a key
is a note.
"""

from collections.abc import Iterator, Mapping

from fmtkit.core.runner import Runner, find_known
from fmtkit.training.config.keys import SECTION, arguments_of

ORIGIN = "default of TRL's scripts"
_DTYPES = frozenset({"bfloat16", "float16", "float32", "torch_dtype"})
_FLOAT32 = "float32"
"""The default of TRL's ModelConfig: bf16 is the precision of autocast there, not of the weights."""
_MASKS = frozenset({"assistant_only_loss", "completion_only_loss", "train_on_inputs"})


def of(values: Mapping[str, object], method: object) -> dict[str, object]:
    """Return key -> default of TRL's scripts, for the keys that a file does not set.

    `values` are the keys that are set, by their own dotted names.
    """
    chosen = find_known(method)
    if chosen is None:
        return {}
    found = dict(_defaults(values, chosen))
    return {name: value for name, value in found.items() if values.get(name) is None}


def remarks(values: Mapping[str, object], method: object) -> Iterator[str]:
    """Yield what still differs from TRL's scripts, or would surprise, for the plan."""
    chosen = find_known(method)
    if chosen is None:
        return
    if chosen.mask == "completion" and not _MASKS & values.keys():
        yield (
            "rows of messages: the replies alone are trained on, while TRL trains on all their tokens; "
            "assistant_only_loss: false does as TRL"
        )
    if values.get("val_set_size") and values.get("eval_strategy") is None:
        yield (
            "val_set_size: the rows are held out, but nothing is evaluated, as in TRL; set eval_strategy"
        )
    if values.get("val_set_size") and values.get("dataset_name"):
        yield "val_set_size: rows of dataset_name are held out, while TRL splits only its datasets"


def _defaults(values: Mapping[str, object], chosen: Runner) -> Iterator[tuple[str, object]]:
    fields = arguments_of(chosen).fields
    checkpointing = fields.get("gradient_checkpointing")
    if checkpointing is not None and checkpointing.default is True:
        yield "gradient_checkpointing", True
    yield from _precision(values)
    # A trainer that cuts at the end does so with every row that is longer, unless there is no limit.
    if "truncate-end" in chosen.cuts and not _is_unlimited(values):
        keeps_end = values.get("truncation_mode") == "keep_end"
        yield "excess_length_strategy", "truncate-start" if keeps_end else "truncate-end"
    if values.get("eval_steps") or values.get("val_set_size"):
        yield "eval_strategy", "no"
    if values.get("hub_model_id"):
        yield "push_to_hub", False
    sources = values.get("datasets")
    if isinstance(sources, list) and len(sources) > 1:
        yield "shuffle_merged_datasets", False
    mode = fields.get("vllm_mode")
    if values.get(f"{SECTION}.use_vllm") is True and mode is not None and mode.default:
        yield f"{SECTION}.vllm_mode", mode.default


def _precision(values: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    loading = values.get("model_init_kwargs")
    inside = loading.get("dtype") if isinstance(loading, Mapping) else None
    if not inside and not any(values.get(name) for name in _DTYPES):
        yield "torch_dtype", _FLOAT32
    if values.get("load_in_4bit") is True or values.get("adapter") == "qlora":
        # TRL computes in the dtype of the weights.
        yield "bnb_4bit_compute_dtype", values.get("torch_dtype") or _FLOAT32


def _is_unlimited(values: Mapping[str, object]) -> bool:
    passed = values.get("trainer_args")
    return isinstance(passed, Mapping) and "max_length" in passed and passed["max_length"] is None
