"""The formats of written files: those of fmtkit, and those that installed packages add.

A format is one declaration: its name, which is the suffix of its files, how a table becomes bytes (on
workers, in any order), and how those bytes become one file (on one thread, in input order). A package
adds one by an entry point in the group `fmtkit.outputs`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from fmtkit.core import plugins
from fmtkit.core.errors import OptionError, near_match
from fmtkit.writing.encoding import Encoded, encode_arrow, encode_json_lines, encode_parquet
from fmtkit.writing.stitching import ArrowStitcher, JsonLinesStitcher, ParquetStitcher, Stitcher

GROUP = "fmtkit.outputs"


@dataclass(frozen=True)
class Format:
    """How rows are written as files of one format.

    `encode(table, compression)` returns the rows of a table as bytes. It is called on several
    threads at once, is pure, and raises WriteError for a value that the format cannot hold. `stitcher`
    makes what lays those bytes one after the other, a new one for each file.
    """

    name: str
    """Also the suffix of its files, without the point."""
    encode: Callable[[pa.Table, str], Encoded]
    stitcher: Callable[[], Stitcher]
    compressions: tuple[str, ...] = ("none",)
    """The values of `--compression` that it takes, the default first."""


_SHIPPED = {
    made.name: made
    for made in (
        Format("parquet", encode_parquet, ParquetStitcher, ("snappy", "zstd", "lz4", "none")),
        Format("jsonl", encode_json_lines, JsonLinesStitcher),
        Format("arrow", encode_arrow, ArrowStitcher, ("none", "lz4", "zstd")),
    )
}


def names() -> tuple[str, ...]:
    """Return the formats that can be named: fmtkit's own, then those of installed packages."""
    return tuple(dict.fromkeys([*_SHIPPED, *plugins.installed(GROUP)]))


def find(name: str) -> Format:
    """Return a format.

    Raises OptionError for a name that is not there, or is there twice, and DependencyError where the
    package that has it cannot be used.
    """
    point = plugins.named(GROUP, "format", name, shipped=name in _SHIPPED)
    if point is not None:
        return plugins.constant(point, "format", "FORMAT", Format, "name")
    if name not in _SHIPPED:
        near = near_match(name, names())
        meant = f"did you mean {near!r}? " if near else ""
        raise OptionError(f"--format {name}: {meant}choose one of {', '.join(names())}")
    return _SHIPPED[name]


def compression_of(format: str, wanted: str | None = None) -> str:
    """Return `wanted`, or the format's own default.

    Raises:
        OptionError: if the format cannot be compressed that way.
    """
    known = find(format).compressions
    if wanted is None:
        return known[0]
    if wanted not in known:
        raise OptionError(f"--compression {wanted}: {format} takes {', '.join(known)}")
    return wanted


def encode(table: pa.Table, format: str, compression: str) -> Encoded:
    """Encode all rows; metadata of the schema is left out, that of the fields is kept.

    Raises:
        WriteError: if the format cannot hold a value (JSON has no NaN and no dates).
    """
    return find(format).encode(table.replace_schema_metadata(None).combine_chunks(), compression)
