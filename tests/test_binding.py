"""A converter's parameters meet a source's columns: their shapes, their schema, what is wrong."""

import pytest
from runs import INTEL

from fmtkit.formats import registry
from fmtkit.reading.binding import bind
from fmtkit.reading.block_parsing import MOST_NAMES, ReadPlan

USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def bound(name, sample, number=0, **options):
    converter = registry.converters_named(name)[number]
    return bind(
        converter, sample, mapping=options.pop("mapping", {}), options=converter.options, **options
    )


def shapes(binding):
    return {column.name: column.shape for column in binding.columns}


def codes(binding, row):
    return [(fault.code, fault.column) for fault in binding.judge(row)]


def test_a_column_of_several_shapes_is_bound_to_the_one_that_most_rows_show():
    rows = [{"messages": "q", "chosen": BOT, "rejected": [BOT]}] * 3
    rows += [{"messages": [USER], "chosen": "a", "rejected": [BOT]}]
    found = shapes(bound("chat_template.default", rows))
    assert (found["messages"], found["chosen"], found["rejected"]) == (
        "text",
        "message",
        "messages",
    )


def test_text_is_read_though_the_sample_has_none():
    assert shapes(bound("intel", [{"question": "q"}]))["system"] == "plain"


def test_dotted_paths_are_read_as_nested_columns():
    row = {"meta": {"ask": {"q": "Q"}}, "chosen": "a", "rejected": "b"}
    binding = bound("intel", [row], mapping={"question": "meta.ask.q"})
    assert codes(binding, row) == []
    assert codes(binding, row | {"meta": None}) == [("null_field", "meta")]
    assert codes(binding, row | {"meta": {}}) == [("missing_field", "meta.ask")]
    assert codes(binding, row | {"meta": {"ask": "x"}}) == [("type_error", "meta.ask.q")]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (INTEL, []),
        (
            {},
            [
                ("missing_field", "question"),
                ("missing_field", "chosen"),
                ("missing_field", "rejected"),
            ],
        ),
        (
            INTEL | {"chosen": None, "rejected": 1},
            [("null_field", "chosen"), ("type_error", "rejected")],
        ),
        (INTEL | {"system": 5, "image": "x"}, [("type_error", "system"), ("unsupported", "image")]),
        (INTEL | {"image": "", "videos": [], "audio": None, "images": [None]}, []),
    ],
)
def test_everything_wrong_with_a_row_is_found_most_telling_first(row, found):
    assert codes(bound("intel", [INTEL]), row) == found


def test_one_of_a_group_is_enough():
    binding = bound("default", [{"input": "q", "chosen": "a", "rejected": "b"}])
    assert codes(binding, {"input": "q", "chosen": "a", "rejected_response": "b"}) == []
    [(code, column)] = codes(binding, {"chosen": "a", "rejected": "b"})
    assert (code, column) == ("missing_field", "instruction")
    assert codes(binding, {"input": None, "chosen": "a", "rejected": "b"}) == [
        ("null_field", "input")
    ]


def test_columns_that_a_source_shows_are_those_of_sound_names():
    rows = [{"a": 1, "\ud800": 2}, {"b": [None]}, {"a": "x"}]
    assert ReadPlan.of(bound("intel", [INTEL]), rows).seen == ("a", "b")
    many = ReadPlan.of(bound("intel", [INTEL]), ({f"k{i}": 1} for i in range(5 * MOST_NAMES)))
    assert len(many.seen) == MOST_NAMES + 1
