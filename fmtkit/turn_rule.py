"""Which turns of a conversation are learnt, and with which ends: `roles_to_train`, `train_on_eos`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Ends = Literal["turn", "all", "last", "none"]
ENDS = ("turn", "all", "last", "none")


@dataclass(frozen=True)
class TurnRule:
    """Turns are learnt by their role; a message that says `train` true or false decides for itself."""

    roles: tuple[str, ...] = ("assistant",)
    ends: Ends = "turn"
    """The end-of-turn tokens that are learnt: those of the turns that are, all, the last one, none."""

    def learns(self, message: Mapping[str, Any], *, everything: bool) -> bool:
        """Tell whether a turn is learnt; `everything` takes each that does not say otherwise."""
        own = message.get("train")
        return (everything or message["role"] in self.roles) if own is None else bool(own)

    def is_plain(self, messages: list[Mapping[str, Any]]) -> bool:
        """Tell whether replies with their ends are learnt, and nothing else, but for exempt replies."""
        asked = any(m.get("train") is True and m["role"] != "assistant" for m in messages)
        return self == TurnRule() and not asked

    def as_dict(self) -> dict[str, Any]:
        """Return the rule as plain values."""
        return asdict(self) | {"roles": list(self.roles)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TurnRule":
        """Read what `as_dict` wrote."""
        return cls(tuple(values["roles"]), values["ends"])


USUAL_TURNS = TurnRule()
