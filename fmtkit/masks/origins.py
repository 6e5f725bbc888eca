"""Where each token of a sequence comes from: which message and part, or the template; and what it is."""

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np
import numpy.typing as npt

from fmtkit.core.data_classes import dataclass

KINDS = (
    "content",
    "reasoning",
    "tool_call",
    "end",
    "header",
    "generation_prompt",
    "pad_image",
    "tools",
    "template",
)
"""What a token is. Marks that the template writes around a text that the model writes too (`<think>`,
`<tool_call>`) are of that text's kind; `end` ends a turn; `generation_prompt` begins a reply, `header` any
other turn; `pad_image` stands for an image; `tools` describe tools; `template` is whatever else the template
writes: BOS, a system prompt of its own, empty blocks for reasoning, what follows the end of a turn.
"""
CONTENT, REASONING, TOOL_CALL, END, HEADER, GENERATION_PROMPT, PAD_IMAGE, TOOLS, TEMPLATE = range(
    len(KINDS)
)
SAMPLED = (CONTENT, REASONING, TOOL_CALL, END)
"""Kinds of tokens that a model writes, in the turns of the assistant."""
BY_TEMPLATE = -1
"""The part of a token that no message wrote."""
OUTSIDE = -1
"""The message of a token that is in no turn."""

Kinds = npt.NDArray[np.int8]
Numbers = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Origins:
    """The origin of each token of a sequence, in columns."""

    kinds: Kinds
    """Indices of KINDS."""
    messages: Numbers
    """The message in whose turn each token is, counted over prompt and reply; or OUTSIDE."""
    parts: Numbers
    """The part of the message that wrote it (of a content, or the number of a call); or BY_TEMPLATE."""
    roles: tuple[str, ...]
    """The role of each message."""
    by: str = "trace"
    """How it is known: by a `trace` or by `marks` in the template, by `columns`, or by `spans` of replies."""
    blocks: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """Which tokens are empty blocks for reasoning, in a content too; empty where there are none."""

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def by_template(self) -> Bools:
        """Return which tokens the template wrote."""
        found: Bools = self.parts == BY_TEMPLATE
        return found

    @property
    def of_replies(self) -> Bools:
        """Return which tokens are in a turn of the assistant."""
        is_reply = np.array([*(role in REPLYING for role in self.roles), False])
        found: Bools = is_reply[self.messages]
        return found

    @property
    def sampled(self) -> Bools:
        """Return which tokens a model writes when it is asked: of its turns, without what begins them."""
        found: Bools = np.isin(self.kinds, SAMPLED) & self.of_replies
        return found

    def cut(self, kept: slice) -> "Origins":
        """Return the origins of some of the tokens."""
        blocks = self.blocks[kept] if len(self.blocks) else self.blocks
        return replace(
            self,
            kinds=self.kinds[kept],
            messages=self.messages[kept],
            parts=self.parts[kept],
            blocks=blocks,
        )


REPLYING = frozenset({"assistant", "completion", "chosen", "rejected", "step"})
"""Roles of what a model writes."""


def uniform(count: int, roles: Sequence[str], kind: int = CONTENT) -> Origins:
    """Return the origins of tokens that are all of one kind, and of the first message."""
    return Origins(
        np.full(count, kind, np.int8),
        np.zeros(count, np.int32),
        np.zeros(count, np.int32),
        tuple(roles),
        "columns",
    )
