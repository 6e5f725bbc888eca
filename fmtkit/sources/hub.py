"""Datasets of the Hugging Face hub and of the `datasets` library, which is loaded only here."""

import re
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from fmtkit.core import hub_access
from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import DependencyError, OptionError, SourceError
from fmtkit.core.storage import refuse_credentials
from fmtkit.sources.columnar import PARQUET_BATCH_ROWS
from fmtkit.sources.memory import TableReader

if TYPE_CHECKING:
    import datasets

SCHEME = "hf://datasets/"
ADDRESS = re.compile(r"(?P<name>[^/@]+(?:/[^/@]+)?)(?:@(?P<revision>[^/]+))?(?:/(?P<path>.+))?")

DataFiles = str | list[str] | Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Selection:
    """Which part of a dataset is wanted, as in `load_dataset`."""

    split: str | None = None
    name: str | None = None
    data_files: DataFiles | None = None
    revision: str | None = None


def load(address: str, selection: Selection) -> TableReader:
    """Load `hf://datasets/ORG/NAME[@REVISION][/PATH]` through `datasets` and its cache."""
    refuse_credentials(address)
    found = ADDRESS.fullmatch(address.removeprefix(SCHEME))
    if found is None:
        raise SourceError(f"{address} is not a dataset address; write {SCHEME}ORG/NAME")
    try:
        import datasets
    except ImportError as error:
        message = "reading from the hub needs the package datasets: pip install 'fmtkit[hub]'"
        raise DependencyError(message) from error
    trouble: str | None = None
    try:
        with hub_access.bounded() as trouble:
            dataset = datasets.load_dataset(
                found["name"],
                name=selection.name,
                data_files=found["path"] or selection.data_files,
                revision=selection.revision or unquote(found["revision"] or "") or None,
                split=selection.split,
            )
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        if trouble:
            reason = f"the hub cannot be reached ({trouble}), and it is not in the cache here"
        raise SourceError(f"{address} cannot be loaded: {reason}") from error
    return reader_of(dataset, address, selection.split)


def is_dataset(value: object) -> bool:
    """Return whether a value is a dataset or a dict of them, without loading the library."""
    library = sys.modules.get("datasets")
    return library is not None and isinstance(
        value, library.Dataset | library.IterableDataset | library.DatasetDict
    )


def reader_of(dataset: Any, name: str, split: str | None) -> TableReader:
    """Read a dataset, or the wanted split of several (train, or the only one, by default)."""
    if isinstance(dataset, dict):
        dataset = dataset[_split_of(list(dataset), name, split)]
    arrow: datasets.Dataset = dataset.with_format("arrow")
    return TableReader(_schema_of(dataset, arrow), partial(_batches_of, arrow))


def _batches_of(arrow: Any) -> Iterator[pa.RecordBatch]:
    for table in arrow.iter(batch_size=PARQUET_BATCH_ROWS):
        yield from table.to_batches()


def _split_of(splits: list[str], name: str, split: str | None) -> str:
    wanted = split or ("train" if "train" in splits else None)
    if wanted is None and len(splits) == 1:
        return splits[0]
    if wanted in splits:
        return wanted
    raise OptionError(f"{name} has the splits {', '.join(splits)}; say which one with split")


def _schema_of(dataset: Any, arrow: Any) -> pa.Schema:
    if dataset.features is not None:
        return dataset.features.arrow_schema
    first = next(iter(arrow.iter(batch_size=1)), None)
    return pa.schema([]) if first is None else first.schema
