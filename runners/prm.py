"""Process reward models: label the separator after each step, by plain token classification."""

from fmtkit.training.runner import Runner

RUNNER = Runner(
    method="prm",
    tables=("Stepwise",),
    trainer="transformers:Trainer",
    config="transformers:TrainingArguments",
    about="tell right steps from wrong ones",
    head="steps",
    build="fmtkit.training.stepwise:build_trainer",
    own=frozenset({"max_length"}),
)
