"""The plan of `trl.backend: async`: TRL's AsyncGRPOTrainer on GPUs, with a vLLM server."""

import os

from fmtkit.training.planning import visible_gpus
from fmtkit.training.planning.check import check_config
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Argument
from fmtkit.training.vllm import serve

_TAKEN = frozenset(
    {
        "backend",
        "reward_funcs",
        "tools",
        "environment_factory",
        "use_data_producer",
        "async_prefetch",
        "vllm_sync_interval",
        "vllm_lora_sync",
        "vllm_sync",
        "vllm_request_timeout",
        "skip_zero_advantage_batches",
    }
)
"""Keys of `rl` that the trainer honours, or that have no effect on it."""
_INSTEAD = {
    "prefetch_depth": "write trainer_args: {max_staleness: N}",
    "rollout_func": "write an environment_factory",
    "reward_num_workers": "it scores each group in a separate process as it comes",
    "streaming_partial_batch": "it scores each group as it comes anyway",
    "streaming_min_groups": "it scores each group as it comes anyway",
}


@check_config(
    "async_feature",
    "config",
    "keys that the asynchronous trainer does not support",
    section="grpo",
    keys=("trl.backend",),
)
def _features(plan: Plan) -> list[str]:
    if not plan.runner.own_sampler:
        return []
    return [
        f"trl.{name}: TRL's AsyncGRPOTrainer does not take it; "
        f"{_INSTEAD.get(name, 'it is for trl.backend: sync')}"
        for name, argument in plan.arguments.of("rl").items()
        if name not in _TAKEN and argument.value not in (None, False)
    ]


@check_config(
    "async_server",
    "config",
    "vLLM inside the process of the asynchronous trainer",
    section="grpo",
    keys=("trl.vllm_mode",),
)
def _server(plan: Plan) -> str | None:
    if not plan.runner.own_sampler or not serve.is_inside(plan.config):
        return None
    return "trl.vllm_mode: colocate: the asynchronous trainer uses its own server; leave it out"


def derive(plan: Plan) -> None:
    """Set the arguments that the asynchronous trainer knows under other names."""
    out = plan.arguments
    if not plan.runner.own_sampler:
        return
    interval = out.of("rl").get("vllm_sync_interval")
    if interval is not None:
        out.default("weight_sync_steps", interval.value, interval.origin)
    limit = out.of("rl").get("vllm_request_timeout")
    if limit is not None:
        out.default("request_timeout", limit.value, limit.origin)
    host, port = out.own.pop("vllm_server_host", None), out.own.pop("vllm_server_port", None)
    if host is not None or port is not None:
        url = f"http://{_named(host.value if host else None)}:{port.value if port else 8000}"
        origin = (host or port or Argument("", None, "")).origin
        out.default("vllm_server_base_url", url, origin)


def lacking_device(plan: Plan) -> str | None:
    """Return why TRL's asynchronous trainer would find no GPU; None if it would, or does not train."""
    if not plan.runner.own_sampler or visible_gpus.visible(os.environ):
        return None
    return (
        "trl.backend: async needs a CUDA device, since its attention is the FlashAttention-3 kernel, "
        "and none is visible; nothing was loaded. trl.backend: sync needs none, and can prefetch answers "
        "with trl.async_prefetch"
    )


def _named(host: object) -> str:
    """Return a host that clients can connect to: a server may listen on 0.0.0.0."""
    return "localhost" if host in (None, "0.0.0.0") else str(host)  # noqa: S104
