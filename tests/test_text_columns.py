import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nasty_conversations import texts

from fmtkit.rendering.text_columns import text_column

TRIMS = [
    (),
    (("strip", None),),
    (("lstrip", None),),
    (("rstrip", None),),
    (("strip", "\n"),),
    (("lstrip", "a \u3000"),),
    (("rstrip", "\n"), ("strip", "ax"), ("lstrip", None)),
]
rows = st.lists(texts | st.none(), max_size=12)
trims = st.sampled_from(TRIMS)
needles = st.sampled_from(["", "a", "aa", "</think>", "\n", " ", "é", "\u3000", "x" * 13])


def trimmed(text: str | None, how) -> str:
    text = text or ""
    for method, characters in how:
        text = getattr(text, method)(characters)
    return text


@given(rows, trims, st.integers(0, 3))
def test_trimming_bytes_equals_trimming_strings(values, how, start):
    column = text_column(pa.array(values, pa.string()).slice(start))
    found = [column.text(i, how) for i in range(len(column))]
    assert found == [trimmed(value, how) for value in values[start:]]


@pytest.mark.parametrize("predicate", ["startswith", "endswith", "contains", "equals"])
@given(rows, trims, needles)
def test_questions_about_bytes_equal_questions_about_strings(predicate, values, how, needle):
    ask = {
        "startswith": str.startswith,
        "endswith": str.endswith,
        "contains": str.__contains__,
        "equals": str.__eq__,
    }[predicate]
    column = text_column(pa.array(values, pa.large_string()))
    found = getattr(column, predicate)(how, needle).tolist()
    assert found == [ask(trimmed(value, how), needle) for value in values]


@given(rows, trims)
def test_views_read_back_as_the_texts(values, how):
    column = text_column(pa.array(values, pa.string()))
    views = column.views(how, 0)
    data = column.buffer if column.buffer is not None else pa.py_buffer(b"")
    array = pa.Array.from_buffers(
        pa.string_view(), len(values), [None, pa.py_buffer(np.ascontiguousarray(views)), data]
    )
    assert array.cast(pa.string()).to_pylist() == [trimmed(value, how) for value in values]


@given(st.lists(texts | st.text(st.characters(max_codepoint=0x2030, exclude_categories=["Cs"]))))
def test_texts_are_written_as_json_does(values):
    column = text_column(pa.array([None, *values], pa.string()))
    places = np.arange(len(values), 0, -1)
    written = column.as_json(places)
    found = [written.text(number) for number in range(len(values))]
    assert found == [json.dumps(value, ensure_ascii=False) for value in reversed(values)]


def test_every_character_is_written_as_json_does():
    every = "".join(chr(c) for c in range(0x10000) if not 0xD800 <= c < 0xE000)
    written = text_column(pa.array([every])).as_json(np.array([0]))
    assert written.text(0) == json.dumps(every, ensure_ascii=False)


def test_a_megabyte_of_blanks_is_trimmed_at_once():
    blanks = " " * (1 << 20)
    column = text_column(pa.array([blanks + "x" + blanks, " y "]))
    assert [column.text(i, (("strip", None),)) for i in range(2)] == ["x", "y"]
