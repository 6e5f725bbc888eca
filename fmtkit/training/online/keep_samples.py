"""The callback that keeps answers of a run, from what its trainer logs, for the table and the page."""

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fmtkit.training.online import samples_page
from fmtkit.training.online.samples import REWARD, ROWS, Row, SampleTable, following

_ANSWERED = frozenset({"reward", "objective/scores"})
"""Metrics that TRL's trainers log for answers: one for GRPO and RLOO, the other for online DPO."""


def rows_of(
    logs: Mapping[str, Any],
    group: int,
    *,
    weights: Sequence[float] | None = None,
    masks_cut: bool = False,
) -> Iterator[Row]:
    """Yield rows of the last generation that TRL's trainers keep: the first groups, each complete.

    Args:
        logs: A trainer's `_logs`. Its extra columns `tokens` (int), `cut` (bool) and `masked` (why an
            answer is not trained on, None where it is) become columns of that name, the others `extra/…`.
        group: Answers to a prompt.
        weights: Of the reward functions, for the column `reward`; 1 each if there are none.
        masks_cut: Answers that were cut off are not trained on.
    """
    count = min(max(1, ROWS // group) * group, len(logs["prompt"]))
    for index in range(count):
        rewards = {name: _number(values[index]) for name, values in logs["rewards"].items()}
        extra = {n: v[index] for n, v in logs.get("extra", {}).items() if index < len(v)}
        cut = masks_cut and bool(extra.get("cut"))
        yield {
            "prompt": _text(logs["prompt"][index]),
            "completion": _text(logs["completion"][index]),
            "reward": _total(list(rewards.values()), weights),
            **{f"{REWARD}{name}": value for name, value in rewards.items()},
            **({"advantage": _number(logs["advantages"][index])} if "advantages" in logs else {}),
            **{name: extra.pop(name) for name in ("tokens", "cut") if name in extra},
            "masked": _masked(extra, list(rewards.values()), cut=cut),
            **{f"extra/{name}": _text(value) for name, value in extra.items()},
        }


def _masked(extra: Row, rewards: Sequence[float | None], *, cut: bool) -> str | None:
    """Return why an answer is not trained on; None if it is."""
    reason = extra.pop("masked", None)
    if reason:
        return str(reason)
    if cut:
        return "cut off"
    return "no reward" if all(reward is None for reward in rewards) else None


def _total(rewards: Sequence[float | None], weights: Sequence[float] | None) -> float | None:
    pairs = zip(rewards, weights or [1.0] * len(rewards), strict=True)
    known = [reward * weight for reward, weight in pairs if reward is not None]
    return sum(known) if known else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


class _Keeper:
    """Adds rows whenever a trainer has logged new answers, and writes them periodically."""

    def __init__(self, table: SampleTable, trainer: Any) -> None:
        self.table = table
        self.trainer = trainer
        self._next_page = following(time.monotonic())
        self._is_announced = False

    def keep(self, step: int) -> None:
        trainer = self.trainer
        weights = getattr(trainer, "reward_weights", None)
        rows = rows_of(
            trainer._logs,
            trainer.num_generations,
            weights=None if weights is None else weights.tolist(),
            masks_cut=getattr(trainer, "mask_truncated_completions", False),
        )
        self.table.add(step, list(rows))
        if time.monotonic() > self._next_page:
            self.show()
            self._announce()

    def show(self) -> None:
        """Write the page."""
        begun, run = time.monotonic(), self.table.file.parent
        samples_page.write(run, self.table.rows, self.table.how)
        self._next_page = following(begun)

    def _announce(self) -> None:
        """Print once, during the run, where the page is."""
        if not self._is_announced:
            self._is_announced = True
            page = self.table.file.with_name(samples_page.PAGE)
            print(f"answers with their rewards: {page}", file=sys.stderr)  # noqa: T201


def keeper(table: SampleTable, trainer: Any) -> Any:
    """Return the callback, for a trainer that keeps `_logs`, as the GRPO and RLOO trainers of TRL do."""
    from transformers import TrainerCallback

    sample_keeper = _Keeper(table, trainer)

    class KeepSamples(TrainerCallback):
        """Watches the trainer; only rank 0 writes."""

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            del args, control
            values = logs or {}
            if (
                state.is_world_process_zero
                and "loss" in values
                and not _ANSWERED.isdisjoint(values)
            ):
                sample_keeper.keep(state.global_step)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            if state.is_world_process_zero and table.logs:
                table.write()
                sample_keeper.show()

        def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            # A run of fewer steps than the first log takes has answers too.
            if state.is_world_process_zero and not table.logs and len(trainer._logs["prompt"]):
                sample_keeper.keep(state.global_step)
            self.on_save(args, state, control)

    return KeepSamples()
