"""CSV and TSV: text cells, exact lines, and rows that do not fit."""

import csv
import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmtkit.core.errors import SourceError
from fmtkit.sources.blocks import RowsBlock
from fmtkit.sources.delimited import Table, sniffed
from fmtkit.sources.opening import open_sources
from fmtkit.sources.raw import Location

CELLS = st.text(st.sampled_from(list('ab,"\n\r;\té\u2028')), max_size=5)


def read(data: bytes, block_bytes: int = 1 << 20, limit: int = 1 << 20) -> list[RowsBlock]:
    raw = Location("x.csv", lambda: io.BytesIO(data)).bytes()
    return list(Table(raw, "x.csv", ",", limit).blocks(raw, block_bytes))


@given(
    st.lists(st.tuples(CELLS, CELLS.map(lambda cell: cell + "!")), max_size=8), st.integers(1, 30)
)
def test_rows_are_those_of_the_csv_module(rows: list[tuple[str, str]], block_bytes: int) -> None:
    sink = io.StringIO(newline="")
    csv.writer(sink, quoting=csv.QUOTE_ALL).writerows([("one", "two"), *rows])
    text = sink.getvalue()
    blocks = read(text.encode(), block_bytes)
    found = [row for block in blocks for row in block.rows]
    assert found == [{"one": one or None, "two": two} for one, two in rows]
    first = [2]
    for one, two in rows:
        first.append(first[-1] + 1 + (one + two).count("\n"))
    assert [line for block in blocks for line in block.lines] == first[:-1]
    assert not any(block.rejects or block.blank_lines for block in blocks)


def test_rows_that_do_not_fit_are_rejects_with_their_text_and_line() -> None:
    data = b'\xef\xbb\xbfa,b\r\n1,2\r\n\r\n"x\ny",\r\n1\r\n1,2,3\n\xff,2\n"q"z,1\nn\0,1\n5,6\n'
    (block,) = read(data)
    assert block.rows == [{"a": "1", "b": "2"}, {"a": "x\ny", "b": None}, {"a": "5", "b": "6"}]
    assert block.lines == [2, 4, 11]
    assert block.blank_lines == 1
    assert [(r.row, r.line, r.code, r.raw) for r in block.rejects] == [
        (2, 6, "value_error", b"1"),
        (3, 7, "value_error", b"1,2,3"),
        (4, 8, "invalid_utf8", b"\xff,2"),
        (5, 9, "value_error", b'"q"z,1'),
        (6, 10, "value_error", b"n\0,1"),
    ]


def test_a_quote_that_is_never_closed_is_a_reject_with_all_it_swallowed() -> None:
    (block,) = read(b'a,b\n1,2\n"open,3\n4,5\n')
    assert block.rows == [{"a": "1", "b": "2"}]
    (reject,) = block.rejects
    assert (reject.line, reject.raw) == (3, b'"open,3\n4,5')


def test_a_long_answer_is_read() -> None:
    (block,) = read(b'a,b\n"' + b"x" * 500_000 + b'",2\n')
    assert len(block.rows[0]["a"] or "") == 500_000


@pytest.mark.parametrize("row", [b"x" * 2000 + b",1\n", b'"' + b"x\n" * 1000 + b'",1\n'])
def test_a_row_beyond_the_limit_is_a_reject_and_the_next_is_read(row: bytes) -> None:
    found = read(b"a,b\n" + row + b"1,2\n", limit=1000)
    (reject,) = [reject for block in found for reject in block.rejects]
    assert (reject.line, reject.code) == (2, "line_too_long")
    assert (reject.raw_bytes or len(reject.raw)) == len(row) - 1
    assert [row for block in found for row in block.rows] == [{"a": "1", "b": "2"}]


def test_a_column_of_one_may_hold_blanks_but_no_empty_line() -> None:
    (block,) = read(b"a\n \n\nx\n")
    assert [row["a"] for row in block.rows] == [" ", "x"]
    assert block.blank_lines == 1


def test_the_schema_is_the_header_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("one\ttwo\n1\t2\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b'"one","t,wo"\n1,2\n'))
    tsv, packed = open_sources([tmp_path / "a.tsv", tmp_path / "b.csv.gz"])
    assert tsv.kind == packed.kind == "csv"
    assert tsv.schema == pa.schema([("one", pa.string()), ("two", pa.string())])
    assert packed.schema is not None
    assert packed.schema.names == ["one", "t,wo"]
    (block,) = packed.blocks()
    assert isinstance(block, RowsBlock)
    assert block.rows == [{"one": "1", "t,wo": "2"}]


def test_an_empty_csv_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"")
    assert list(open_sources(tmp_path / "a.csv")[0].blocks()) == []


@pytest.mark.parametrize(
    ("header", "reason"), [(b"a,b,a\n", "'a' twice"), (b"a,\xff\n", "not UTF-8")]
)
def test_a_header_that_cannot_name_columns_is_an_error(header: bytes, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        read(header + b"1,2,3\n")


def test_cells_of_several_lines_do_not_hide_what_separates_them() -> None:
    text = b'question;answer\r\n"a, b";"x\r\n#### 7"\r\n"c";"y\r\n#### 8"\r\n'
    assert sniffed(text, ",") == ";"


def test_one_column_of_texts_with_commas_that_nobody_quoted_is_one_column() -> None:
    assert sniffed(b"text\nHello, world\nNo comma\n", ",") not in ("", ",")
    assert sniffed(b"a,b\n1,2\n3,4,5\n", ",") == ","
    assert sniffed(b"text\nplain\n", ",") == ","
