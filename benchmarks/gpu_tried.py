"""What gpu.py trains for a few steps and does not measure: the other methods, adapters, keys that want a GPU."""

import math
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gpu_cases import (
    Case,
    Method,
    NotRunError,
    Result,
    Run,
    Setting,
    Size,
    by_fmtkit,
    config_of,
    logs,
    need,
)
from packaging.specifiers import SpecifierSet

STEPS = 3
REWARD = "gpu_reward.length"
QLORA = {"adapter": "qlora", "load_in_4bit": True}
Keys = Mapping[str, Any]


def cases(size: Size) -> Iterator[Case]:
    """Yield the cases: methods that no other case trains, then adapters, then keys."""
    for name, (layout, keys) in _methods(size).items():
        named = {"process_reward_model": True} if name == "prm" else {"rl": name}
        type_ = "stepwise_supervised" if name == "prm" else None
        for how, lora in (("full", False), ("LoRA", True)):
            method = Method(layout, {**named, **keys}, type=type_)
            yield _case(f"{name}, {how}", method, lora=lora)
    answers = {"num_generations": 4, "max_completion_length": size.answer}
    bases: dict[str, tuple[str, Keys]] = {
        "sft": ("chats", {}),
        "dpo": ("pairs", {"rl": "dpo"}),
        "reward": ("pairs", {"reward_model": True}),
        "grpo": ("prompts", {"rl": "grpo", "trl": {**answers, "reward_funcs": [REWARD]}}),
    }
    for name, (layout, keys) in bases.items():
        for how, adapter, needs in (
            ("DoRA", {"adapter": "dora"}, None),
            ("QLoRA", QLORA, "bitsandbytes"),
            ("LoRA on 8 bits", {"load_in_8bit": True}, "bitsandbytes"),
        ):
            yield _case(f"{name}, {how}", Method(layout, {**keys, **adapter}), True, needs)
    for how, (keys, lora, needs) in KEYS.items():
        yield _case(f"sft, {how}", Method("chats", keys), lora, needs)


def _methods(size: Size) -> dict[str, tuple[str, Keys]]:
    """Return the rows and keys of each method; `teacher` and `judge` stand for the models' folders."""
    sampled = {"num_generations": 4, "max_completion_length": size.answer}
    own = {"max_completion_length": size.answer}
    short = {"max_new_tokens": size.answer}
    judged = {"reward_model_path": "judge"}
    of_ppo = {"response_length": size.answer, "local_rollout_forward_batch_size": size.batch}
    return {
        **{name: ("pairs", {}) for name in ("ipo", "orpo", "simpo", "cpo", "alphapo")},
        "bco": ("labels", {}),
        "prm": ("stepwise", {}),
        "gdpo": ("prompts", {"trl": {**sampled, "reward_funcs": [REWARD, "gpu_reward.vowels"]}}),
        "rloo": ("prompts", {"trl": {**sampled, "reward_funcs": [REWARD]}}),
        "online_dpo": ("prompts", {"trl": {**short, "reward_funcs": [REWARD]}}),
        "gkd": ("chats", {"teacher_model": "teacher", "trl": short}),
        "distillation": ("prompts", {"teacher_model": "teacher", "trl": own}),
        **{
            n: ("prompts", {"trl": {**sampled, "reward_funcs": [REWARD]}}) for n in ("gmpo", "sdpo")
        },
        **{
            n: ("chats", {"teacher_model": "teacher", "trainer_args": own})
            for n in ("gold", "iw_opd")
        },
        "sdft": ("prompts", {"trainer_args": {**own, "num_generations": 1}}),
        "ppo": ("prompts", {**judged, "trainer_args": of_ppo}),
        "xpo": ("prompts", {**judged, **short}),
        "nash_md": ("prompts", {**judged, **short}),
    }


KEYS: dict[str, tuple[Keys, bool, str | None]] = {
    "LoftQ": ({"peft": {"loftq_config": {"loftq_bits": 4}}}, True, "bitsandbytes"),
    "gradient checkpointing": ({"gradient_checkpointing": True}, False, None),
    "activation offloading": ({"activation_offloading": True}, False, None),
    "tf32": ({"tf32": True}, False, None),
    "fp16": ({"fp16": True, "bf16": False}, False, None),
    "optimizer of 8 bits": ({"optimizer": "adamw_bnb_8bit"}, False, "bitsandbytes"),
    "packing, FlexAttention": ({"sample_packing": True, "flex_attention": True}, False, "torch"),
    "torch.compile": ({"torch_compile": True}, False, None),
    "Liger's kernels": ({"use_liger_kernel": True}, False, "liger_kernel"),
}
"""What is set -> the keys, whether with LoRA, and the package that it needs beside a GPU; None for neither."""


def _case(name: str, method: Method, lora: bool, needs: str | None = None) -> Case:
    about = f"{STEPS} steps of {name}"
    return Case(name, about, _trained(method, lora, needs), is_timed=False)


def _trained(method: Method, lora: bool, needs: str | None) -> Run:
    def run(setting: Setting) -> Result:
        if needs is not None:
            need(setting, needs)
        config = config_of(setting, method, lora=lora) | {"max_steps": STEPS}
        config |= {key: _in_folder(setting, value) for key, value in method.keys.items()}
        _check_trl(config)
        by_fmtkit(setting, config)()
        told = map(_loss, logs(Path(config["output_dir"])))
        losses = [loss for loss in told if loss is not None]
        if len(losses) < STEPS or not all(map(math.isfinite, losses)):
            raise RuntimeError(f"losses of {STEPS} steps: {losses}")
        return {"losses": losses}

    return run


def _loss(log: Result) -> float | None:
    """Return the loss of a line of metrics; PPO has one of its policy."""
    return log.get("loss", log.get("loss/policy_avg"))


def _in_folder(setting: Setting, value: Any) -> Any:
    return str(setting.folder / value) if value in ("teacher", "judge") else value


def _check_trl(config: Mapping[str, Any]) -> None:
    """Raise NotRunError for a method that the installed TRL no longer has."""
    from fmtkit.core import runner

    method = config.get("rl")
    if method is None:
        return
    wanted = runner.find(str(method)).trl
    if version("trl") not in SpecifierSet(wanted):
        raise NotRunError(f"{method} wants trl{wanted}")
