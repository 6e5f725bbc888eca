"""Any SOURCE argument -> sources, each of which gives blocks of rows in order."""

import hashlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from fmtkit.core.data_classes import dataclass
from fmtkit.core.errors import OptionError, SourceError, UnreadKeysWarning
from fmtkit.core.forks import refuse_lost_threads
from fmtkit.core.options import refuse_empty
from fmtkit.sources.blocks import MAX_LINE_BYTES
from fmtkit.sources.compression import head_of_text
from fmtkit.sources.delimited import checked_delimiter, sniffed
from fmtkit.sources.hub import SCHEME, DataFiles, Selection, is_dataset, load, reader_of
from fmtkit.sources.jsonl import BLANK, BOM
from fmtkit.sources.kinds import DELIMITERS, DS_TYPES, KIND_OF, Layout, layout_of
from fmtkit.sources.locations import locations, opened_file
from fmtkit.sources.memory import RowsReader, TableReader, reader_of_frame
from fmtkit.sources.picked import Picked, pick
from fmtkit.sources.raw import PEEK_BYTES, Location
from fmtkit.sources.readers import CsvReader, IpcReader, JsonReader, ParquetReader, Reader
from fmtkit.sources.source import Source
from fmtkit.sources.wrapped import wrapping_of

MEMORY = "<memory>"
"""Name of a source without a name."""


@dataclass(frozen=True)
class Reading:
    """How files are read: facts that the caller knows and the files do not reveal."""

    ds_type: str | None
    hashed: bool | int
    max_line_bytes: int
    delimiter: str | None = None

    def hashes(self, size: int | None) -> bool:
        """Return whether a source of this size is hashed."""
        if isinstance(self.hashed, bool):
            return self.hashed
        return size is None or size <= self.hashed


def open_sources(
    specs: object,
    *,
    split: str | None = None,
    name: str | None = None,
    data_files: DataFiles | None = None,
    ds_type: str | None = None,
    revision: str | None = None,
    hashed: bool | int = True,
    max_line_bytes: int = MAX_LINE_BYTES,
    delimiter: str | None = None,
) -> list[Source]:
    """Open one argument or a list of them, in the order given.

    An argument is a path, glob, folder, URL, `hf://` address or "-"; a table, frame, dataset or
    record batch reader; a file that is open; or dicts in a list or a generator.

    Args:
        specs: The argument, or a list of arguments.
        split: Of a dataset, or of a folder whose files are named for splits.
        name: Configuration of a hub dataset.
        data_files: Files within a folder or hub dataset, or the files of `json`, `csv`, ...
        ds_type: What files are, where their names do not say: json, csv, parquet, arrow.
        revision: Of a hub dataset.
        hashed: Hash the bytes while they are read, of sources up to so many bytes if it is a
            number; else `sha256()` reads them again.
        max_line_bytes: The longest record; longer ones become `line_too_long`.
        delimiter: What separates the cells of CSV files: one character, or tab.

    Raises:
        SourceError: An argument cannot be read.
        OptionError: A split or a `ds_type` is not known, or the delimiter is not a character.
        DependencyError: A package is missing that the argument needs.
        ForkedError: This process was forked from one that has read.
    """
    refuse_lost_threads()
    if ds_type is not None and ds_type not in DS_TYPES:
        raise OptionError(f"ds_type {ds_type!r} is not known; it is one of {', '.join(DS_TYPES)}")
    selection = Selection(split, name, data_files, revision)
    given = None if delimiter is None else checked_delimiter(delimiter)
    reading = Reading(ds_type, hashed, max_line_bytes, given)
    found = [_open(spec, selection, reading) for spec in _arguments(specs)]
    return [source for sources in found for source in sources]


def _arguments(specs: object) -> Sequence[object]:
    if not isinstance(specs, list | tuple):
        return [specs]
    rows = bool(specs) and all(isinstance(spec, Mapping) and not is_dataset(spec) for spec in specs)
    return [specs] if rows else specs


