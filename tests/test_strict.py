import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmtkit.sources.canonical_json import canonical
from fmtkit.sources.marks import faults
from fmtkit.sources.strict import MAX_DEPTH, depth, parse

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"a": "\xff"}', "invalid_utf8"),
        (b'{"a": 1', "json_syntax"),
        (b"{'a': 1}", "json_syntax"),
        (b'{"a": 1} {"b": 2}', "json_syntax"),
        (b'{"a": 01}', "json_syntax"),
        (b'{"a": "x\x01"}', "json_control_char"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "json_too_deep"),
    ],
)
def test_a_line_that_no_type_can_use_has_a_code(line, code):
    value, fault = parse(line)
    assert value is None
    assert fault is not None
    assert fault.code == code


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"k": 1, "k": 2}', "duplicate_key"),
        ('[{"deep": {"k": 1, "k": 1}}]', "duplicate_key"),
        ("NaN", "json_nonfinite"),
        ("[1, -Infinity]", "json_nonfinite"),
        ("Inf", "json_nonfinite"),
        ("1e400", "number_overflow"),
        ("9223372036854775808", "number_overflow"),
        ("9" * 5000, "number_overflow"),
        ('"\\ud800"', "invalid_unicode"),
        ('{"\\udfff": 1}', "invalid_unicode"),
    ],
)
def test_a_value_that_cannot_be_used_is_marked_and_its_line_still_parses(text, code):
    value, fault = parse(b'{"a": ' + text.encode() + b', "b": "x"}')
    assert fault is None
    assert value["b"] == "x"
    found = faults(value["a"], "a")
    assert found is not None
    assert found.code == code


def test_a_surrogate_pair_and_words_like_nan_in_text_are_sound():
    value, fault = parse(b'{"a": "\\ud83d\\ude00 NaN Inf -Infinity {[", "b": 9223372036854775807}')
    assert fault is None
    assert value == {"a": "😀 NaN Inf -Infinity {[", "b": 2**63 - 1}
    assert faults(value, "row") is None


def test_brackets_inside_strings_do_not_count_as_depth():
    assert depth(b'{"a": "' + b"[" * 500 + b'"}') == 1
    assert depth(b"[" * (MAX_DEPTH + 1)) == MAX_DEPTH + 1


def test_numbers_stay_as_they_were_written():
    text = '{"a":[1.0,1e5,-0,0.10,1E+2,12345678901234567]}'
    assert canonical(parse(text.encode(), written=True)[0]) == text


@given(values)
def test_canonical_text_says_what_the_value_said(value):
    line = json.dumps({"v": value}, ensure_ascii=False).encode("utf-8", "surrogatepass")
    parsed, fault = parse(line, written=True)
    if fault is not None:
        assert fault.code == "invalid_utf8"
        return
    assert json.loads(canonical(parsed)) == {"v": value}
    assert canonical(parsed) == json.dumps({"v": value}, ensure_ascii=False, separators=(",", ":"))


@given(st.binary(max_size=60))
def test_any_bytes_are_either_an_object_or_a_fault(line):
    value, fault = parse(line)
    assert (fault is None) == isinstance(value, dict)
