"""`verifiers`: episodes in an environment of the package `verifiers`."""

from fmtkit.core.section import Section

SECTION = Section(
    name="verifiers",
    about="fmtkit's runner of `verifiers` environments",
    modules=("fmtkit.runners.verifiers.plan", "fmtkit.runners.verifiers.run"),
    keys="fmtkit.runners.verifiers.keys",
    methods=frozenset({"gdpo", "grpo"}),
    switch="verifiers.environment",
    # axolotl has one name for the reward of any environment's conversations.
    rewards=frozenset({"env_reward", "axolotl.integrations.nemo_gym.rewards.reward_env"}),
)