def _open(spec: object, selection: Selection, reading: Reading) -> list[Source]:
    if isinstance(spec, Picked):
        found = [_open(place, selection, reading) for place in spec.places]
        return pick([source for sources in found for source in sources], spec.choose)
    if isinstance(spec, str | Path):
        refuse_empty(spec, "SOURCE")
        opened = _open_address(str(spec), selection, reading)
        for source in opened if not selection.data_files else ():
            source.given = str(spec)
        return opened
    if is_dataset(spec):
        return [_of_table(reader_of(spec, MEMORY, selection.split), None)]
    if isinstance(spec, pl.DataFrame | pl.LazyFrame):
        return [_of_table(reader_of_frame(spec.lazy().collect()), None)]
    if isinstance(spec, pa.RecordBatchReader):
        return [_of_table(TableReader(spec.schema, partial(iter, spec)), None, once=True)]
    if hasattr(spec, "__arrow_c_stream__"):
        return [_of_stream(spec)]
    if callable(getattr(spec, "read", None)):
        return [_open_location(opened_file(spec), reading)]
    if isinstance(spec, Iterable) and not isinstance(spec, Mapping | bytes):
        rows = RowsReader(spec, hashlib.sha256())
        return [Source(MEMORY, "json", None, rows, once=isinstance(spec, Iterator))]
    raise SourceError(f"rows cannot be read from a {type(spec).__name__}; give a path or a table")


def _of_stream(spec: Any) -> Source:
    if isinstance(spec, pa.RecordBatch):
        spec = pa.Table.from_batches([spec])
    if isinstance(spec, pa.Table):
        # Not by the C interface, where a name ends at a NUL.
        return _of_table(TableReader(spec.schema, spec.to_reader), spec.nbytes)
    stream = pa.RecordBatchReader.from_stream
    return _of_table(TableReader(stream(spec).schema, partial(stream, spec)), None)


def _of_table(reader: TableReader, size: int | None, *, once: bool = False) -> Source:
    return Source(MEMORY, "arrow", size, reader, once=once)


def _open_address(address: str, selection: Selection, reading: Reading) -> list[Source]:
    if address.startswith(SCHEME):
        return [replace(_of_table(load(address, selection), None), name=address, given=address)]
    files = _named_files(selection)
    if not files:
        found = locations(address, selection.split)
    elif address in DS_TYPES:
        found = [place for file in files for place in locations(file, _of_files(selection))]
    else:
        found = [place for file in files for place in locations(f"{address.rstrip('/')}/{file}")]
    return [_open_location(place, reading) for place in found]


def _of_files(selection: Selection) -> str | None:
    """Return the split of the named files; None where the names themselves say the split."""
    return None if isinstance(selection.data_files, Mapping) else selection.split


def _named_files(selection: Selection) -> list[str]:
    files = selection.data_files
    if isinstance(files, Mapping):
        split = selection.split or "train"
        if split not in files:
            names = ", ".join(files)
            raise OptionError(f"data_files has the splits {names}; say which one with split")
        files = files[split]
    return [files] if isinstance(files, str) else list(files or ())


def _open_location(location: Location, reading: Reading) -> Source:
    """Read the first bytes of a location and open it by its format."""
    head = location.peek()
    text = head_of_text(head, PEEK_BYTES)
    layout = layout_of(location.name, text, ds_type=reading.ds_type)
    if layout in DELIMITERS and reading.delimiter is None:
        reading = replace(reading, delimiter=sniffed(text, DELIMITERS[layout]))
    if layout == "wrapped":
        _tell_beside(location.name, text)
    reader = _reader(location, head[:8], layout, reading)
    hashed = reading.hashes(location.size)
    return Source(
        location.name, KIND_OF[layout], location.size, reader, once=location.once, hashed=hashed
    )


def _tell_beside(name: str, text: bytes) -> None:
    """Warn of what an object has beside its list of rows."""
    start = text.removeprefix(BOM).lstrip(BLANK)
    found = wrapping_of(start, is_cut=len(text) >= PEEK_BYTES)
    if found is not None and found.beside:
        warnings.warn(
            f"{name}: its rows are the list {found.name!r} of its one object; not read beside it: "
            f"{', '.join(found.beside)}",
            UnreadKeysWarning,
            stacklevel=2,
        )


def _reader(location: Location, head: bytes, layout: Layout, reading: Reading) -> Reader:
    if layout == "parquet":
        return ParquetReader(location, head)
    if layout == "ipc":
        return IpcReader(location, head)
    hashed = reading.hashes(location.size)
    if layout in DELIMITERS:
        delimiter = reading.delimiter or DELIMITERS[layout]
        return CsvReader(location, head, delimiter, reading.max_line_bytes, hashed)
    return JsonReader(location, head, layout, reading.max_line_bytes, hashed)
