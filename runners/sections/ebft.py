"""`ebft`: energy-based fine-tuning."""

from fmtkit.core.section import Section

SECTION = Section(
    name="ebft",
    about="fmtkit's EBFT",
    modules=("fmtkit.training.rl.ebft.plan",),
    keys="fmtkit.training.rl.ebft.keys",
)
