"""Which turns of a conversation are trained on, and with which ends: `roles_to_train`, `train_on_eos`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Ends = Literal["turn", "all", "last", "none"]
ENDS = ("turn", "all", "last", "none")


@dataclass(frozen=True)
class TurnRule:
    """Turns are trained on by their role; a message that says `train` true or false decides for itself."""

    roles: tuple[str, ...] = ("assistant",)
    ends: Ends = "turn"
    """The end-of-turn tokens that are trained on: those of the turns that are, all, the last one, none."""

    def trains_on(self, message: Mapping[str, Any], *, everything: bool) -> bool:
        """Return whether a turn is trained on; `everything` takes each that does not say otherwise."""
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
"""The first and the last character of a stretch of a content, and whether it is trained on."""


def details_of(message: Mapping[str, Any]) -> list[Detail]:
    """Return what a message's `train_detail` says of its content; empty where it has none."""
    written = message.get("train_detail")
    return [
        (span["begin_offset"], span["end_offset"], span["train"])
        for span in (json.loads(written) if written else ())
    ]


def trained_tokens(details: Sequence[Detail], tokens: Sequence[tuple[int, int]]) -> list[bool]:
    """Return which tokens of a content are trained on: those in a stretch that is, as axolotl finds them.

    `tokens` are the first and the last character of each. A stretch that begins or ends inside of a
    token takes it whole, except for its last character alone at the beginning, or its first at the end.
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
