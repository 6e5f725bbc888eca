"""Elements of JSON arrays, one per line: compared with Python's parser, whole and damaged."""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fmtkit.core.codes import RAW_BYTES, Reject
from fmtkit.sources.blocks import BLOCK_BYTES, MAX_LINE_BYTES, JsonBlock
from fmtkit.sources.json_array import Cutting, blocks_of_elements
from fmtkit.sources.opening import open_sources
from fmtkit.sources.raw import Location

TEXT = st.text(st.sampled_from(list('"\\{}[],:\n\r\t aé\u2028😀')), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
STYLES: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"indent": 0},
    {"indent": "\t", "ensure_ascii": False},
]


def cut(
    data: bytes, block_bytes: int = BLOCK_BYTES, limit: int = MAX_LINE_BYTES, *, array: bool = True
) -> list[JsonBlock]:
    raw = Location("x", lambda: io.BytesIO(data)).bytes()
    return list(blocks_of_elements(raw, raw, Cutting(array, block_bytes, limit)))


def records(blocks: list[JsonBlock]) -> list[tuple[int, bytes | Reject]]:
    """Records and rejects in the order of their rows, each with its line."""
    out: list[tuple[int, bytes | Reject]] = []
    for block in blocks:
        *lines, last = block.data.split(b"\n")
        assert not last
        places = [] if block.lines is None else block.lines.tolist()
        assert len(places) == len(lines)
        rejected = [reject.row for reject in block.rejects]
        rows = np.delete(np.arange(len(lines) + len(rejected)), rejected).tolist()
        found: dict[int, tuple[int, bytes | Reject]] = {
            row: (line, text) for row, line, text in zip(rows, places, lines, strict=True)
        }
        found.update({reject.row: (reject.line or 0, reject) for reject in block.rejects})
        assert sorted(found) == list(range(len(found)))
        out.extend(found[row] for row in sorted(found))
    return out


def texts(blocks: list[JsonBlock]) -> list[bytes]:
    return [text for _, text in records(blocks) if isinstance(text, bytes)]


def codes(blocks: list[JsonBlock]) -> list[str]:
    return [text.code if isinstance(text, Reject) else "" for _, text in records(blocks)]


def physical_lines(text: str) -> list[int]:
    """The line on which each element of an array begins, by Python's parser."""
    decoder, at, lines = json.JSONDecoder(), text.index("[") + 1, []
    while (at := re.compile(r"[ \t\r\n,]*").match(text, at).end()) < text.rindex("]"):  # type: ignore[union-attr]
        lines.append(text.count("\n", 0, at) + 1)
        at = decoder.raw_decode(text, at)[1]
    return lines


@settings(max_examples=100)
@given(st.lists(VALUES, max_size=6), st.sampled_from(STYLES), st.integers(1, 60))
@example([{"a": '"\\"'}, {}, [], ""], {}, 1)
def test_elements_are_those_of_pythons_parser(
    rows: list[Any], style: dict[str, Any], block_bytes: int
) -> None:
    text = json.dumps(rows, **style)
    blocks = cut(text.encode(), block_bytes)
    assert [json.loads(line) for line in texts(blocks)] == rows
    assert [line for line, _ in records(blocks)] == physical_lines(text)
    assert not any(block.rejects for block in blocks)


@settings(max_examples=100)
@given(
    st.lists(st.dictionaries(TEXT, VALUES, max_size=3), min_size=1, max_size=5),
    st.sampled_from(STYLES),
    st.sampled_from(["", " ", "\n", "\r\n\n"]),
    st.integers(1, 60),
)
def test_objects_spread_over_lines_are_those_of_pythons_parser(
    rows: list[Any], style: dict[str, Any], between: str, block_bytes: int
) -> None:
    text = between.join(json.dumps(row, **style) for row in rows)
    blocks = cut(text.encode(), block_bytes, array=False)
    assert [json.loads(line) for line in texts(blocks)] == rows
    assert not any(block.rejects for block in blocks)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(STYLES),
    st.lists(
        st.tuples(
            st.floats(0, 1), st.sampled_from([b"", b'"', b"{", b"]", b"}", b"\n", b",", b"\\"])
        ),
        max_size=5,
    ),
    st.integers(1, 400),
    st.sampled_from([40, 1 << 20]),
)
def test_no_element_of_a_damaged_array_is_lost(
    style: dict[str, Any], faults: list[tuple[float, bytes]], block_bytes: int, limit: int
) -> None:
    rows = [{"id": f"<{n}>", "text": 'a "b", {c}', "list": [{"d": 1}]} for n in range(8)]
    data = json.dumps(rows, **style).encode()
    for place, piece in faults:
        at = int(place * len(data))
        data = data[:at] + piece + data[at + (not piece) :]
    whole = [text if isinstance(text, bytes) else text.raw for _, text in records(cut(data))]
    found = [
        text if isinstance(text, bytes) else text.raw
        for _, text in records(cut(data, block_bytes, limit))
    ]
    for marks in (re.findall(rb"<\d>", b" ".join(whole)), re.findall(rb"<\d>", b" ".join(found))):
        assert len(marks) == len(set(marks))
    assert sorted(re.findall(rb"<\d>", b" ".join(whole))) == sorted(re.findall(rb"<\d>", data))


