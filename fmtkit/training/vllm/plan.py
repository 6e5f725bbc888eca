"""Generation in a plan: by vLLM or a rollout function, prefetched or not.

Imports nothing heavy: a dry run reads it.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from fmtkit.core.data_classes import dataclass
from fmtkit.core.runner import Runner
from fmtkit.training.config.config import Config, Keys
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.planning import visible_gpus
from fmtkit.training.planning.check import check_config
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Arguments
from fmtkit.training.vllm import ready, serve

COLOCATED = {
    "gpu_memory_utilization": "vllm_gpu_memory_utilization",
    "max_model_len": "vllm_max_model_length",
    "tensor_parallel_size": "vllm_tensor_parallel_size",
}
"""Key of `vllm` -> the trainer's argument, where vLLM runs inside the trainer."""


@dataclass(frozen=True)
class GenerationSettings:
    """What the keys ask for, read together."""

    config: Config
    runner: Runner
    processes: int | None
    """None if all visible devices are used."""

    def is_set(self, name: str) -> bool:
        """Return whether a key of `trl` is set to something other than false."""
        return self.config.get(f"trl.{name}") not in {None, False}

    @property
    def serves(self) -> bool:
        """Return whether a server makes the answers, or may in the rest of a fragment."""
        return self.samples and not serve.is_inside(self.config)

    @property
    def colocates(self) -> bool:
        """Return whether vLLM runs inside the trainer."""
        return serve.is_asked(self.config) and serve.is_inside(self.config)

    @property
    def samples(self) -> bool:
        """Return whether vLLM makes the answers in any way, or may in the rest of a fragment."""
        unset = self.config.get("trl.use_vllm") is None and self.config.is_fragment
        return serve.is_asked(self.config) or unset

    @property
    def rolls_out(self) -> bool:
        """Return whether a user's function or an environment makes the answers."""
        return self.is_set("rollout_func") or "answers" in self.runner.provided(self.config)


def derive(plan: Plan) -> None:
    """Set what the keys of vLLM and of the trainer share, and say what the user should know."""
    config, chosen, out = plan.config, plan.runner, plan.arguments
    settings = GenerationSettings(config, chosen, plan.launch.processes)
    if out.uses_vllm and not chosen.own_sampler:
        # TRL's default is colocate; the documentation uses a server in a second terminal.
        out.default("vllm_mode", "server", "default of fmtkit")
    if settings.colocates and not chosen.own_sampler:
        _colocate(chosen, out)
        out.notes += _notes(settings)
        return
    port = ready.port_of(config)
    if serve.is_asked(config) and config.get("vllm.port") is not None:
        out.default("vllm_server_port", port, "key vllm.port")
    out.notes += _notes(settings)


def _colocate(chosen: Runner, out: Arguments) -> None:
    """Give the trainer what the section `vllm` sets for a server; name what its vLLM cannot take.

    Raises OptionError if a key of `trl` sets the same argument to another value.
    """
    known = arguments_of(chosen).fields
    for argument in out.of("vllm").values():
        name = COLOCATED.get(argument.name)
        if name is not None and name in known:
            out.put("trainer", replace(argument, name=name))
        else:
            key = argument.origin.removeprefix("key ")
            out.notes.append(
                f"{key} changes nothing: trl.vllm_mode: colocate makes vLLM inside the trainer, and "
                f"{chosen.config.partition(':')[2]} has no such argument"
            )


Rule = Callable[[GenerationSettings], str | None]


def _rule(code: str, about: str, keys: Keys, feature: str = "") -> Callable[[Rule], Rule]:
    """Declare a rule about keys of how answers are generated; TRL's asynchronous trainer has its own.

    That a trainer lacks the feature which the rule is about is a problem of its own, of section `rl`.
    """

    def declare(rule: Rule) -> Rule:
        @check_config(code, "config", about, section="vllm", keys=keys)
        @wraps(rule)
        def find(plan: Plan) -> str | None:
            settings = GenerationSettings(plan.config, plan.runner, plan.launch.processes)
            able = plan.runner.features | plan.runner.own
            is_lacking = settings.is_set(feature) and feature not in able
            is_said = is_lacking and "rl" in plan.runner.sections
            return None if is_said or plan.runner.own_sampler else rule(settings)

        return rule

    return declare


