"""Process reward models: label the separator after each step, by plain token classification."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="prm",
    tables=("Stepwise",),
    trainer="transformers:Trainer",
    config="transformers:TrainingArguments",
    about="classify the steps of solutions as right or wrong",
    head="steps",
    sees_lengths=True,
    key="process_reward_model",
    guessed_from=frozenset({"Stepwise"}),
    build="fmtkit.training.run.stepwise:build_trainer",
    own=frozenset({"max_length"}),
    cuts=frozenset({"truncate-end"}),
)
