"""What fmtkit's GRPO and RLOO trainers can do beyond TRL's: replay, re-rolling, dynamic sampling.

`trainer.FmtkitGRPOTrainer` extends `fmtkit.training.online.rollouts.trainer.RolloutTrainer` (how answers are
made) and takes its rewards from `Rewards`; EBFT's structured trainer extends it. Each feature is a part that
knows no trainer, or only the attributes that it names:

    zero_advantage      skip micro-batches without a gradient
    replay              fill silent groups with earlier ones
    rerolls             bring failed prompts back, through the trainer's rows_ahead
    dynamic_sampling    replace prompts whose answers all have the same reward

A subclass adds to a batch by `extended(output)`, sets `has_other_losses` if no micro-batch may be skipped,
and reads the rows of the batch in `rows`. Without this folder TRL's own trainers train grpo, gdpo and rloo.
"""
