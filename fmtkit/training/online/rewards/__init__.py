"""Reward functions of a run, for any trainer of TRL (GRPO, RLOO, online DPO).

    rewards = rewards_of(job)        # or load_rewards(names, places, weights=..., options=...)
    rewards.check_columns(train_dataset.column_names)      # before the model is loaded
    trainer = GRPOTrainer(reward_funcs=rewards.functions, ...)
    rewards.group_size = lambda: trainer.num_generations if trainer.model.training else ...
    ...
    rewards.close()

`rewards.functions` holds a callable for each function (async where the user's is) and a folder or hub
id for each reward model, in the order of the configuration; TRL calls, names, weighs and logs them as
it does with any other. Nothing of TRL has to be overridden. (OnlineDPOTrainer awaits nothing: it gets
`rewards.waited_for`.) What each callable contains:

- checks (`verdicts`): wrong length, wrong type, NaN and infinity, and an exception with its line and row
  are a RewardError, which ends a run with exit code 1.
- a batch for which every function says None is skipped, as TRL does, and counted (`one_batch`).
- a time limit for each call (`time_limit`, `trl.reward_timeout`), which interrupts it.
- streaming (`streaming_partial_batch`): the function is called for `streaming_min_groups` complete groups
  at a time. Functions with `needs_full_batch = True` get the full batch.
- workers (`reward_num_workers`): sync functions run in this many processes, parts of complete groups side by
  side; `log_extra` and `log_metric` are replayed in the trainer's. Async functions and models stay.

The rewards are the same with and without streaming and workers. Where `group_size` is unset, groups are
runs of equal prompts; set it where prompts of a group can differ (environments).
"""

from fmtkit.training.online.rewards.call_limits import RewardOptions, read_options
from fmtkit.training.online.rewards.loading import Rewards, load_rewards, rewards_of
from fmtkit.training.online.rewards.verdicts import RewardError

__all__ = ["RewardError", "RewardOptions", "Rewards", "load_rewards", "read_options", "rewards_of"]
