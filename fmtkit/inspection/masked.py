"""One sequence as it reaches the model: its tokens, which of them are trained, and why."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass
from fmtkit.tokenizers.tokens import Tokenizer

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Span = tuple[int, int]
"""First, and the one after the last."""

WHY = {
    "completion": "the reply is trained, the prompt is context",
    "assistant": "what the template marks as generation is trained: replies and their end of turn",
    "replies": "replies are trained with their end of turn, prompts are context",
    "turns": "the turns that roles_to_train and the messages name are trained, with the ends that "
    "train_on_eos names",
    "segments": "the segments that are marked are trained on, the others are context",
    "everything": "every token is trained, prompts too",
    "preference": "the log-probability of the reply is compared, the prompt is context",
    "unpaired": "the log-probability of the reply is raised or lowered, the prompt is context",
    "score": "the score is read at the last token; no token is predicted",
    "steps": "the token after each step carries the step's label",
    "blocks": "each window is generated again from its anchor and rewarded; tokens with a label are "
    "trained on as far as ce_coef weighs them",
    "teacher": "the teacher's probabilities of the reply are trained on, the prompt is context",
    "context": "the row is context; what is trained is generated while training",
}
"""Rule of a mask -> what it means, in a sentence."""


@dataclass(frozen=True, eq=False)
class Masked:
    """One sequence that reaches the model."""

    side: str
    """`chosen`, `rejected` or `` where the row makes one sequence."""
    text: str
    ids: Ints
    trained: Bools
    offsets: tuple[Span, ...]
    """Where each token is in `text`, in characters; (n, n) for a token that has no text."""
    prompt_length: int
    """Tokens before the first of the reply."""
    rule: str
    labels: tuple[float, ...] | None = None
    """For the trained tokens of a stepwise row."""
    windows: tuple[Span, ...] = ()
    """Tokens that strided EBFT regenerates; each window begins at its anchor."""
    notes: tuple[str, ...] = ()

    @property
    def why(self) -> str:
        """Return a sentence on why these tokens are trained."""
        return WHY[self.rule]

    @property
    def generated(self) -> Bools:
        """Return which tokens are in a window."""
        found = np.zeros(len(self.ids), dtype=np.bool_)
        for start, end in self.windows:
            found[start:end] = True
        return found


def encoded(text: str, tokenizer: Tokenizer, rule: str) -> Masked:
    """Tokenize a string without adding special tokens; nothing of it is trained yet."""
    encoding = tokenizer.encode(text)
    ids = np.array(encoding.ids, dtype=np.int64)
    nothing = np.zeros(len(ids), dtype=np.bool_)
    return Masked("", text, ids, nothing, tuple(encoding.offsets), 0, rule)


def common_prefix(ids: Sequence[int], others: Sequence[int] | Ints) -> int:
    """Return how many tokens two sequences begin with in common."""
    size = min(len(ids), len(others))
    different = np.flatnonzero(np.asarray(ids[:size]) != np.asarray(others[:size]))
    return int(different[0]) if len(different) else size
