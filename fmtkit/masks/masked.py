"""A row as it reaches the model: the ids of its sequences, their labels, and where each token comes from.

Masks, the page, `fmtkit diff` and `fmtkit lock` share it. Of a sequence that another trainer made only its
ids and labels are known.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass
from fmtkit.masks.origins import Origins
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
    "given": "the trainer that made the tokens has masked them",
}
"""Rule of a mask -> what it means, in a sentence."""

NOT_TRAINED = -100
"""The label of a token that is not trained on."""


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
    steps: tuple[float, ...] | None = None
    """The labels of the trained tokens of a stepwise row."""
    windows: tuple[Span, ...] = ()
    """Tokens that strided EBFT regenerates; each window begins at its anchor."""
    notes: tuple[str, ...] = ()
    replies: tuple[Span, ...] = ()
    """Where the template marks the replies in `text`, in characters, if the mask follows from that."""
    origins: Origins | None = None
    """Where each token comes from; None where it was not asked for."""

    @property
    def labels(self) -> Ints:
        """Return the label of each token as a trainer gets it: its id, or that of a step, or NOT_TRAINED."""
        if self.steps is None:
            return np.where(self.trained, self.ids, NOT_TRAINED)
        found = np.full(len(self.ids), NOT_TRAINED, np.int64)
        # A soft label of 0.5 or more counts as correct.
        found[self.trained] = np.array(self.steps, np.float64) >= 0.5
        return found

    def cut(self, kept: slice) -> "Masked":
        """Return some of the tokens, as a trainer that truncates keeps them."""
        before = int(self.trained[: kept.indices(len(self.ids))[0]].sum())
        trained = self.trained[kept]
        steps = None if self.steps is None else self.steps[before : before + int(trained.sum())]
        origins = None if self.origins is None else self.origins.cut(kept)
        offsets = self.offsets[kept]
        return replace(
            self,
            ids=self.ids[kept],
            trained=trained,
            offsets=offsets,
            steps=steps,
            origins=origins,
        )

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


@dataclass(frozen=True, eq=False)
class TokenRow:
    """The sequences of one row: one, or those of the chosen and the rejected reply."""

    sequences: tuple[Masked, ...]
    label: bool | None = None
    """The label of an unpaired reply."""
    number: int | None = None
    """The number of the row that it was made of; None where that is not known."""

    @property
    def length(self) -> int:
        """Return the number of tokens of the longest sequence."""
        return max((len(one.ids) for one in self.sequences), default=0)

    @property
    def trained(self) -> int:
        """Return the number of tokens that are trained on."""
        return sum(int(one.trained.sum()) for one in self.sequences)


def given(ids: Sequence[int], labels: Sequence[int], side: str = "") -> Masked:
    """Return a sequence of which only the ids and the labels are known."""
    numbers, wanted = np.array(ids, np.int64), np.array(labels, np.int64)
    trained = wanted != NOT_TRAINED
    is_own = bool((wanted == numbers)[trained].all())
    steps = None if is_own else tuple(map(float, wanted[trained].tolist()))
    return Masked(side, "", numbers, trained, (), 0, "given", steps)


def id_digest(sequences: Sequence[Masked]) -> int:
    """Return eight bytes by which rows with the same ids are found."""
    digest = blake2b(digest_size=8)
    for one in sequences:
        digest.update(len(one.ids).to_bytes(8, "little") + one.ids.astype("<i8").tobytes())
    return int.from_bytes(digest.digest(), "little")


def digest_of(sequences: Sequence[Masked], label: bool | None = None) -> int:
    """Return eight bytes by which rows with the same ids and the same labels are found."""
    digest = blake2b(digest_size=8)
    for one in sequences:
        digest.update(f"{len(one.ids)}:{one.windows}:".encode())
        digest.update(one.ids.astype("<i8").tobytes() + one.labels.astype("<i8").tobytes())
    digest.update(bytes([label is True]))
    return int.from_bytes(digest.digest(), "little")


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
