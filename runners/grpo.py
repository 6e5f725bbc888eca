"""Group relative policy optimisation: https://arxiv.org/abs/2402.03300.

`trl.backend: async` is TRL's AsyncGRPOTrainer, which makes answers in processes of their own.
"""

from dataclasses import replace

from fmtkit.core.runner import OUR_FEATURES, TRL_FEATURES, TRLS_OWN, HealthLimits, Runner

_SYNC = Runner(
    method="grpo",
    tables=("Prompt",),
    trainer="fmtkit.training.rl.grpo.trainer:FmtkitGRPOTrainer",
    config="trl:GRPOConfig",
    about="raise the rewards of the model's own answers, group by group",
    trl=">=1.16,<1.17",
    needs=frozenset({"rewards"}),
    sections=frozenset({"rl", "vllm"}),
    own=frozenset({"max_length"}),
    features=OUR_FEATURES,
    makes_reference=True,
    group=8,
    health=HealthLimits(),
    guessed_from=frozenset({"trl", "vllm", "nemo_gym_enabled", "verifiers"}),
    build="fmtkit.training.rl.grpo.build:build_grpo",
    variant_key="trl.backend",
)

_ASYNC = replace(
    _SYNC,
    trainer="trl.experimental.async_grpo:AsyncGRPOTrainer",
    config="trl.experimental.async_grpo:AsyncGRPOConfig",
    about="raise the rewards of answers that a vLLM server generates during training",
    own=frozenset({"max_length", "use_vllm", "vllm_mode", "vllm_server_host", "vllm_server_port"}),
    sections=frozenset({"rl", "vllm"}),
    build="fmtkit.training.rl.grpo.async_build:build_async",
    needs_cuda=True,
)

_TRLS_OWN = replace(
    _SYNC,
    trainer="trl:GRPOTrainer",
    trl=">=1.8,<2",
    sections=frozenset({"rl", "vllm"}),
    features=TRL_FEATURES,
    build="fmtkit.training.rl.grpo.build:build_trls_own",
)

RUNNER = replace(_SYNC, variants={"async": _ASYNC, TRLS_OWN: _TRLS_OWN})
