"""Columnar files with bytes changed, and what became of each: read in one child process after the other.

`python damaged_files.py FOLDER FROM TO` prints a JSON line for each mutant before and after it is
converted: where a process dies, the line that is missing tells by which.
"""

import csv
import io
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq

ROWS = 24
KINDS = (
    *("stream", "stream_zstd", "file", "file_lz4", "feather", "feather_lz4"),
    *("parquet_none", "parquet_snappy", "parquet_zstd"),
    *("lines_gzip", "lines_zstd", "csv"),
)
SUFFIXES = {"parquet": "parquet", "lines": "jsonl", "csv": "csv"}
LONG = (b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f\0\0\0\0", b"\0\0\0\x80\0\0\0\0", b"\x08\0\0\0")


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: a report, one line of an error, or neither."""

    number: int
    kind: str
    message: str


def table() -> pa.Table:
    """Return rows of most types that columns have."""
    numbers = range(ROWS)
    turns = [
        [{"role": "user", "content": f"question {i}"}, {"role": "assistant", "content": "é" * i}]
        for i in numbers
    ]
    columns = {
        "messages": pa.array(turns),
        "note": pa.array([None if i % 3 else f"text {i}" for i in numbers]),
        "large": pa.array(["x" * i for i in numbers], pa.large_string()),
        "view": pa.array([f"a text too long to stand inside of a view {i}" for i in numbers]),
        "word": pa.array(["a", "b"] * (ROWS // 2)).dictionary_encode(),
        "list": pa.array([[1.5, None]] * ROWS),
        "flag": pa.array([True, None] * (ROWS // 2)),
        "record": pa.array([{"a": i, "b": {"c": "z"}} for i in numbers]),
        "bytes": pa.array([b"\xff"] * ROWS),
    }
    return pa.table(columns)


def sound(kind: str) -> bytes:
    """Return a sound file of a kind."""
    out, rows = io.BytesIO(), table()
    layout, _, compression = kind.partition("_")
    if layout in ("lines", "csv"):
        lines = [{"messages": row["messages"], "note": row["note"]} for row in rows.to_pylist()]
        return _text(lines, compression)
    if layout == "parquet":
        pq.write_table(rows, out, compression=compression, row_group_size=ROWS // 2)
    elif layout == "feather":
        pyarrow.feather.write_feather(rows, out, compression=compression or "uncompressed")
    else:
        view = rows.schema.get_field_index("view")
        rows = rows.set_column(view, "view", rows.column(view).cast(pa.string_view()))
        make = pa.ipc.new_stream if layout == "stream" else pa.ipc.new_file
        options = pa.ipc.IpcWriteOptions(compression=compression or None)
        with make(out, rows.schema, options=options) as writer:
            # A file cannot replace a dictionary, as a second batch would.
            writer.write_table(rows, max_chunksize=ROWS // 2 if layout == "stream" else ROWS)
    return out.getvalue()


def _text(rows: list[dict[str, Any]], compression: str) -> bytes:
    if not compression:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(rows[0])
        writer.writerows([json.dumps(row["messages"]), row["note"]] for row in rows)
        return out.getvalue().encode()
    raw = pa.BufferOutputStream()
    with pa.CompressedOutputStream(raw, compression) as file:
        file.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    return raw.getvalue().to_pybytes()


def mutant(data: bytes, seed: int) -> bytes:
    """Flip, set, cut, leave out or put in bytes behind the first eight, which name the format."""
    draw, out = random.Random(seed), bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        place = draw.randrange(8, max(len(out), 9))
        change = draw.randrange(6)
        if change == 0 and place < len(out):
            out[place] ^= 1 << draw.randrange(8)
        elif change == 1 and place < len(out):
            out[place] = draw.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif change == 2:
            del out[place:]
        elif change == 3:
            del out[place : place + draw.randrange(1, 64)]
        elif change == 4:
            out[place:place] = draw.randbytes(draw.randrange(1, 64))
        else:
            out[place : place + 8] = draw.choice((*LONG, draw.randbytes(8)))
    return bytes(out)


def outcomes(folder: Path, first: int, last: int) -> Iterator[Outcome]:
    """Convert the mutants of all kinds in a child process; a death is an outcome, and another goes on.

    A mutant's number says its kind and its seed.
    """
    while first < last:
        done = subprocess.run(
            [sys.executable, __file__, str(folder), str(first), str(last)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        yield from (Outcome(*line[1:]) for line in lines if line[0] == "after")
        if done.returncode == 0:
            return
        begun = [line[1] for line in lines if line[0] == "before"]
        number = begun[-1] if begun else first
        yield Outcome(number, "died", f"{done.returncode}: {done.stderr[-300:]}")
        first = number + 1


def main(folder: Path, first: int, last: int) -> None:
    """Convert mutants one after another."""
    import fmtkit
    from fmtkit.core.errors import NothingWrittenError, SourceError

    files = {kind: sound(kind) for kind in KINDS}
    for number in range(first, last):
        seed, place = divmod(number, len(KINDS))
        kind = KINDS[place]
        path = folder / f"{kind}.{SUFFIXES.get(kind.partition('_')[0], 'arrow')}"
        path.write_bytes(mutant(files[kind], seed))
        print(json.dumps(["before", number]), flush=True)
        try:
            fmtkit.convert(path, "openai", keep="note,list,record")
            found = ["read", ""]
        except (SourceError, NothingWrittenError) as error:
            found = ["refused", str(error)]
        except fmtkit.FmtkitError as error:
            found = ["mismatch", str(error)]
        except BaseException as error:  # noqa: BLE001 - whatever comes out is the finding
            found = ["traceback", repr(error)]
        print(json.dumps(["after", number, *found]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
