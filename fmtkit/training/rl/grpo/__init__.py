"""GRPO and related methods: TRL's trainers, and what fmtkit adds to them.

`trainer.FmtkitGRPOTrainer` extends `rollouts.trainer.RolloutTrainer` (how answers are made) and takes its
rewards from `rewards.Rewards`; EBFT's structured trainer extends it. Each feature is a part that knows no
trainer, or only the attributes that it names:

    zero_advantage      skip micro-batches without a gradient
    replay              fill silent groups with earlier ones
    rerolls             bring failed prompts back, through the trainer's rows_ahead
    samples, samples_page, keep_samples, health      what a user watches

`build` makes a trainer from a job, for grpo, gdpo, rloo and online_dpo; `async_build` makes TRL's
asynchronous one.
Before a run, without torch: `plan` and `group_rule` (keys and sizes), `checks` (names and rows).

A subclass adds to a batch by `extended(output)`, sets `has_other_losses` if no micro-batch may be skipped,
and reads the rows of the batch in `rows`.
"""
