"""Kahneman-Tversky optimisation, from single liked or disliked replies: https://arxiv.org/abs/2402.01306."""

from fmtkit.training.runner import Runner

RUNNER = Runner(
    method="kto",
    tables=("Unpaired",),
    trainer="trl:KTOTrainer",
    config="trl:KTOConfig",
    about="like or dislike single replies, measured against a reference model",
    needs=frozenset({"reference"}),
)
