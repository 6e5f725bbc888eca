"""Keys of TRL's own config files that say in several keys what fmtkit says in one, or at another place.

What is only another name is an alias of its key. Here are those that need a look at their neighbours: a
dataset and its splits, an adapter and its quantization, and the flat arguments of online methods.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import Runner, find_known
from fmtkit.training.config import trl_sources, trl_template, trl_values
from fmtkit.training.config.keys import SECTION, aliases, arguments_of, find_key, table
from fmtkit.training.config.problems import Problems
from fmtkit.training.config.yaml_file import parse

MARKS = frozenset(
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
AXOLOTL = frozenset({"base_model", "adapter", "micro_batch_size", "sequence_len", SECTION})
_PROFILES = {"single_gpu": "single", "fsdp1": "fsdp2"}
_LORA = {"lora_r": 16, "lora_alpha": 32, "lora_dropout": 0.05}
"""The defaults of TRL's ModelConfig, where a file with `use_peft` says nothing else."""
TOGETHER: dict[str, str] = {
    "chat_template_path": "`chat_template`: a .jinja file, or a tokenizer, with its EOS and its new tokens",
    "dataset_config": "`name` of the entry of datasets; only with dataset_name",
    "dataset_kwargs": "`skip_prepare_dataset`, its only entry",
    "dataset_test_split": "`split` of an entry of test_datasets, where eval_strategy asks for evaluation",
    "dataset_text_field": "the column that is read as `text`",
    "dataset_train_split": "`split` of the entry of datasets; only with dataset_name",
    "eos_token": "`special_tokens.eos_token`",
    "pad_token": "`special_tokens.pad_token`",
    "reward_model_name_or_path": "the first of `trl.reward_funcs`, or `reward_model_path`; refused elsewhere",
    "use_peft": "`adapter: lora`, or `qlora` with load_in_4bit, with the defaults of ModelConfig",
}
"""Keys that no table has, since each is read together with others, and what they are here."""
READ = MARKS | TOGETHER.keys() | {"accelerate_config", "dataset_name"}
"""Keys without which a file is what it says, and all that follows is of no use; but for online methods."""
_REWARDS = frozenset({"accuracy_reward", "reasoning_accuracy_reward", "think_format_reward"})
"""Functions of trl.rewards that TRL's scripts know by their names."""
_PUNISHMENT = "get_soft_overlong_punishment"
_OVERLONG = {"fmtkit.rewards.length_cap": {"cap": 1280, "buffer": 256}}
"""The reward that TRL's scripts make of `_PUNISHMENT`, with the numbers that they give it."""


def is_trl(values: Mapping[str, object]) -> bool:
    """Return whether a file is TRL's: it has a key that only TRL has, and none that only axolotl has."""
    return bool(MARKS & values.keys()) and not AXOLOTL & values.keys()


def with_overrides(
    values: Mapping[str, object], overrides: Sequence[str]
) -> tuple[dict[str, object], list[str]]:
    """Return the keys of a file with those of TRL that `--set` gives, and the other overrides.

    Keys that are read together with their neighbours are read as if they were in the file.
    """
    out, rest, is_trls = dict(values), list[str](), is_trl(values)
    method = next((o.partition("=")[2] for o in reversed(overrides) if o.startswith("rl=")), None)
    chosen = find_known(method or values.get("rl", values.get("method")))
    for override in overrides:
        name, equals, text = override.partition("=")
        name = name.strip()
        is_read = name in TOGETHER or (name == "dataset_name" and name in values)
        is_flat = is_trls and (_is_online(name, chosen) or name == "max_length")
        if equals and (is_read or is_flat):
            out[name] = parse(f"value: {text}", f"--set {name}")["value"] if text else None
        else:
            rest.append(override)
    return out, rest


