"""A converter's parameters meet a source's columns: their shapes, their schema, what is wrong."""

import pyarrow as pa
import pytest
from runs import INTEL

from fmtkit import registry
from fmtkit.converting.binding import bind
from fmtkit.converting.read_plan import ReadPlan, ReadState
from fmtkit.converting.seen_types import learn

USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}


def bound(name, sample, number=0, **options):
    converter = registry.named(name)[number]
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


def test_flat_columns_are_read_past_the_others():
    plan = ReadPlan.of(bound("intel", [INTEL]), [INTEL | {"meta": {"a": 1}}])
    assert plan.mode == "ignore"
    assert "meta" not in ReadState(plan).schema().names


def test_nested_columns_are_read_with_every_key_that_was_seen():
    row = {"chosen": [USER | {"mood": "glad"}, BOT], "rejected": [USER, BOT], "id": 5}
    plan = ReadPlan.of(bound("argilla_chat", [row]), [row])
    assert plan.mode == "error"
    message = ReadState(plan).schema().field("chosen").type.value_type
    assert [message.field(i).name for i in range(message.num_fields)] == ["role", "content", "mood"]
    assert ReadState(plan).schema().field("id").type == pa.float64()


def test_open_values_are_read_strictly():
    row = {"messages": [USER, BOT], "tools": [{"name": "f"}]}
    assert ReadState(ReadPlan.of(bound("openai", [row]), [row])).schema() is None


def test_a_source_without_tools_is_read_fast_by_a_type_that_takes_them():
    row = {"messages": [USER, BOT]}
    assert ReadState(ReadPlan.of(bound("openai", [row]), [row])).schema() is not None


def test_dotted_paths_are_read_as_nested_columns():
    row = {"meta": {"ask": {"q": "Q"}}, "chosen": "a", "rejected": "b"}
    binding = bound("intel", [row], mapping={"question": "meta.ask.q"})
    dtype = ReadState(ReadPlan.of(binding, [row])).schema().field("meta").type
    assert dtype == pa.struct([("ask", pa.struct([("q", pa.string())]))])
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


def types(*rows):
    extra = {}
    grew = [learn(extra, row) for row in rows]
    return extra, grew


def test_types_grow_as_rows_show_more():
    extra, grew = types(
        {"a": None}, {"a": [None]}, {"a": [{"x": 1}]}, {"a": [{"y": "t"}]}, {"a": []}
    )
    assert extra["a"] == pa.list_(pa.struct([("x", pa.float64()), ("y", pa.string())]))
    assert grew == [True, True, True, True, False]


@pytest.mark.parametrize(
    "values", [("x", 1), (1, True), ([1], {"a": 1}), ([1, "x"], None), ({"a": 1}, {"a": "x"})]
)
def test_a_column_of_mixed_kinds_has_no_type_ever_after(values):
    extra, _ = types(*({"a": value} for value in values), {"a": "x"}, {"b": 1})
    assert extra == {"a": None, "b": pa.float64()}


def test_names_with_half_a_surrogate_pair_are_not_learnt():
    extra, _ = types({"\ud800": 1, "a": {"\udfff": 1, "b": True}})
    assert extra == {"a": pa.struct([("b", pa.bool_())])}
