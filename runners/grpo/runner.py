"""Group relative policy optimisation: https://arxiv.org/abs/2402.03300.

`trl.backend: async` is TRL's AsyncGRPOTrainer, which makes answers in processes of their own.
"""

from dataclasses import replace

from fmtkit.core.runner import TRL_FEATURES, HealthLimits, Runner

_SYNC = Runner(
    method="grpo",
    tables=("Prompt",),
    trainer="trl:GRPOTrainer",
    config="trl:GRPOConfig",
    about="raise the rewards of the model's own answers, group by group",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm", "grpo"}),
    own=frozenset({"max_length"}),
    features=TRL_FEATURES,
    makes_reference=True,
    group=8,
    takes_images=True,
    mixes_images=False,
    health=HealthLimits(),
    guessed_from=frozenset({"trl", "vllm", "nemo_gym_enabled", "verifiers"}),
    variant_key="trl.backend",
)

_ASYNC = replace(
    _SYNC,
    trainer="trl.experimental.async_grpo:AsyncGRPOTrainer",
    config="trl.experimental.async_grpo:AsyncGRPOConfig",
    about="raise the rewards of answers that a vLLM server generates during training",
    trl=">=1.16,<1.17",
    own=frozenset({"max_length", "use_vllm", "vllm_mode", "vllm_server_host", "vllm_server_port"}),
    build="fmtkit.runners.grpo.async_build:build_async",
    takes_images=False,
    own_sampler=True,
    needs_cuda=True,
)

RUNNER = replace(_SYNC, variants={"async": _ASYNC})
