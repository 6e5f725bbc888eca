"""`nemo_gym_*`: rewards and conversations from the servers of a NeMo Gym."""

from fmtkit.core.section import Section

SECTION = Section(
    name="nemo_gym",
    about="fmtkit's NeMo Gym client",
    modules=("fmtkit.training.rl.nemo_gym.plan", "fmtkit.training.rl.nemo_gym.run"),
    keys="fmtkit.training.rl.nemo_gym.keys",
    methods=frozenset({"gdpo", "grpo", "rloo"}),
)