def test_numbers_are_handed_on_as_they_are_written() -> None:
    assert texts(cut(b"[1.0, 1e5 ,-0, " + b"9" * 5000 + b"]"))[:3] == [b"1.0", b"1e5", b"-0"]


def test_an_empty_array_has_no_rows() -> None:
    assert records(cut(b" [ \n ] \n")) == []


def test_a_raw_line_feed_in_a_string_is_a_reject_with_its_bytes() -> None:
    data = b'[{"a": "x"},\n {"a": "y\nz",\n  "b": 1}, {"a": 3}]'
    (one, two, three) = records(cut(data))
    assert one == (1, b'{"a": "x"}')
    assert isinstance(two[1], Reject)
    assert (two[0], two[1].code) == (2, "json_control_char")
    assert two[1].raw == b'{"a": "y\nz",\n  "b": 1}'
    assert three == (4, b'{"a": 3}')


@pytest.mark.parametrize("block_bytes", [8, 32, BLOCK_BYTES])
@pytest.mark.parametrize(
    "bad",
    [b'{"a": "x}', b'{"a": x"}', b'{"a": [1, 2}', b'{"a": {"b": 1}', b'{"a": 1}}', b'{"a": "x\n"}'],
)
def test_a_damaged_element_on_lines_of_its_own_costs_no_other(bad: bytes, block_bytes: int) -> None:
    data = b'[\n  {"n": 0},\n  {\n    "n": 1\n  },\n  ' + bad + b',\n  {"n": 2},\n  {"n": 3}\n]'
    found = records(cut(data, block_bytes))
    rows = [json.loads(text)["n"] for _, text in found if isinstance(text, bytes) and b"n" in text]
    assert rows == [0, 1, 2, 3]
    lost = [(line, item) for line, item in found if not isinstance(item, bytes) or b"n" not in item]
    assert [line for line, _ in lost][:1] == [6]
    assert b"".join(i if isinstance(i, bytes) else i.raw for _, i in lost).startswith(bad[:7])


def test_nested_objects_at_the_start_of_a_line_are_no_elements() -> None:
    rows = [{"m": [{"a": 1}, {"b": 2}]}, {"m": [{"c": 3}]}]
    data = json.dumps(rows, indent=0).encode()
    assert [json.loads(text) for text in texts(cut(data))] == rows
    # A line feed in a string makes an element suspicious, its neighbours none the less whole.
    broken = data.replace(b'"a"', b'"a\n"')
    assert codes(cut(broken)) == ["json_control_char", ""]
    assert json.loads(texts(cut(broken))[-1]) == rows[1]
    # Without a way to tell where an element begins nothing is made a row that is none.
    assert codes(cut(data.replace(b'"b"', b'"b'))) == ["json_syntax"]
    for _, text in records(cut(data.replace(b'"c"', b'"c'))):
        assert isinstance(text, Reject) or json.loads(text) == rows[0]


def test_the_rest_of_an_array_on_one_line_is_one_reject() -> None:
    data = b'[{"a": 1}, {"a": 2}, {"a": [3}, {"a": 4}, {"a": 5}]'
    found = records(cut(data))
    assert [item for _, item in found[:2]] == [b'{"a": 1}', b'{"a": 2}']
    (reject,) = [item for _, item in found if isinstance(item, Reject)]
    assert reject.code == "json_syntax"
    assert reject.raw == b'{"a": [3}, {"a": 4}, {"a": 5}]'


def test_an_unclosed_array_is_told() -> None:
    (row, missing) = records(cut(b'[{"a": 1}, '))
    assert row == (1, b'{"a": 1}')
    assert isinstance(missing[1], Reject)
    assert "no closing bracket" in missing[1].message
    (row, partial) = records(cut(b'[{"a": 1}, {"a": "tex'))
    assert isinstance(partial[1], Reject)
    assert partial[1].raw == b'{"a": "tex'


