"""How the training processes are started: one process, torchrun, or accelerate with a profile.

The profiles are fmtkit's accelerate files, as data; the one in use is written to the run folder.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.training.config.config import Config
from fmtkit.training.planning.types import Launch, training_command

_STANDALONE = "--standalone"
"""torchrun's word for processes of this machine alone, which meet at a free port."""
_LAST_PORT = 65535

_MACHINE: dict[str, object] = {
    "compute_environment": "LOCAL_MACHINE",
    "machine_rank": 0,
    "main_training_function": "main",
    "num_machines": 1,
    "same_network": True,
    "use_cpu": False,
}
_FSDP: dict[str, object] = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_reshard_after_forward": True,
    "fsdp_cpu_ram_efficient_loading": True,
    "fsdp_offload_params": False,
    "fsdp_state_dict_type": "FULL_STATE_DICT",
}


def _zero(stage: int) -> dict[str, object]:
    # `auto` lets transformers fill in the batch and precision of the training arguments.
    inside: dict[str, object] = {
        "zero_stage": stage,
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "offload_optimizer_device": "none",
        "offload_param_device": "none",
    }
    if stage == 3:
        inside |= {"zero3_init_flag": True, "zero3_save_16bit_model": True}
    return {**_MACHINE, "distributed_type": "DEEPSPEED", "deepspeed_config": inside}


