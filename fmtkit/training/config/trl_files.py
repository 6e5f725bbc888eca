"""Keys of TRL's own config files that say in several keys what fmtkit says in one, or at another place.

What is only another name is an alias of its key. Here are those that need a look at their neighbours: a
dataset and its splits, an adapter and its quantization, and the flat arguments of online methods.
"""

from collections.abc import Mapping
from typing import cast

from fmtkit.core.errors import OptionError
from fmtkit.training.config.keys import SECTION, aliases, find_key
from fmtkit.training.config.problems import Problems

_MARKS = frozenset(
    {
        "chat_template_path",
        "dataset_config",
        "dataset_test_split",
        "dataset_train_split",
        "model_name_or_path",
        "reward_model_name_or_path",
        "use_peft",
    }
)
"""Keys that TRL's files have and axolotl's do not."""
_AXOLOTL = frozenset({"base_model", "adapter", "micro_batch_size", "sequence_len", SECTION})
_PROFILES = {"single_gpu": "single"}
_LORA = {"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05}
"""The defaults of TRL's ModelConfig, where a file with `use_peft` says nothing else."""
_OF_ENTRY = {"dataset_config": "name", "dataset_train_split": "split"}
_REWARDED = frozenset({"gdpo", "grpo", "rloo"})


def is_trl(values: Mapping[str, object]) -> bool:
    """Return whether a file is TRL's: it has a key that only TRL has, and none that only axolotl has."""
    return bool(_MARKS & values.keys()) and not _AXOLOTL & values.keys()


def translated(
    values: Mapping[str, object], lines: dict[str, int], method: object, problems: Problems
) -> dict[str, object]:
    """Return the keys of a file with TRL's as fmtkit writes them; `lines` gets the lines of new names."""
    out = dict(values)
    with problems.collecting("two_spellings", "use_peft"):
        _adapter(out, lines)
    with problems.collecting("value", "chat_template_path"):
        _template(out, lines)
    profile = out.get("accelerate_config")
    if isinstance(profile, str):
        out["accelerate_config"] = _PROFILES.get(profile, profile)
    with problems.collecting("two_spellings", "special_tokens"):
        _tokens(out, lines)
    _datasets(out, lines)
    if is_trl(values):
        with problems.collecting("two_spellings", "reward_model_name_or_path"):
            _reward_model(out, lines, method)
        _flat(out, lines)
    return out


def _adapter(out: dict[str, object], lines: dict[str, int]) -> None:
    asked = out.pop("use_peft", None)
    if asked is None:
        return
    adapter = out.get("adapter")
    if asked is False:
        if adapter is not None:
            raise OptionError(
                f"use_peft: false and adapter: {adapter} contradict each other; keep one"
            )
        return
    if asked is not True:
        raise OptionError(f"use_peft: {asked!r} is not true or false")
    if adapter is not None:
        return
    is_4bit = out.get("load_in_4bit") is True
    _put(out, lines, "adapter", "qlora" if is_4bit else "lora", "use_peft")
    if is_4bit and not {"use_bnb_nested_quant", "bnb_4bit_use_double_quant"} & out.keys():
        _put(out, lines, "bnb_4bit_use_double_quant", False, "use_peft")
    for name, value in _LORA.items():
        if out.get(name) is None:
            _put(out, lines, name, value, "use_peft")


def _template(out: dict[str, object], lines: dict[str, int]) -> None:
    path = out.get("chat_template_path")
    if path is None:
        return
    del out["chat_template_path"]
    if not str(path).endswith((".jinja", ".jinja2", ".j2")):
        raise OptionError(
            f"chat_template_path: {path!r} is no .jinja file; save that tokenizer's template to a file and "
            "name it as chat_template"
        )
    if out.get("chat_template") not in {None, path}:
        raise OptionError("chat_template_path and chat_template differ; keep one")
    _put(out, lines, "chat_template", path, "chat_template_path")


def _tokens(out: dict[str, object], lines: dict[str, int]) -> None:
    """Put TRL's `eos_token` and `pad_token` among the tokens of the tokenizer."""
    for name in ("eos_token", "pad_token"):
        token = out.pop(name, None)
        if token is None:
            continue
        before = out.get("special_tokens") or {}
        if not isinstance(before, Mapping):
            return
        if before.get(name) not in {None, token}:
            raise OptionError(f"{name} and special_tokens.{name} differ; keep one")
        _put(out, lines, "special_tokens", {**before, name: token}, name)


def _datasets(out: dict[str, object], lines: dict[str, int]) -> None:
    """Write `dataset_name` and its config and splits as entries; TRL evaluates on a split of the same."""
    name = out.get("dataset_name")
    text = out.get("dataset_text_field")
    if text == "text" or (name is not None and not out.get("datasets")):
        out.pop("dataset_text_field", None)
    is_renamed = text not in {None, "text"}
    written = {key for key in (*_OF_ENTRY, "dataset_test_split") if key in out}
    evaluates = out.get("eval_strategy") not in {None, "no", False}
    if name is None or out.get("datasets") or not (written or evaluates or is_renamed):
        return
    entry: dict[str, object] = {"path": name}
    if is_renamed:
        entry["columns"] = {"text": text}
    for key, part in _OF_ENTRY.items():
        value = out.pop(key, None)
        if value is not None:
            entry[part] = value
    test = out.pop("dataset_test_split", None) or "test"
    held_out = any(out.get(k) for k in ("test_split_size", "val_set_size", "val_size"))
    if evaluates and not held_out and not {"test_datasets", "eval_datasets"} & out.keys():
        _put(out, lines, "test_datasets", [{**entry, "split": test}], "dataset_name")
    del out["dataset_name"]
    _put(out, lines, "datasets", [entry], "dataset_name")


def _reward_model(out: dict[str, object], lines: dict[str, int], method: object) -> None:
    model = out.pop("reward_model_name_or_path", None)
    if model is None:
        return
    if method not in _REWARDED:
        _put(out, lines, "reward_model_path", model, "reward_model_name_or_path")
        return
    listed = out.get("reward_funcs")
    functions = listed if isinstance(listed, list) else [] if listed is None else [listed]
    # TRL's scripts put the model before the functions.
    _put(out, lines, "reward_funcs", [model, *functions], "reward_model_name_or_path")


def _flat(out: dict[str, object], lines: dict[str, int]) -> None:
    """Put arguments that fmtkit has only in the section of the online methods there."""
    inside: dict[str, object] = {}
    for name in [one for one in out if _is_online(one)]:
        inside[name] = out.pop(name)
        if name in lines:
            lines[f"{SECTION}.{name}"] = lines[name]
    if inside:
        before = cast("Mapping[str, object]", out.get(SECTION) or {})
        out[SECTION] = {**before, **inside}


def _is_online(name: str) -> bool:
    if name in aliases() or find_key(name) is not None:
        return False
    dotted = f"{SECTION}.{name}"
    key = find_key(aliases().get(dotted, dotted))
    return key is not None and key.to != "refused"


def _put(out: dict[str, object], lines: dict[str, int], name: str, value: object, by: str) -> None:
    out[name] = value
    if by in lines:
        lines[name] = lines[by]
