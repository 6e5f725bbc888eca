"""Which tokens a run is to learn: one reading of its keys, for training, inspecting and comparing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fmtkit.core.data_classes import dataclass
from fmtkit.tokenizers.turn_rule import AS_MASKED, KEPT, OriginRule

if TYPE_CHECKING:
    # The training processes of most methods start without what masks need.
    from fmtkit.masks.masking import Masking
    from fmtkit.training.planning.job import Job
    from fmtkit.training.planning.run_plan import Plan


def origin_rule(key: Callable[[str], object]) -> OriginRule:
    """Read the keys that leave tokens out by where they come from."""
    kept = key("keep_reasoning")
    return OriginRule(
        key("mask_template_tokens") is True,
        key("ignore_empty_think") is True,
        next((word for word in KEPT if word == kept), None),
    )


@dataclass(frozen=True)
class LossRule:
    """What `train_on_inputs` and TRL's own two arguments say together."""

    train_on_inputs: bool = False
    assistant_only: bool = False
    """Whether TRL's `assistant_only_loss` is asked for: of prompts with completions too."""
    all_of: frozenset[str] = frozenset()
    """Tables of which TRL's arguments ask for every token."""
    by_origin: OriginRule = AS_MASKED
    """What of it is left out by where it comes from."""

    @classmethod
    def of_job(cls, job: Job) -> LossRule:
        """Return what a job's keys say."""
        return cls._read(
            job.trainer.get, job.setting, everything=job.setting("train_on_inputs") is True
        )

    @classmethod
    def of_plan(cls, plan: Plan) -> LossRule:
        """Return what a plan's keys say."""
        key = plan.config.get
        return cls._read(plan.arguments.value, key, everything=plan.trains_on_inputs)

    @classmethod
    def _read(
        cls, argument: Callable[[str], object], key: Callable[[str], object], *, everything: bool
    ) -> LossRule:
        unmasked = {
            "Conversation": argument("assistant_only_loss") is False,
            "Completion": argument("completion_only_loss") is False,
        }
        return cls(
            everything,
            argument("assistant_only_loss") is True,
            frozenset(table for table, is_unmasked in unmasked.items() if is_unmasked),
            origin_rule(key),
        )

    def masking(self, method: str | None = None, max_length: int | None = None) -> Masking:
        """Return the masking of a method's rows."""
        from fmtkit.masks.masking import Masking

        return Masking(
            method,
            self.train_on_inputs,
            self.assistant_only,
            all_of=self.all_of,
            max_length=max_length,
            by_origin=self.by_origin,
        )

    def learns_all(self, table: str) -> bool:
        """Return whether every token of a table's rows is trained on."""
        return self.masking().learns_all(table)
