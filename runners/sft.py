"""Supervised fine-tuning: learn the replies of conversations."""

from fmtkit.core.runner import Runner

RUNNER = Runner(
    method="sft",
    tables=("Conversation", "Completion", "Segments"),
    trainer="trl:SFTTrainer",
    config="trl:SFTConfig",
    about="train on the replies as they are",
    mask="completion",
    text_ends="text",
    row_variables=True,
    prepares_rows=True,
    splits_sequences=True,
    sees_lengths=True,
    takes_images=True,
    cuts=frozenset({"truncate-end", "truncate-start"}),
)