def translated(
    values: Mapping[str, object],
    lines: dict[str, int],
    method: object,
    problems: Problems,
    notes: list[str],
) -> dict[str, object]:
    """Return the keys of a file with TRL's as fmtkit writes them; `lines` gets the lines of new names."""
    out, is_trls = dict(values), is_trl(values)
    chosen = find_known(method)
    if is_trls:
        out = trl_values.read(out, chosen, problems, notes)
        trl_sources.mixture(out, problems, notes)
    with problems.collecting("two_spellings", "use_peft"):
        _adapter(out, lines)
    with problems.collecting("value", "accelerate_config"):
        _profile(out, notes)
    with problems.collecting("value", "dataset_kwargs"):
        _prepared(out, lines)
    with problems.collecting("two_spellings", "special_tokens"):
        _tokens(out, lines)
    with problems.collecting("value", "chat_template_path"):
        _template(out, lines, notes)
    if trl_sources.KEYS & out.keys():
        trl_sources.write_dataset_name(out, lines)
        trl_sources.refuse_alone(out, problems)
    if is_trls:
        with problems.collecting("value", "reward_funcs"):
            _check_rewards(out)
        with problems.collecting("two_spellings", "reward_model_name_or_path"):
            _reward_model(out, lines, chosen)
    else:
        _refuse_mixed(out, chosen, problems)
    with problems.collecting("two_spellings", SECTION):
        # In other files those alone that are arguments of other methods too.
        _flat(out, lines, chosen, every=is_trls)
    if is_trls:
        _rewards(out)
        _length(out, lines, chosen)
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


def _template(out: dict[str, object], lines: dict[str, int], notes: list[str]) -> None:
    if out.get(trl_template.KEY) is None:
        return
    for name, value in trl_template.read(out, notes).items():
        _put(out, lines, name, value, trl_template.KEY)
    del out[trl_template.KEY]


def _profile(out: dict[str, object], notes: list[str]) -> None:
    """Read the names of TRL's accelerate configs, most of which are those of fmtkit's profiles."""
    name = out.get("accelerate_config")
    if name == "fsdp1":
        notes.append("accelerate_config: fsdp1: FSDP version 1 is deprecated; this runs version 2")
    if isinstance(name, str):
        out["accelerate_config"] = _PROFILES.get(name, name)


def _prepared(out: dict[str, object], lines: dict[str, int]) -> None:
    """Read `dataset_kwargs`, of which TRL's trainers know one entry."""
    given = out.pop("dataset_kwargs", None)
    if given is None:
        return
    if not isinstance(given, Mapping) or given.keys() - {"skip_prepare_dataset"}:
        raise OptionError(
            f"dataset_kwargs: {given!r}: TRL's trainers read skip_prepare_dataset alone; leave the rest out"
        )
    if out.get("skip_prepare_dataset") is None:
        _put(
            out,
            lines,
            "skip_prepare_dataset",
            given.get("skip_prepare_dataset"),
            "dataset_kwargs",
        )


def _tokens(out: dict[str, object], lines: dict[str, int]) -> None:
    """Put TRL's `eos_token` and `pad_token` among the tokens of the tokenizer."""
    for name in ("eos_token", "pad_token"):
        token = out.pop(name, None)
        if token is None:
            continue
        before = out.get("special_tokens") or {}
        if not isinstance(before, Mapping):
            return
        if before.get(name) not in (None, token):
            raise OptionError(f"{name} and special_tokens.{name} differ; keep one")
        _put(out, lines, "special_tokens", {**before, name: token}, name)


def _reward_model(out: dict[str, object], lines: dict[str, int], chosen: Runner | None) -> None:
    model = out.pop("reward_model_name_or_path", None)
    if model is None and chosen is not None and "rewards" in chosen.needs:
        # So says the config class of online DPO, whose script makes a reward of it.
        model = out.pop("reward_model_path", None)
    if model is None or chosen is None:
        return
    if "rewards" not in chosen.needs and "reward_model" not in chosen.needs:
        raise OptionError(
            f"reward_model_name_or_path: {chosen.method} has no reward model; leave it out, or name the "
            "method, such as --method grpo"
        )
    if "rewards" not in chosen.needs:
        _put(out, lines, "reward_model_path", model, "reward_model_name_or_path")
        return
    listed = out.get("reward_funcs")
    functions = listed if isinstance(listed, list) else [] if listed is None else [listed]
    # TRL's scripts put the model before the functions.
    _put(out, lines, "reward_funcs", [model, *functions], "reward_model_name_or_path")


