"""Rows that are prepared when a step draws them: for runs whose steps draw only a part of the rows.

TRL's trainers render and tokenize every row before the first step: minutes, and ten times the size of the
source on disk, for a run of two steps. Here the same method of the same trainer prepares the rows of a batch
when the sampler asks for them. The sampler sees the same number of rows, so it draws the same ones.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.planning.types import PREPARE


def preparing_on_demand(
    trainer_class: Any, rows: Any, tokenize: Callable[[Any], Any] | None = None
) -> Any:
    """Return a trainer's class that prepares these rows on demand, and all others as before.

    `tokenize` is what is done to them before.
    """
    prepare = getattr(trainer_class, PREPARE)

    def method(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        if dataset is not rows:
            return prepare(self, dataset, *args, **kwargs)

        def prepared(part: Any) -> Any:
            part = part if tokenize is None else tokenize(part)
            return prepare(self, part, *args, **kwargs)

        return RowsOnDemand(dataset, prepared)

    return type(trainer_class.__name__, (trainer_class,), {PREPARE: method})


class RowsOnDemand:
    """A map-style dataset for torch: as many rows as given, each prepared when it is read."""

    def __init__(self, rows: Any, prepare: Callable[[Any], Any]) -> None:
        """Take the rows, and what prepares a part of them."""
        self.rows, self.prepare = rows, prepare

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Return the rows of a batch, as torch's loader asks for them.

        Raises TrainingError where the trainer leaves a row out: it would then have drawn among fewer rows.
        """
        from datasets import Dataset

        chosen = list(indices)
        # In memory: maps of rows on disk would write a file for every batch.
        part = Dataset.from_dict(self.rows[chosen], features=self.rows.features)
        prepared = list(self.prepare(part))
        if len(prepared) != len(chosen):
            raise TrainingError(
                f"{len(chosen) - len(prepared)} of rows {chosen} has no token to train on, so that the "
                "trainer leaves it out; filter such rows, or leave out max_steps"
            )
        return prepared
