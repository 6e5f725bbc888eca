import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmtkit.sources import guards
from fmtkit.sources.strict import MAX_DEPTH, depth

pieces = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\r",
        b" ",
        b"\t",
        b"{}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"x",
        b"\xe2\x80\xa8",
        b"\x0b",
    ]
)
texts = st.lists(pieces, max_size=30).map(b"".join)


def found(data: bytes) -> tuple[np.ndarray, guards.Lines]:
    array = np.frombuffer(data, np.uint8)
    return array, guards.find_lines(array)


def records(data: bytes) -> list[tuple[int, bytes]]:
    _, lines = found(data)
    spans = zip(lines.numbers.tolist(), lines.starts.tolist(), lines.ends.tolist(), strict=True)
    return [(number, data[start:end]) for number, start, end in spans]


@given(texts)
def test_records_are_the_lines_that_are_not_blank_without_their_line_ends(data):
    lines = data.split(b"\n")
    lines = lines[:-1] if lines[-1] == b"" else lines
    whole = [line.removesuffix(b"\r") for line in lines]
    expected = [(i, line) for i, line in enumerate(whole) if line.strip(b" \t\r")]
    assert records(data) == expected
    assert found(data)[1].blank == len(lines) - len(expected)


def test_a_line_separator_inside_a_string_ends_no_record():
    data = '{"a": "x\u2028y\x85z"}\n'.encode()
    assert records(data) == [(0, data[:-1])]


@given(st.binary(max_size=40))
def test_utf8_is_told_as_python_tells_it(data):
    try:
        data.decode()
        sound = True
    except UnicodeDecodeError:
        sound = False
    assert guards.is_utf8(pa.py_buffer(data)) is sound


@pytest.mark.parametrize(
    ("line", "sound"),
    [
        (b"{}", True),
        (b"[{}]", False),
        (b"null", False),
        (b"{} x", False),
        (b" {}", False),
        (b"}{", False),
    ],
)
def test_only_records_in_braces_go_to_the_fast_parser(line, sound):
    array, lines = found(b"{}\n" + line + b"\n{}\n")
    assert guards.look_like_objects(array, lines) is sound


@given(st.lists(st.integers(0, 2 * MAX_DEPTH), min_size=1, max_size=5), st.booleans())
def test_no_deep_record_passes_and_no_shallow_one_is_held_up(depths, in_text):
    rows = [b'{"a":' + b"[" * (d - 1) + b"]" * (d - 1) + b"}" if d else b'{"a":1}' for d in depths]
    if in_text:
        rows = [json.dumps({"a": row.decode()}).encode() for row in rows]
    array, lines = found(b"\n".join(rows))
    deepest = max(max(depth(row), 1) for row in rows)
    assert guards.is_shallow(array, lines) is (deepest <= MAX_DEPTH)


def test_brackets_of_formulas_are_no_depth():
    row = json.dumps({"a": '\\frac{a}{b}[1] \\"{' * 100}).encode()
    array, lines = found(b"\n".join([row] * 5))
    assert guards.is_shallow(array, lines)


def test_a_deep_record_behind_one_with_an_open_string_is_not_trusted():
    # The fast parser stops at the first; the second must not be called shallow and parsed alone.
    deep = b'{"a":' + b"[" * 150 + b"]" * 150 + b"}"
    array, lines = found(deep + b'\n{"a": "open}\n')
    assert not guards.is_shallow(array, lines)
