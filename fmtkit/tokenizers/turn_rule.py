"""Which turns and ends of turns of a conversation are trained on: `roles_to_train`, `train_on_eos`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

from fmtkit.core.data_classes import dataclass

Ends = Literal["turn", "all", "last", "none"]
ENDS: tuple[Ends, ...] = get_args(Ends)


@dataclass(frozen=True)
class TurnRule:
    """Trains on turns by their role, or by the message's `train` if it has one."""

    roles: tuple[str, ...] = ("assistant",)
    ends: Ends = "turn"
    """End-of-turn tokens that are trained on: of trained turns, of all turns, of the last turn, or none."""

    def trains_on(self, message: Mapping[str, Any], *, everything: bool) -> bool:
        """Return whether a turn is trained on; `everything` includes other roles."""
        own = message.get("train")
        if own is None and message.get("train_detail") is not None:
            return bool(details_of(message))
        return (everything or message["role"] in self.roles) if own is None else bool(own)

    def is_plain(self, messages: list[Mapping[str, Any]]) -> bool:
        """Return whether replies with their ends are trained on, and nothing else except exempt replies."""
        asked = any(m.get("train") is True and m["role"] != "assistant" for m in messages)
        detailed = any(m.get("train_detail") is not None for m in messages)
        return self == TurnRule() and not asked and not detailed

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as plain values."""
        return asdict(self) | {"roles": list(self.roles)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TurnRule":
        """Read what `as_dict` wrote."""
        return cls(tuple(values["roles"]), values["ends"])


USUAL_TURNS = TurnRule()
Detail = tuple[int, int, bool]
"""The first and the last character of a part of a content, and whether that part is trained on."""


def details_of(message: Mapping[str, Any]) -> list[Detail]:
    """Return the parts that a message's `train_detail` lists; empty if it has none."""
    written = message.get("train_detail")
    return [
        (span["begin_offset"], span["end_offset"], span["train"])
        for span in (json.loads(written) if written else ())
    ]


def trained_tokens(details: Sequence[Detail], tokens: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which tokens of a content are trained on: those in a trained part, by axolotl's rule.

    `tokens` are the first and the last character of each. A part that begins or ends inside a token includes
    it, unless it has only the token's last character at its beginning, or only the first at its end.
    """
    trained = [False] * len(tokens)
    for begin, end, is_trained in details:
        first = next((i for i, (at, _) in enumerate(tokens) if at >= begin), len(tokens))
        if first and tokens[first - 1][1] > begin:
            first -= 1
        last = max((i for i, (_, to) in enumerate(tokens) if to <= end), default=-1)
        if last + 1 < len(tokens) and tokens[last + 1][0] < end:
            last += 1
        for i in range(first, last + 1):
            trained[i] = trained[i] or is_trained
    return trained