PROFILES: dict[str, dict[str, object]] = {
    "single": {**_MACHINE, "distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {**_MACHINE, "distributed_type": "MULTI_GPU"},
    "fsdp2": {**_MACHINE, "distributed_type": "FSDP", "fsdp_config": _FSDP},
    "zero1": _zero(1),
    "zero2": _zero(2),
    "zero3": _zero(3),
}
"""Name of a profile -> its accelerate file, without the number of processes."""

_FSDP_1 = frozenset(
    {
        "backward_prefetch",
        "cpu_offload_pin_memory",
        "forward_prefetch",
        "limit_all_gathers",
        "sharding_strategy",
        "sync_module_states",
        "use_orig_params",
        "version",
    }
)
"""Keys of fsdp_config that say how version 1 shards and prefetches; version 2 has one way."""
_FSDP_KEYS = frozenset(
    {
        "activation_checkpointing",
        "activation_checkpointing_offload",
        "auto_wrap_policy",
        "cpu_offload",
        "cpu_ram_efficient_loading",
        "ignored_modules",
        "min_num_params",
        "offload_params",
        "reshard_after_forward",
        "state_dict_type",
        "transformer_layer_cls_to_wrap",
    }
)
"""Keys of fsdp_config, without their prefix, that accelerate takes for version 2."""
_FSDP_WORDS = {"full_shard", "auto_wrap", "shard_grad_op", "offload", "hybrid_shard", "no_shard"}


def make(config: Config, run: Path) -> Launch:
    """Return how this configuration is launched; raise OptionError where its keys contradict."""
    launch = _launch(config, run)
    launch = _at_port(config, launch)
    return replace(launch, processes=_processes(config, launch))


def _at_port(config: Config, launch: Launch) -> Launch:
    """Return a launch whose processes meet at the port that the config names."""
    port = config.get("main_process_port")
    if not isinstance(port, int):
        return launch
    if port > _LAST_PORT:
        raise OptionError(f"main_process_port: {port}: takes a number from 1 to {_LAST_PORT}")
    if launch.accelerate is not None:
        at = {**launch.accelerate, "main_process_port": port}
        return replace(launch, accelerate=at)
    words = launch.command
    if _STANDALONE in words:
        place = words.index(_STANDALONE)
        where = ("--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={port}")
        return replace(launch, command=(*words[:place], *where, *words[place + 1 :]))
    if "--no_python" in words:
        place = words.index("--no_python")
        at_file = (*words[:place], f"--main_process_port={port}", *words[place:])
        return replace(launch, command=at_file)
    note = "main_process_port changes nothing: one process meets no other"
    return replace(launch, notes=(*launch.notes, note))


def _launch(config: Config, run: Path) -> Launch:
    launchers = [name for name in ("deepspeed", "fsdp", "accelerate_config") if config.get(name)]
    if len(launchers) > 1:
        raise OptionError(f"{' and '.join(launchers)} both say how to launch; keep one")
    count = config.processes
    if config.get("context_parallel_size") not in {None, 1} or config.get("fsdp"):
        return _fsdp(config, run, count)
    if config.get("deepspeed"):
        return _deepspeed(config, run, count)
    named = config.text("accelerate_config")
    if named is not None:
        return _named(named, run, count)
    return _plain(run, count or 1)


def _plain(run: Path, count: int) -> Launch:
    if count == 1:
        return Launch.of_one_process(run)
    # accelerate starts one process for `--cpu --num_processes 2`, silently; torchrun starts two.
    several = ("torchrun", _STANDALONE, f"--nproc_per_node={count}", "--no-python")
    return Launch(_python((*several, *training_command(run))), f"torchrun, {count} processes")


def _python(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that runs a launcher by this interpreter (see `fmtkit.training.run.several`)."""
    return (sys.executable, "-P", "-m", "fmtkit.training.run.several", *command)


def _named(name: str, run: Path, count: int | None) -> Launch:
    if name in PROFILES:
        return _accelerate(name, PROFILES[name], run, count)
    path = Path(name)
    if path.suffix not in {".yaml", ".yml", ".json"}:
        raise UnknownNameError("profile (accelerate_config)", name, PROFILES, " (or give a file)")
    if not path.is_file():
        raise OptionError(f"accelerate_config: {name}: no such file")
    counted = (f"--num_processes={count}",) if count else ()
    launcher = ("accelerate", "launch", "--config_file", str(path), *counted, "--no_python")
    command = (*launcher, *training_command(run))
    return Launch(_python(command), str(path), is_local=False)


def _accelerate(name: str, profile: Mapping[str, object], run: Path, count: int | None) -> Launch:
    single = profile.get("distributed_type") == "NO"
    filled = {**profile, "num_processes": 1 if single else count or "all devices"}
    file = run / "accelerate.yaml"
    command = (
        "accelerate",
        "launch",
        "--config_file",
        str(file),
        "--no_python",
        *training_command(run),
    )
    return Launch(_python(command), f"accelerate, {name}", filled, needs_cuda=not single)


def _fsdp(config: Config, run: Path, count: int | None) -> Launch:
    fsdp = config.get("fsdp")
    words = set(fsdp.split() if isinstance(fsdp, str) else fsdp if isinstance(fsdp, list) else ())
    unknown = words - _FSDP_WORDS
    if unknown:
        raise UnknownNameError("word of fsdp", min(unknown), _FSDP_WORDS)
    inside = dict(_FSDP)
    if "shard_grad_op" in words:
        inside["fsdp_reshard_after_forward"] = False
    if "offload" in words:
        inside["fsdp_offload_params"] = True
    inside |= _fsdp_config(config)
    profile: dict[str, object] = {**PROFILES["fsdp2"], "fsdp_config": inside}
    split = config.get("context_parallel_size")
    trainer: dict[str, object] = {}
    if isinstance(split, int) and split > 1:
        profile["parallelism_config"] = _parallelism(config, split)
        # Each device takes two pieces of a sequence: its length is a multiple of twice that.
        trainer["pad_to_multiple_of"] = 2 * split
        count = count or split
    launch = _accelerate("fsdp2", profile, run, count)
    given = config.get("fsdp_config")
    names = [str(name) for name in given] if isinstance(given, Mapping) else []
    idle = sorted(n for n in names if n.removeprefix("fsdp_") in _FSDP_1 - {"version"})
    notes = (
        *(
            ("FSDP version 1 is deprecated; this runs version 2",)
            if config.get("fsdp_version") == 1
            else ()
        ),
        *(
            (f"fsdp_config: {', '.join(idle)}: FSDP 2 has one way to do it; the same is trained",)
            if idle
            else ()
        ),
    )
    return Launch(
        launch.command, launch.profile, launch.accelerate, notes, needs_cuda=True, trainer=trainer
    )


def _parallelism(config: Config, split: int) -> dict[str, object]:
    sizes = {"cp_size": split, "tp_size": 1, "dp_replicate_size": 1, "dp_shard_size": 1}
    for name in ("dp_replicate_size", "dp_shard_size"):
        value = config.get(name)
        if isinstance(value, int):
            sizes[name] = value
    return {
        **{f"parallelism_config_{name}": value for name, value in sizes.items()},
        "parallelism_config_cp_comm_strategy": "allgather",
    }


def _fsdp_config(config: Config) -> dict[str, object]:
    given = config.get("fsdp_config")
    out: dict[str, object] = {}
    for name, value in given.items() if isinstance(given, Mapping) else ():
        short = str(name).removeprefix("fsdp_")
        if short in _FSDP_1 or short == "final_state_dict_type" or value is None:
            continue
        if short == "mixed_precision_policy":
            _check_policy(config, value)
            continue
        if short not in _FSDP_KEYS:
            raise UnknownNameError("key of fsdp_config", str(name), _FSDP_KEYS | _FSDP_1)
        if short == "state_dict_type" and value == "LOCAL_STATE_DICT":
            raise OptionError(
                "fsdp_config.state_dict_type: takes FULL_STATE_DICT or SHARDED_STATE_DICT"
            )
        out[f"fsdp_{'offload_params' if short == 'cpu_offload' else short}"] = (
            ",".join(map(str, value)) if isinstance(value, list) else value
        )
    nested = given.get("final_state_dict_type") if isinstance(given, Mapping) else None
    final = config.text("fsdp_final_state_dict_type") or (str(nested) if nested else None)
    return out | ({"fsdp_state_dict_type": final} if final else {})


def _check_policy(config: Config, value: object) -> None:
    """Raise OptionError for a policy that is not the run's precision, which accelerate shards by."""
    if not (
        config.get("bf16") if value == "bf16" else config.get("fp16") if value == "fp16" else 0
    ):
        raise OptionError(
            f"fsdp_config.mixed_precision_policy: {value}: the run's own precision is used; write "
            "bf16: true or fp16: true, or leave it out"
        )


def _deepspeed(config: Config, run: Path, count: int | None) -> Launch:
    deepspeed = config.get("deepspeed")
    stage = next((s for s in (1, 2, 3) if f"zero{s}" in str(deepspeed).lower()), None)
    if isinstance(deepspeed, Mapping) or Path(str(deepspeed)).is_file():
        command = (
            "torchrun",
            _STANDALONE,
            f"--nproc_per_node={count or 'gpu'}",
            "--no-python",
            *training_command(run),
        )
        return Launch(
            _python(command),
            "torchrun, DeepSpeed",
            needs_cuda=True,
            trainer={"deepspeed": deepspeed},
        )
    if stage is None:
        raise OptionError(
            f"deepspeed: {deepspeed}: no such file; give one, or zero1, zero2 or zero3"
        )
    launch = _accelerate(f"zero{stage}", PROFILES[f"zero{stage}"], run, count)
    note = f"deepspeed: {deepspeed} is not here; the profile zero{stage} is used instead"
    notes = () if str(deepspeed) == f"zero{stage}" else (note,)
    return Launch(launch.command, launch.profile, launch.accelerate, notes, needs_cuda=True)


def _processes(config: Config, launch: Launch) -> int | None:
    """Return how many processes train; None where that depends on the machine."""
    profile = launch.accelerate or {}
    if profile.get("distributed_type") == "NO":
        return 1
    if config.processes is not None:
        return config.processes
    file = config.text("accelerate_config")
    if file is not None and file not in PROFILES:
        return _processes_in(Path(file))
    known = profile.get("num_processes", None if launch.needs_cuda else 1)
    return known if isinstance(known, int) else None


def _processes_in(file: Path) -> int | None:
    """Return what an accelerate file says; None where it leaves the number to the machine."""
    try:
        # JSON is YAML.
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        first = str(error).partition("\n")[0]
        raise OptionError(f"accelerate_config: {file} cannot be read: {first}") from error
    if not isinstance(content, Mapping):
        raise OptionError(
            f"accelerate_config: {file} has no keys; it is not a config file of accelerate"
        )
    count = content.get("num_processes")
    return count if isinstance(count, int) else None
