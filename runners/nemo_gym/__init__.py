"""NeMo Gym: rewards and whole conversations from a Gym's servers, over HTTP only.

A Gym needs Python 3.12 and 1.5 GB of packages, so it lives in an environment of its own; nothing of
it is imported here. Source: https://github.com/NVIDIA-NeMo/Gym, by the answers of its servers.

What the GRPO trainer does with it, in the training process:

    gym = session.open_gym(job, tokenizer)   # finds the servers; None where no Gym is enabled
    gym.rewards(job)      # the rewards of the run: the user's and, in its place, that of the Gym
    gym.rollout           # None for a single turn, else a rollout_func (takes_rows) for RolloutTrainer

The process of `fmtkit train` starts the servers before the training processes and stops them after
(`launching.servers_of`); a plan takes its datasets and checks its keys (`plan`), and `section` has axolotl's
names of the Gym's reward.

The reward is a plain function of TRL. Its columns come with the rows: `nemo_gym_row`,
`nemo_gym_server`, `nemo_gym_agent`; of a conversation also `env_reward`, `num_turns`, `nemo_gym_outcome`,
which the rollout returns. The rollout logs nothing and touches no tensor, so it may run in a thread;
what is to be counted, the reward counts on the main thread. If every call of a batch fails it raises
GymError (a RewardError), which ends a run between two steps.
"""
