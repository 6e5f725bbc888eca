"""`grpo_features`: dynamic sampling, replay, re-rolling and skipped batches, by trainers of fmtkit."""

from fmtkit.core.runner import IDLE, TRL_FEATURES
from fmtkit.core.section import Section

_OWN: dict[str, object] = {
    "replay_buffer_size": 0,
    "reroll_start_fraction": 1.0,
    "dynamic_sampling": False,
}
FEATURES = TRL_FEATURES | IDLE.keys() | _OWN.keys()
"""Keys of `trl` that fmtkit's GRPO trainer, and a class derived from it, acts on."""
# They override methods of TRL's trainers as these are in 1.16.
_GRPO = {
    "trainer": "fmtkit.runners.grpo_features.trainer:FmtkitGRPOTrainer",
    "trl": ">=1.16,<1.17",
    "for_features": True,
    "features": FEATURES,
    "build": "fmtkit.runners.grpo_features.build:build_grpo",
}
_RLOO = _GRPO | {
    "trainer": "fmtkit.runners.grpo_features.rloo_trainer:FmtkitRLOOTrainer",
    "features": frozenset({"dynamic_sampling", "max_failed_share", "vllm_sync"}),
    "build": "fmtkit.runners.grpo_features.build:build_rloo",
}
SECTION = Section(
    name="grpo_features",
    about="fmtkit's own trainers of GRPO and RLOO",
    modules=("fmtkit.runners.grpo_features.plan", "fmtkit.runners.grpo_features.health"),
    keys="fmtkit.runners.grpo_features.keys",
    methods=frozenset({"gdpo", "grpo", "rloo"}),
    features=_OWN,
    trainers={"gdpo": _GRPO, "grpo": _GRPO, "rloo": _RLOO},
)