def _flat(
    out: dict[str, object], lines: dict[str, int], chosen: Runner | None, *, every: bool
) -> None:
    """Put arguments that belong to the section of the online methods there: every one, or the known."""
    inside: dict[str, object] = {}
    before = cast("Mapping[str, object]", out.get(SECTION) or {})
    for name in [one for one in out if _is_online(one, chosen)]:
        if not every and find_key(name) is None:
            continue
        value = out.pop(name)
        if name in before and before[name] != value:
            raise OptionError(f"{name} and {SECTION}.{name} differ; keep one")
        inside[name] = value
        if name in lines:
            lines[f"{SECTION}.{name}"] = lines[name]
    if inside:
        out[SECTION] = {**before, **inside}


def _refuse_mixed(out: dict[str, object], chosen: Runner | None, problems: Problems) -> None:
    """Refuse flat arguments of online methods in a file that is TRL's in part, with both readings."""
    ours, theirs = sorted(MARKS & out.keys()), sorted(AXOLOTL & out.keys())
    if not ours or not theirs:
        return
    for name in [one for one in out if _is_online(one, chosen)]:
        with problems.collecting("unknown_key", name):
            del out[name]
            raise OptionError(
                f"{name}: the file has keys of TRL's ({ours[0]}) and of axolotl's ({theirs[0]}): did you "
                f"mean {f'{SECTION}.{name}'!r}? A flat {name} is read in a file with TRL's keys alone"
            )


def _check_rewards(out: dict[str, object]) -> None:
    """Refuse a bare name that TRL's scripts do not know; elsewhere it may be a model's."""
    given = out.get("reward_funcs")
    for name in given if isinstance(given, list) else [given]:
        known = {*_REWARDS, _PUNISHMENT}
        if isinstance(name, str) and name.isidentifier() and name not in known:
            if Path(name).is_dir():
                continue
            del out["reward_funcs"]
            raise OptionError(
                f"reward_funcs: {name}: TRL's scripts know {', '.join(sorted(known))} by such a name; write "
                "module.function for another function, reward_model_name_or_path for a model"
            )


def _rewards(out: dict[str, object]) -> None:
    """Name TRL's own reward functions by their paths, as TRL's scripts find them by their bare names."""
    inside = out.get(SECTION)
    named = inside.get("reward_funcs") if isinstance(inside, Mapping) else None
    if named is None:
        return
    listed = named if isinstance(named, list) else [named]
    found = [_reward(one) for one in listed]
    out[SECTION] = {**cast("Mapping[str, object]", inside), "reward_funcs": found}


def _reward(name: object) -> object:
    if name == _PUNISHMENT:
        return _OVERLONG
    return f"trl.rewards.{name}" if isinstance(name, str) and name in _REWARDS else name


def _length(out: dict[str, object], lines: dict[str, int], chosen: Runner | None) -> None:
    """Pass `max_length: null`, which is no limit in TRL, to the trainer: a null counts as unset here."""
    if "max_length" not in out or out["max_length"] is not None or "trainer_args" in out:
        return
    if chosen is not None and "max_length" in arguments_of(chosen).fields:
        _put(out, lines, "trainer_args", {"max_length": None}, "max_length")


def _is_online(name: str, chosen: Runner | None) -> bool:
    """Return whether an argument belongs to the section; methods of two kinds may have one of its name."""
    is_online = chosen is not None and chosen.is_online
    if name in aliases() or name in table() or (find_key(name) is not None and not is_online):
        return False
    dotted = f"{SECTION}.{name}"
    key = find_key(aliases().get(dotted, dotted))
    return key is not None and key.to != "refused"


def _put(out: dict[str, object], lines: dict[str, int], name: str, value: object, by: str) -> None:
    out[name] = value
    if by in lines:
        lines[name] = lines[by]
