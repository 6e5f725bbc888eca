"""`vllm`: the server that makes the answers."""

from fmtkit.core.section import Section

SECTION = Section(
    name="vllm",
    about="`fmtkit vllm-serve`",
    modules=("fmtkit.training.vllm.plan",),
    keys="fmtkit.training.vllm.keys",
)
