"""Online DPO: pairs of the model's own answers, ranked by a reward: https://arxiv.org/abs/2402.04792."""

from dataclasses import replace

from fmtkit.core.runner import TRLS_OWN, Runner

_OURS = Runner(
    method="online_dpo",
    tables=("Prompt",),
    trainer="fmtkit.runners.online_dpo.trainer:FmtkitOnlineDPOTrainer",
    config="trl.experimental.online_dpo:OnlineDPOConfig",
    about="prefer the better of the model's own answers",
    trl=">=1.16,<1.17",
    without="a reward that fails ends the run",
    needs=frozenset({"rewards", "reference"}),
    sections=frozenset({"rl", "vllm"}),
    features=frozenset({"max_failed_share", "vllm_sync"}),
    # It inherits transformers' evaluation step, which gives the model prompts as if they were its inputs.
    evaluates=False,
    build="fmtkit.runners.online_dpo.build:build_online_dpo",
)

RUNNER = replace(
    _OURS,
    variants={
        TRLS_OWN: replace(
            _OURS,
            trainer="trl.experimental.online_dpo:OnlineDPOTrainer",
            trl=">=1.8,<2",
            features=frozenset(),
            build="fmtkit.runners.online_dpo.build:build_trls_own",
        )
    },
)