@_rule(
    "prefetch",
    "answers ahead of time from a generator that cannot provide them",
    ("trl.async_prefetch", "trl.prefetch_depth"),
    "async_prefetch",
)
def _prefetch(settings: GenerationSettings) -> str | None:
    if not settings.is_set("async_prefetch"):
        if settings.config.get("trl.prefetch_depth") not in {None, 1}:
            return "trl.prefetch_depth: nothing is prefetched without async_prefetch: true"
        return None
    if settings.is_set("environment_factory") and settings.processes != 1:
        return (
            "trl.async_prefetch: environments are prefetched only with one training process; leave it out, "
            "or set num_processes: 1"
        )
    if not settings.serves and not settings.rolls_out:
        return (
            "trl.async_prefetch: the model cannot train and sample in one process at once; set "
            "use_vllm: true with a server (vllm_mode: server), or a rollout_func"
        )
    if settings.rolls_out and settings.processes != 1:
        if not settings.is_set("rollout_func"):
            return (
                "trl.async_prefetch: episodes are prefetched only with one training process; leave it "
                "out, or set num_processes: 1"
            )
        return (
            "trl.async_prefetch: a rollout_func is prefetched only with one training process; leave it "
            "out, set num_processes: 1, or let a vLLM server make the answers"
        )
    return None


@_rule(
    "sync_interval",
    "`vllm_sync_interval` without vLLM, or with a vLLM that drops its weights",
    ("trl.vllm_sync_interval",),
    "vllm_sync_interval",
)
def _interval(settings: GenerationSettings) -> str | None:
    if settings.config.get("trl.vllm_sync_interval") in {None, 1}:
        return None
    if not settings.samples:
        return "trl.vllm_sync_interval: there is no vLLM to send weights to; set use_vllm: true"
    if settings.is_set("vllm_enable_sleep_mode"):
        return (
            "trl.vllm_sync_interval: vllm_enable_sleep_mode throws the weights away, so they are sent "
            "before all answers; leave one of the two out"
        )
    return None


@_rule(
    "lora_sync",
    "an adapter that the vLLM server cannot load",
    ("trl.vllm_lora_sync",),
    "vllm_lora_sync",
)
def _adapter(settings: GenerationSettings) -> str | None:
    if not settings.is_set("vllm_lora_sync"):
        return None
    config = settings.config
    if not settings.serves:
        return "trl.vllm_lora_sync: adapters go to a server; set use_vllm: true, vllm_mode: server"
    adapter = config.adapter
    if adapter is None and not settings.config.is_fragment and config.get("lora_model_dir") is None:
        return "trl.vllm_lora_sync: there is no adapter to send; set adapter: lora"
    named = {"adapter": adapter == "dora", "peft_use_dora": config.is_true("peft_use_dora")}
    named["lora_modules_to_save"] = bool(config.get("lora_modules_to_save"))
    named["lora_bias"] = config.get("lora_bias") not in {None, "none"}
    named["lora_target_parameters"] = bool(config.get("lora_target_parameters"))
    wrong = next((name for name, is_there in named.items() if is_there), None)
    if wrong is not None:
        return (
            f"trl.vllm_lora_sync: vLLM serves only plain LoRA, and {wrong} is {config.get(wrong)}; "
            "leave one of the two out (all weights are sent then)"
        )
    copies = _copies(config)
    if copies:
        return (
            f"trl.vllm_lora_sync: an adapter reaches one of the {copies} copies of "
            "vllm.data_parallel_size; use tensor_parallel_size, or leave vllm_lora_sync out"
        )
    return None


