"""What a file is, told by its first bytes and only then by its name."""

import re
from pathlib import PurePosixPath
from typing import Literal

from fmtkit.errors import SourceError

Kind = Literal["json", "arrow", "csv"]
Layout = Literal["lines", "array", "objects", "csv", "tsv", "parquet", "ipc"]
"""How the rows lie: `objects` are JSON objects spread over lines, one after the other."""

KIND_OF: dict[Layout, Kind] = {
    "lines": "json",
    "array": "json",
    "objects": "json",
    "csv": "csv",
    "tsv": "csv",
    "parquet": "arrow",
    "ipc": "arrow",
}

SUFFIXES: dict[str, Layout] = {
    ".jsonl": "lines",
    ".ndjson": "lines",
    ".jsonlines": "lines",
    ".json": "lines",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
}
COMPRESSED_SUFFIXES = (".gz", ".zst")

COLUMNAR_MAGIC: dict[bytes, Layout] = {
    b"PAR1": "parquet",
    b"ARROW1": "ipc",
    b"\xff\xff\xff\xff": "ipc",
}

FOREIGN_MAGIC: dict[bytes, str] = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"BZh": "compressed with bzip2; decompress it, or compress it with gzip or zstd",
    b"\xfd7zXZ\x00": "compressed with xz; decompress it, or compress it with gzip or zstd",
    b"\x04\x22\x4d\x18": "compressed with lz4; decompress it, or compress it with gzip or zstd",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    b"Obj\x01": "an Avro file; convert it to Parquet or JSONL",
    b"ORC": "an ORC file; convert it to Parquet or JSONL",
    b"FEA1": "a Feather file of version 1; write it again as Arrow or Parquet",
    b"SQLite format 3": "an SQLite database; export its table as CSV or JSONL",
    b"\x89HDF": "an HDF5 file; convert it to Parquet or JSONL",
    b"\x80\x04\x95": "a Python pickle, which could run code; write it as Parquet or JSONL",
    b"%PDF": "a PDF document",
    b"version https://git-lfs": "only a pointer to the data (Git LFS); run `git lfs pull`",
    b"\xff\xfe\x00\x00": "UTF-32 text; convert it: iconv -f UTF-32 -t UTF-8 IN > OUT",
    b"\xff\xfe": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
    b"\xfe\xff": "UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8 IN > OUT",
}

UTF16_WITHOUT_MARK = re.compile(rb"\s?\x00?[\[{]\x00|\x00[\[{]")
BLANK = b" \t\r\n"


def data_suffix(name: str) -> str:
    """Return the suffix that names the kind: ".json" of `a.b.json.gz`."""
    path = PurePosixPath(name.lower())
    return path.with_suffix("").suffix if path.suffix in COMPRESSED_SUFFIXES else path.suffix


def layout_of(name: str, head: bytes, *, text: bool = False) -> Layout:
    """Tell how the rows of a (decompressed) source lie; raise SourceError where it is no data.

    Args:
        name: Path or URL, for its suffix and for the error.
        head: The beginning of the text, up to a megabyte.
        text: The source has no name that could tell (stdin): take it for JSON.
    """
    for magic, layout in COLUMNAR_MAGIC.items():
        if head.startswith(magic):
            return layout
    for magic, reason in FOREIGN_MAGIC.items():
        if head.startswith(magic):
            raise SourceError(f"{name} is {reason}")
    if UTF16_WITHOUT_MARK.match(head):
        raise SourceError(f"{name} is {FOREIGN_MAGIC[bytes([0xFE, 0xFF])]}")
    return _text_layout(name, head, text=text)


def _text_layout(name: str, head: bytes, *, text: bool) -> Layout:
    named = SUFFIXES.get(data_suffix(name))
    if named in ("csv", "tsv"):
        return named
    if named in ("parquet", "ipc"):
        what = "empty" if not head else "damaged, or another kind of file"
        raise SourceError(f"{name} is {what}: it does not begin as a {data_suffix(name)} file does")
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip(BLANK)
    if start.startswith(b"["):
        return "array"
    if named is None and not text and not start.startswith(b"{"):
        raise SourceError(f"{name} is no kind of data that is read here: {', '.join(SUFFIXES)}")
    return "lines"