@pytest.mark.parametrize("block_bytes", [8, 32, BLOCK_BYTES])
@pytest.mark.parametrize("end", [b"", b"\n", b",", b",\n"])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_an_array_that_is_cut_after_an_element_is_told(rows, end, block_bytes) -> None:
    whole = [b'{"a": %d}' % number for number in range(rows)]
    found = [item for _, item in records(cut(b"[" + b",\n".join(whole) + end, block_bytes))]
    assert found[:-1] == whole
    assert isinstance(found[-1], Reject)
    assert "no closing bracket" in found[-1].message


def test_commas_without_elements_are_rejects() -> None:
    assert codes(cut(b'[{"a": 1},]')) == ["", "json_syntax"]
    assert codes(cut(b'[{"a": 1},,{"a": 2}]')) == ["", "json_syntax", ""]


def test_text_after_the_array_is_a_reject() -> None:
    assert texts(cut(b'[{"a": 1}]\n\n')) == [b'{"a": 1}']
    (_, after) = records(cut(b'[{"a": 1}]\n\n[{"b": 2}]'))
    assert after[0] == 3
    assert isinstance(after[1], Reject)
    assert after[1].raw == b'[{"b": 2}]'


def test_an_element_of_20_mb_is_a_reject_and_the_next_is_read() -> None:
    long = b'{"a": "' + b'x\\"' * (1 << 20) + b"y" * (18 << 20) + b'"}'
    for data in (b'[{"n": 0},\n' + long + b',\n{"n": 1}]', b"[" + long + b"]"):
        found = records(cut(data))
        (line, reject) = next(item for item in found if isinstance(item[1], Reject))
        assert isinstance(reject, Reject)
        assert reject.code == "line_too_long"
        assert reject.raw == long[:RAW_BYTES]
        assert reject.raw_bytes == len(long)
        assert line == 1 + data[: data.index(long)].count(b"\n")
        assert [text for _, text in found if text is not reject] == re.findall(rb'{"n": \d}', data)


def test_blanks_of_any_length_between_elements_cost_little() -> None:
    blanks = b" \n" * (4 << 20)
    found = records(cut(b"[" + blanks + b'{"a": 1}' + blanks + b"," + blanks + b'{"a": 2}]'))
    assert [item for _, item in found] == [b'{"a": 1}', b'{"a": 2}']
    assert found[1][0] == 1 + 3 * (4 << 20)


def test_countless_rejects_do_not_gather_in_one_block() -> None:
    for data in (b"[" + b"," * 270_000 + b"]", b"[\n" + b"{\n" * 70_000):
        blocks = cut(data)
        assert max(len(block.rejects) for block in blocks) <= 1 << 18
        assert sum(len(block.rejects) for block in blocks) in (270_001, 70_000)
        assert len(blocks) > 1


def test_deep_nesting_is_handed_on_and_never_crashes() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert texts(cut(b"[" + deep + b', {"a": 1}]')) == [deep, b'{"a": 1}']
    assert codes(cut(b"[" + b"[" * 100_000)) == ["json_too_deep"]


def test_crlf_arrays_have_right_lines() -> None:
    data = b'[\r\n{"a": 1},\r\n{"a":\r\n 2}\r\n]\r\n'
    assert records(cut(data)) == [(2, b'{"a": 1}'), (3, b'{"a":   2}')]


@pytest.mark.parametrize(
    ("name", "text", "rows"),
    [
        ("array.json", b' \n[{"a": 1}, {"a": 2}]', 2),
        ("array.jsonl", b'\xef\xbb\xbf[{"a": 1}]', 1),
        ("lines.json", b'{"a": 1}\n{"a": 2}\n', 2),
        ("one_object.json", b'{\n  "a": [\n    1\n  ]\n}\n', 1),
        ("objects.json", b'{\n  "a": 1\n}\n{\n  "a": 2\n}\n', 2),
        ("first_line_cut.jsonl", b'{"a": "tex\n{"a": 2}\n', 2),
        ("first_line_open.jsonl", b'{"a": 1,\n{"a": 2}\n', 2),
    ],
)
def test_the_layout_of_json_is_told_by_its_content(
    tmp_path: Path, name: str, text: bytes, rows: int
) -> None:
    (tmp_path / name).write_bytes(text)
    (source,) = open_sources(tmp_path / name)
    (block,) = source.blocks()
    assert isinstance(block, JsonBlock)
    assert source.kind == "json"
    assert len(block.data.strip(b"\n").split(b"\n")) == rows
    assert source.first_block() is not None


def test_resuming_an_array_gives_the_blocks_from_an_index_on(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"a": "x" * 1000}] * 20_000, indent=1))
    (source,) = open_sources(tmp_path / "a.json")
    blocks = list(source.blocks())
    assert len(blocks) > 1
    assert [b.data for b in source.blocks(start=1)] == [b.data for b in blocks[1:]]
    assert sum(b.data.count(b"\n") for b in blocks) == 20_000
