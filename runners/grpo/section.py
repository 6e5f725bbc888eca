"""`trl.backend: async`: TRL's asynchronous trainer of GRPO."""

from fmtkit.core.section import Section

SECTION = Section(
    name="grpo",
    about="which of TRL's GRPO trainers",
    modules=("fmtkit.runners.grpo.async_plan",),
)
