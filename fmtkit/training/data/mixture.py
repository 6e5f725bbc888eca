"""How many rows of each dataset are trained on: weights of one alone, and shares of all together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fmtkit.training.planning.job import Source


def weight_of(entry: Mapping[str, object], files: Sequence[str]) -> float:
    """Return how often each row of a dataset is used, by the keys of its own entry."""
    return _number(entry.get("weight")) * _number(entry.get("fraction")) * _share(entry, files)


def in_shares(
    sources: Sequence[tuple[Source, Source | None]], shares: Sequence[object], held_out: object
) -> list[tuple[Source, Source | None]]:
    """Return what to train and to evaluate on with the weights of which each is its share of the mixture.

    The mixture is as large as it can be without a row that is used twice, as in TRL, which splits it
    afterwards: `held_out` is a share of it, or a number of rows.
    """
    given = [float(one) for one in shares if isinstance(one, (int, float))]
    if len(given) != len(sources) or sum(given) <= 0:
        return list(sources)
    counts = [(_rows(train.files), _held(other)) for train, other in sources]
    wanted = [share / sum(given) for share in given]
    total = min(sum(rows) / share for rows, share in zip(counts, wanted, strict=True) if share > 0)
    is_number = isinstance(held_out, (int, float)) and held_out >= 1
    out: list[tuple[Source, Source | None]] = []
    for (train, other), (count, held), share in zip(sources, counts, wanted, strict=True):
        size = round(share * total)
        drawn = min(held, size) if is_number else round(held * size / max(count + held, 1))
        kept = None if other is None else replace(other, weight=drawn / max(held, 1))
        out.append((replace(train, weight=max(size - drawn, 0) / max(count, 1)), kept))
    return out


def _held(other: Source | None) -> int:
    return 0 if other is None else _rows(other.files)


def _share(entry: Mapping[str, object], files: Sequence[str]) -> float:
    """Return which share of the rows `max_samples` is; the trainer's seed chooses them."""
    most = entry.get("max_samples")
    return min(most / max(_rows(files), 1), 1.0) if isinstance(most, int) else 1.0


def _rows(files: Sequence[str]) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(file).num_rows for file in files)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 1.0
