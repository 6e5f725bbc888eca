"""Columns that nobody uses and no type holds: cut out of the rows, with no verdict changed by it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import convert

from fmtkit.sources.marks import faults_anywhere
from fmtkit.sources.skipping import without
from fmtkit.sources.strict import parse

MIXED = [
    1,
    "one",
    None,
    True,
    {"a": 1},
    {"a": "x"},
    [1, "x"],
    [],
    -0.5,
    "meta",
    {"meta": {"meta": 2}},
]
TOKENS = [
    "{", "}", "[", "]", ",", ":", '"meta"', '"meta":', '"a":', '"b"', '"b": ', "1", "1e400", "null", '"x,}"', " ", "\t",
    '"\\\\"', '"\\""', '"me', '\\u0061"', "NaN", '"meta":1,', ',"meta":[{}]', '"\\ud800"', "true", '"a":{"meta":1}',
]  # fmt: skip
SEGMENTS = [
    '"meta":1', '"meta": {"a": [1, "}"]}', ' "meta" : "x,"', '"a":2', '"b": {"meta": 1}', '"c":"\\"meta\\":"', "", " ", '"meta"', '"meta":',
]  # fmt: skip
ROWS = st.one_of(
    st.lists(st.sampled_from(TOKENS), max_size=9).map("".join),
    st.lists(st.sampled_from(SEGMENTS), max_size=5).map(",".join),
)


def dialogs(number: int) -> dict[str, object]:
    asked = {"role": "user", "content": f'Say {number}, "meta": please.'}
    chosen = [asked, {"role": "assistant", "content": f"{number}"}]
    return {
        "chosen": chosen,
        "rejected": [asked, {"role": "assistant", "content": f"not {number}"}],
    }


def lines_of(rows: list[bytes]) -> tuple[bytes, np.ndarray, np.ndarray]:
    ends = np.cumsum([len(row) + 1 for row in rows]) - 1
    return b"\n".join(rows) + b"\n", ends - [len(row) for row in rows], ends


def test_a_column_of_mixed_kinds_beside_messages_is_read_fast(tmp_path):
    rows = [
        {"id": i} | ({"meta": MIXED[i % len(MIXED)]} if i % 7 else {}) | dialogs(i)
        for i in range(400)
    ]
    mixed = convert(tmp_path, rows, "argilla_chat")
    assert mixed.report["tiers"]["fast_rows"] == len(rows)
    assert mixed.report["warnings"] == {"extra_columns": 1}
    plain = convert(tmp_path, [dialogs(i) for i in range(400)], "argilla_chat")
    assert mixed.rows == plain.rows


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (b'"meta": 1e400', "number_overflow"),
        (b'"meta": ["\\ud800"]', "invalid_unicode"),
        (b'"meta": {"a": 1,}', "json_syntax"),
        (b'"meta": ' + b"[" * 200 + b"]" * 200, "json_too_deep"),
        (b'"meta": "\x01"', "json_control_char"),
        (b'"meta": "\xff"', "invalid_utf8"),
        (b'"meta": NaN', None),
        (b'"meta": {"a": 1, "a": 2}', None),
        (b'"meta": 1, "meta": 2', None),
        (b'"meta": 123456789012345678901234567890', None),
        (b'"chosen": ' + json.dumps(dialogs(0)["chosen"]).encode(), "duplicate_key"),
        (b'"images": ["a.png"]', "unsupported"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_row_gets_the_same_verdict_beside_mixed_columns(tmp_path, member, code, first):
    sound = json.dumps(dialogs(0)).encode()[1:-1]
    bad = b"{" + (member + b"," + sound if first else sound + b"," + member) + b"}"
    rows = [{"meta": MIXED[i % len(MIXED)]} | dialogs(i) for i in range(300)]
    alone = convert(tmp_path, [bad], "argilla_chat")
    among = convert(tmp_path, [*rows, bad, *rows], "argilla_chat")
    expected = [] if code is None else [code]
    assert [bad["code"] for bad in alone.quarantine] == expected
    assert [(bad["code"], bad["row"]) for bad in among.quarantine] == [(c, 300) for c in expected]


@given(st.lists(ROWS, min_size=1, max_size=3))
@settings(max_examples=1500, deadline=None)
def test_what_is_left_is_a_row_if_and_only_if_the_whole_was_one(rows):
    """Members in the wrong place, commas too many or too few, odd quotes."""
    whole = [b"{" + row.encode() + b"}" for row in rows]
    text, starts, ends = lines_of(whole)
    left = without(text, starts, ends, ["meta"])
    if left is None:
        return
    assert len(left) == len(text)
    for before, start, end in zip(whole, starts, ends, strict=True):
        value, fault = parse(before)
        rest, refused = parse(left[start:end])
        assert (fault is None) == (refused is None)
        if fault is None:
            meta = value.pop("meta", None)
            rest.pop("meta", None)
            assert repr(rest) == repr(value)
            assert not faults_anywhere(meta, "meta")


@pytest.mark.parametrize(
    ("row", "left"),
    [
        (b'{"meta": 1, "a": 2}', b'{           "a": 2}'),
        (b'{"a": 2, "meta": {"x": [1, "}"]}}', b'{"a": 2                         }'),
        (b'{"meta": 1}', b"{         }"),
        (b'{"a": {"meta": 1}}', b'{"a": {"meta": 1}}'),
        (b'{"a": "\\"meta\\": 1,"}', b'{"a": "\\"meta\\": 1,"}'),
        (b'{"meta": 1, "meta": "x"}', b"{                      }"),
        (b'{"a": 2, "meta": 1, "meta": "x"}', b'{"a": 2                        }'),
        (b'{"meta": 1,}', None),
        (b'{,"meta": 1}', None),
        (b'{"meta" 1}', None),
        (b'{"meta": 1e999, "a": 2}', None),
        (b'{"a": "x, "meta": 1}', None),
    ],
)
def test_a_member_goes_with_one_comma(row, left):
    assert without(*lines_of([row]), ["meta"]) == (None if left is None else left + b"\n")
