"""`trl`: the keys of the online methods that fmtkit's own trainers act on."""

from fmtkit.core.section import Section

SECTION = Section(
    name="rl",
    about="fmtkit's own online methods",
    modules=("fmtkit.training.online.plan", "fmtkit.training.online.checks"),
)
