"""NeMo Gym: rewards and whole dialogs from a Gym's servers, over HTTP alone.

A Gym needs Python 3.12 and 1.5 GB of packages, so it lives in an environment of its own; nothing of
it is imported here. Source: https://github.com/NVIDIA-NeMo/Gym, by the answers of its servers.

What the GRPO trainer does with it, in the training process:

    gym = session.open_gym(job)       # finds the servers; None where nemo_gym_enabled is not true
    gym.reward                        # the reward function: `nemo_gym_verify` or `env_reward`
    gym.rollout                       # None in single turn, else TRL's rollout_func

The process of `fmtkit train` starts the servers before the training processes and stops them after
(`launching.servers_of`); `naming.user_rewards` takes our reward's names from `trl.reward_funcs`.

`gym.reward` is a plain reward function of TRL. Its columns come with the rows: `nemo_gym_row`,
`nemo_gym_server`, `nemo_gym_agent`; of a rollout also `env_reward`, `num_turns`, `nemo_gym_outcome`.
It waits for servers and computes nothing, so it stays in this process (`reward.needs_this_process`).

`gym.rollout.play(inputs, trainer)` plays the dialogs of `inputs`, the trainer's row dicts of this
process with the G copies of each, and returns what TRL wants of a rollout_func: `prompt_ids`,
`completion_ids`, `logprobs`, `env_mask`, and the three columns above. It reads the rows by their
columns, never by the prompt's text, logs nothing and touches no tensor, so prefetch may call it in a
thread; `trainer` gives the tokenizer, the sampling arguments and max_completion_length only.
`gym.rollout(prompts, trainer)` is the same for TRL's own call: it takes the rows from
`trainer.rows`, which fmtkit's GRPO trainer sets to its inputs before it generates.
"""