@_rule(
    "file_sync",
    "weights as files that a vLLM server would not get",
    ("trl.vllm_sync",),
    "vllm_sync",
)
def _files(settings: GenerationSettings) -> str | None:
    config = settings.config
    if not serve.sends_files(config):
        return None
    if not settings.serves:
        return "trl.vllm_sync: files go to a server; set use_vllm: true, vllm_mode: server"
    if settings.is_set("vllm_lora_sync"):
        return (
            "trl.vllm_sync: file sends all weights, and vllm_lora_sync only the adapter; leave one of the "
            "two out"
        )
    copies = _copies(config)
    if copies:
        return (
            f"trl.vllm_sync: file was not tried with the {copies} copies of vllm.data_parallel_size; use "
            "tensor_parallel_size"
        )
    return None


def _copies(config: Config) -> int:
    """Return the number of copies of the model that a server has; 0 where there is one."""
    copies = config.get("vllm.data_parallel_size")
    return copies if isinstance(copies, int) and copies > 1 else 0


@_rule(
    "colocate",
    "a vLLM inside the trainer over devices that do not divide those of the training",
    ("vllm.tensor_parallel_size", "trl.vllm_tensor_parallel_size"),
)
def _devices(settings: GenerationSettings) -> str | None:
    if not settings.colocates or settings.processes is None:
        return None
    for key in ("vllm.tensor_parallel_size", "trl.vllm_tensor_parallel_size"):
        size = settings.config.get(key)
        if isinstance(size, int) and settings.processes % size:
            return (
                f"{key}: {size}: trl.vllm_mode: colocate spreads each model over so many of the training "
                f"processes, of which there are {settings.processes}; set num_processes to a multiple of "
                f"{size}, or leave it out"
            )
    return None


@_rule("transfer", "all weights for a vLLM server from a training without a GPU", ("use_cpu",))
def _transfer(settings: GenerationSettings) -> str | None:
    # A mode that does not exist is a problem of its own.
    in_server = settings.serves and settings.config.text("trl.vllm_mode") in {None, "server"}
    if not in_server or settings.config.is_fragment or not settings.config.is_true("use_cpu"):
        return None
    return _lacking_transfer(settings.config, settings.runner, "use_cpu: true trains without one")


def lacking_device(plan: Plan) -> str | None:
    """Return why weights cannot be sent from here to a vLLM server; None if they can, or need not be."""
    given = plan.arguments
    in_server = given.uses_vllm and given.value("vllm_mode") in {None, "server"}
    if not in_server or visible_gpus.may_be_there(os.environ):
        return None
    return _lacking_transfer(plan.config, plan.runner, "none is visible")


def _lacking_transfer(config: Config, runner: Runner, why: str) -> str | None:
    """Return why all weights cannot be sent to a server: TRL sends them by NCCL, from a GPU.

    None where the trainer of the method sends them in another way.
    """
    able = runner.features | runner.own
    ways = []
    if "vllm_sync" in able:
        if serve.sends_files(config):
            return None
        ways.append("trl.vllm_sync: file sends them as files")
    if "vllm_lora_sync" in able:
        if serve.sends_adapter(config):
            return None
        ways.append("with adapter: lora, trl.vllm_lora_sync: true sends only the adapter")
    return (
        "trl.use_vllm: all weights are sent to the server by NCCL, which needs a CUDA device, and "
        f"{why}; {', or '.join(ways) or 'use_vllm: false samples without a server'}"
    )


def _notes(settings: GenerationSettings) -> list[str]:
    config = settings.config
    if not settings.samples:
        return (
            ["vllm: no trainer uses this server: trl.use_vllm is not true"] if _has(config) else []
        )
    notes = []
    if settings.serves and not settings.config.is_fragment:
        notes.append("start the server with fmtkit vllm-serve, on other GPUs (docs/vllm.md)")
    if settings.rolls_out and not serve.is_asked(config):
        notes.append("rollout_func without use_vllm: the ratio to the sampler is not corrected")
    return notes + serve.too_long(config)


def _has(config: Config) -> bool:
    return any(name.startswith("vllm.") for name in config.settings)
