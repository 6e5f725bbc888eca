"""Columns that nobody uses and no type holds: no verdict is changed by them."""

import json

import pytest
from runs import convert

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


def conversations(number: int) -> dict[str, object]:
    asked = {"role": "user", "content": f'Say {number}, "meta": please.'}
    chosen = [asked, {"role": "assistant", "content": f"{number}"}]
    return {
        "chosen": chosen,
        "rejected": [asked, {"role": "assistant", "content": f"not {number}"}],
    }


def test_a_column_of_mixed_kinds_beside_messages_changes_nothing(tmp_path):
    rows = [
        {"id": i} | ({"meta": MIXED[i % len(MIXED)]} if i % 7 else {}) | conversations(i)
        for i in range(400)
    ]
    mixed = convert(tmp_path, rows, "argilla_chat")
    assert mixed.report["warnings"]["extra_columns"] == 1
    plain = convert(tmp_path, [conversations(i) for i in range(400)], "argilla_chat")
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
        (b'"chosen": ' + json.dumps(conversations(0)["chosen"]).encode(), "duplicate_key"),
        (b'"audio": ["a.wav"]', "unsupported"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_row_gets_the_same_verdict_beside_mixed_columns(tmp_path, member, code, first):
    sound = json.dumps(conversations(0)).encode()[1:-1]
    bad = b"{" + (member + b"," + sound if first else sound + b"," + member) + b"}"
    rows = [{"meta": MIXED[i % len(MIXED)]} | conversations(i) for i in range(300)]
    alone = convert(tmp_path, [bad], "argilla_chat")
    among = convert(tmp_path, [*rows, bad, *rows], "argilla_chat")
    expected = [] if code is None else [code]
    assert [bad["code"] for bad in alone.quarantine] == expected
    assert [(bad["code"], bad["row"]) for bad in among.quarantine] == [(c, 300) for c in expected]
