"""`verifiers`: episodes in an environment of the package `verifiers`."""

from fmtkit.core.section import Section

SECTION = Section(
    name="verifiers",
    about="fmtkit's runner of `verifiers` environments",
    modules=("fmtkit.training.rl.verifiers.plan", "fmtkit.training.rl.verifiers.run"),
    keys="fmtkit.training.rl.verifiers.keys",
    methods=frozenset({"gdpo", "grpo"}),
)
