"""General online logit distillation: a teacher whose tokenizer may be a different one."""

from fmtkit.core.runner import Runner

from .gkd import RUNNER as _TAUGHT  # whose collator it has

RUNNER = Runner(
    method="gold",
    tables=("Conversation", "Completion"),
    trainer="trl.experimental.gold:GOLDTrainer",
    config="trl.experimental.gold:GOLDConfig",
    about="follow a teacher, of another tokenizer too, on the data and on the model's own answers",
    trl=">=1.16,<2",
    needs=frozenset({"teacher"}),
    mask="teacher",
    whole_conversations=True,
    refusals=_TAUGHT.refusals,
    advice=_TAUGHT.advice,
)
