"""Every code of a bad row at its exact line, and what no run may stumble over."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import INTEL, KTO, convert, convert_file, line, lines

from fmtkit.core.codes import RAW_BYTES, REASONS
from fmtkit.core.errors import ColumnMismatchError, NothingWrittenError, OptionError

TOKENIZER = str(Path(__file__).parents[1] / "fixtures" / "tokenizer")
USER, BOT = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
OTHER = {"role": "assistant", "content": "b"}
CHAT = {"chosen": [USER, BOT], "rejected": [USER, OTHER]}
STEPS = {"prompt": "p", "completions": ["a", "b"], "labels": [True, False]}
REPLY = {"completion": [USER, BOT], "label": True}
REFUSES = "{% if 'boom' in messages[0].content %}{{ raise_exception('no boom') }}{% endif %}"
TURNS = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
REWRITES = "{% if messages | length > 1 and 'boom' in messages[0].content %}!{% endif %}" + TURNS
REASONING = {"messages": [USER, {"role": "assistant", "content": "<think>r</think>a"}]}


def without(row: dict, *names: str) -> dict:
    return {key: value for key, value in row.items() if key not in names}


BAD = [
    ("missing_field", "intel", INTEL, without(INTEL, "chosen") | {"chosn": "x"}, "chosen"),
    ("null_field", "intel", INTEL, INTEL | {"chosen": None}, "chosen"),
    (
        "null_field",
        "argilla_chat",
        CHAT,
        CHAT | {"chosen": [USER, BOT | {"content": None}]},
        "chosen[1].content",
    ),
    ("type_error", "intel", INTEL, INTEL | {"chosen": 5}, "chosen"),
    ("type_error", "intel", KTO, KTO | {"label": "yes"}, "label"),
    ("empty_field", "intel", INTEL, INTEL | {"chosen": " \t"}, "chosen"),
    ("empty_field", "argilla_chat", CHAT, CHAT | {"chosen": []}, "chosen"),
    ("value_error", "stepwise_supervised", STEPS, STEPS | {"labels": [True, 1.5]}, "labels[1]"),
    ("role_order", "argilla_chat", CHAT, CHAT | {"chosen": [USER, BOT, USER]}, "chosen"),
    (
        "unknown_role",
        "argilla_chat",
        CHAT,
        CHAT | {"chosen": [USER | {"role": "robot"}, BOT]},
        "chosen[0].role",
    ),
    (
        "context_mismatch",
        "argilla_chat",
        CHAT,
        CHAT | {"chosen": [USER | {"content": "z"}, BOT]},
        "rejected",
    ),
    ("no_preference", "intel", INTEL, INTEL | {"rejected": "4"}, None),
    ("length_mismatch", "stepwise_supervised", STEPS, STEPS | {"labels": [True]}, "labels"),
    ("json_syntax", "intel", INTEL, b'{"question": "q",', None),
    ("json_syntax", "intel", INTEL, line(INTEL) + line(INTEL), None),
    ("not_an_object", "intel", INTEL, b'["q", "a", "b"]', None),
    ("not_an_object", "intel", INTEL, b"null", None),
    ("duplicate_key", "intel", INTEL, line(INTEL)[:-1] + b',"chosen":"x"}', "chosen"),
    (
        "json_nonfinite",
        "argilla_chat",
        CHAT,
        line(CHAT).replace(b'"q"}', b'"q","x":NaN}', 1),
        "chosen[0].x",
    ),
    ("number_overflow", "intel", INTEL, line(INTEL)[:-1] + b',"x":1e400}', "x"),
    (
        "number_overflow",
        "argilla_chat",
        CHAT,
        line(CHAT).replace(b'"q"}', b'"q","x":%d}' % 2**63, 1),
        "chosen[0].x",
    ),
    ("invalid_utf8", "intel", INTEL, line(INTEL).replace(b'"4"', b'"\xff"'), None),
    ("invalid_unicode", "intel", INTEL, line(INTEL).replace(b'"4"', b'"\\ud800"'), "chosen"),
    ("json_control_char", "intel", INTEL, line(INTEL).replace(b'"4"', b'"4\x01"'), None),
    (
        "json_too_deep",
        "intel",
        INTEL,
        line(INTEL)[:-1] + b',"x":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        None,
    ),
    ("line_too_long", "intel", INTEL, b'{"question": "' + b"x" * (20 << 20) + b'"}', None),
    ("unsupported", "intel", INTEL, INTEL | {"audio": ["a.wav"]}, "audio"),
    ("image_missing", "intel", INTEL, INTEL | {"images": ["a.png"]}, "images"),
    (
        "image_unreadable",
        "intel",
        INTEL,
        INTEL | {"image": "data:image/svg+xml;base64,PHN2Zy8+"},
        "images",
    ),
    (
        "unsupported",
        "argilla_chat",
        CHAT,
        CHAT | {"chosen": [USER | {"content": [{"type": "input_audio"}]}, BOT]},
        "chosen[0].content[0]",
    ),
    (
        "image_count",
        "argilla_chat",
        CHAT,
        {
            side: [USER | {"content": [{"type": "image"}]}, reply]
            for side, reply in (("chosen", BOT), ("rejected", OTHER))
        },
        "images",
    ),
    (
        "ambiguous_fields",
        "ultra",
        CHAT,
        CHAT
        | {
            "system": "s",
            "chosen": [{"role": "system", "content": "t"}, USER, BOT],
            "rejected": [{"role": "system", "content": "t"}, USER, OTHER],
        },
        "system",
    ),
    ("no_assistant_turn", "openai", {"messages": [USER, BOT]}, {"messages": [USER]}, None),
    (
        "multi_message_answer",
        "argilla_chat",
        REPLY | {"chosen": [USER], "completion": [BOT]},
        {"chosen": [USER], "completion": [BOT, OTHER], "label": True},
        "completion",
    ),
]


@pytest.mark.parametrize(
    ("code", "kind", "sound", "bad", "column"),
    BAD,
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_bad_row_is_quarantined_with_its_line_code_and_column(
    tmp_path, code, kind, sound, bad, column
):
    data = line(sound) + b"\n\n\r\n" + line(sound) + b"\r\n" + line(bad) + b"\n" + line(sound)
    outcome = convert(tmp_path, data, kind)
    assert outcome.verdicts == [(5, code, column)]
    entry = outcome.quarantine[0]
    assert entry["file"] == str(tmp_path / "source.jsonl")
    assert entry["row"] == 2
    assert entry["message"]
    assert outcome.report["reasons"] == {code: 1}
    assert outcome.report["rows_written"] == 3
    assert outcome.report["blank_lines"] == 2


@pytest.mark.parametrize(
    ("code", "template"),
    [("template_error", REFUSES + TURNS), ("template_not_prefix_preserving", REWRITES)],
)
def test_what_a_template_cannot_render_is_quarantined(tmp_path, code, template):
    (tmp_path / "mine.jinja").write_text(template)
    rows = [INTEL, INTEL | {"question": "boom"}, INTEL]
    outcome = convert(
        tmp_path, rows, "intel", as_="text", chat_template=str(tmp_path / "mine.jinja")
    )
    assert outcome.verdicts == [(2, code, None)]
    assert outcome.report["rows_written"] == 2


def test_rows_of_too_many_tokens_are_quarantined_when_asked_for(tmp_path):
    rows = [INTEL, INTEL | {"question": "long " * 200}, INTEL]
    outcome = convert(
        tmp_path, rows, "chatml.intel", tokenizer=TOKENIZER, max_length=100, on_overlong="fail"
    )
    assert outcome.verdicts == [(2, "too_long", None)]


def test_rows_of_too_few_tokens_are_quarantined_when_asked_for(tmp_path):
    rows = [INTEL | {"question": "long " * 200}, INTEL, INTEL | {"chosen": "long " * 200}]
    outcome = convert(tmp_path, rows, "chatml.intel", tokenizer=TOKENIZER, min_length=100)
    assert outcome.verdicts == [(2, "too_short", None)]


def test_a_row_that_a_target_cannot_hold_is_quarantined(tmp_path):
    rows = [INTEL, INTEL | {"question": "Q\n\nHuman: again"}, INTEL]
    (tmp_path / "source.jsonl").write_bytes(lines(rows))
    outcome = convert_file(tmp_path / "source.jsonl", tmp_path / "out.jsonl", "intel", to="hh-rlhf")
    assert [verdict[:2] for verdict in outcome.verdicts] == [(2, "no_place")]


def test_an_answer_that_ends_with_its_thinking_is_quarantined(tmp_path):
    bad = {"messages": [USER, {"role": "assistant", "content": "<think>r</think> "}]}
    rows = [REASONING, bad, REASONING]
    outcome = convert(tmp_path, rows, "ebft_reasoning.transform_split_thinking")
    assert [verdict[:2] for verdict in outcome.verdicts] == [(2, "empty_answer_after_think")]


def test_a_format_with_an_unknown_placeholder_is_an_error_before_anything_is_read(tmp_path):
    outcome = convert(
        tmp_path,
        [{"prompt": "p", "chosen": "a", "rejected": "b"}],
        "user_defined.default",
        options={"prompt_format": "{promt}"},
    )
    assert isinstance(outcome.error, OptionError)
    assert "format_placeholder" in str(outcome.error)
    assert "did you mean {prompt}" in str(outcome.error)


def test_every_code_has_a_test_here():
    known = {code for code, *_ in BAD} | {"template_error", "template_not_prefix_preserving"}
    others = {"too_long", "too_short", "no_place", "empty_answer_after_think", "format_placeholder"}
    assert set(REASONS) == known | others


def test_the_message_names_the_key_that_was_probably_meant(tmp_path):
    bad = without(INTEL, "chosen") | {"chosn": "x"}
    outcome = convert(tmp_path, [INTEL, bad], "intel")
    assert "did you mean 'chosn'" in outcome.quarantine[0]["message"]


TOKENS = {"input_ids": [1, 2], "attention_mask": [1, 1], "labels": [-100, 2], "prompt_length": 1}


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"input_ids": [1.5, 2]}, "input_ids"),
        ({"labels": [2**31, 2]}, "labels"),
        ({"input_ids": [1e300, 2]}, "input_ids"),
        ({"prompt_length": 0.5}, "prompt_length"),
    ],
)
def test_numbers_that_are_no_tokens_are_refused(tmp_path, bad, column):
    outcome = convert(tmp_path, [TOKENS, TOKENS | bad, TOKENS], "passthrough")
    assert outcome.verdicts == [(2, "value_error", column)]
    assert outcome.rows[0]["input_ids"] == [1, 2]


def test_a_system_turn_that_says_nothing_is_no_turn(tmp_path):
    rows = [
        {"messages": [{"role": "system", **said}, USER, BOT]} for said in ({}, {"content": None})
    ]
    outcome = convert(tmp_path, rows, "openai")
    assert [[turn["role"] for turn in row["messages"]] for row in outcome.rows] == [
        ["user", "assistant"]
    ] * 2


def test_of_several_codes_the_first_of_the_list_is_given(tmp_path):
    rows = [
        INTEL,
        {"chosen": 5, "rejected": None},
        INTEL | {"chosen": 5, "rejected": None},
        INTEL | {"chosen": 5, "rejected": ""},
        INTEL | {"chosen": "", "rejected": ""},
        line(INTEL | {"chosen": 5})[:-1] + b',"question":"z"}',
        line(INTEL | {"rejected": "4"})[:-1] + b',"question":"z"}',
        line(INTEL | {"rejected": " ", "audio": ["x"]})[:-1] + b',"x":1e400}',
        line(INTEL | {"audio": ["x"]})[:-1] + b',"x":1e400}',
        line(INTEL | {"rejected": "4"})[:-1] + b',"x":"\\ud800"}',
    ]
    codes = [verdict[1] for verdict in convert(tmp_path, rows, "intel").verdicts]
    expected = ["missing_field", "null_field", "type_error", "empty_field", "type_error"]
    assert codes == [*expected, "no_preference", "empty_field", "number_overflow", "no_preference"]


def test_the_raw_row_is_kept_as_it_was(tmp_path):
    bad = b'{"question":  "q", "chosen": 5, "rejected": "\xf0\x9f\x99\x82" }'
    outcome = convert(tmp_path, line(INTEL) + b"\n" + bad + b"\r\n", "intel")
    assert outcome.quarantine[0]["raw"] == bad.decode()
    assert "raw_bytes" not in outcome.quarantine[0]


def test_a_raw_row_that_is_not_utf8_is_kept_in_base64(tmp_path):
    from base64 import b64decode

    bad = line(INTEL).replace(b'"4"', b'"\xff"')
    entry = convert(tmp_path, line(INTEL) + b"\n" + bad, "intel").quarantine[0]
    assert b64decode(entry["raw_base64"]) == bad
    assert "raw" not in entry


def test_a_huge_raw_row_is_cut_and_its_length_kept(tmp_path):
    bad = line(INTEL | {"chosen": 5, "x": "é" * RAW_BYTES})
    entry = convert(tmp_path, line(INTEL) + b"\n" + bad, "intel").quarantine[0]
    assert bad.decode().startswith(entry["raw"])
    assert RAW_BYTES - 1 <= len(entry["raw"].encode()) <= RAW_BYTES
    assert entry["raw_bytes"] == len(bad)


def test_a_line_of_20_megabytes_at_the_very_start_hides_no_row(tmp_path):
    long = b'{"question": "' + b"x" * (20 << 20) + b'"}'
    outcome = convert(tmp_path, [long, KTO, KTO | {"label": 2}], "intel")
    assert outcome.verdicts == [(1, "line_too_long", None), (3, "type_error", "label")]
    assert outcome.quarantine[0]["raw_bytes"] == len(long)
    assert outcome.report["table"] == "Unpaired"


@pytest.mark.parametrize(
    "value", [b"9" * 5000, b"1e" + b"9" * 5000, b"-" + b"9" * 20, b"9223372036854775808"]
)
def test_numbers_of_any_length_are_judged_not_stumbled_over(tmp_path, value):
    ranked = {"prompt": "p", "answers": [{"answer": "a", "rank": 1}, {"answer": "b", "rank": 2}]}
    bad = line(ranked).replace(b'"rank": 2', b'"rank": ' + value)
    outcome = convert(tmp_path, [ranked, bad, ranked], "nectar")
    assert outcome.verdicts == [(2, "number_overflow", "answers[1].rank")]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_and_byte_order_marks_are_no_part_of_rows(tmp_path, ending, last, mark):
    data = mark + ending.join([line(INTEL), b"", line(INTEL | {"chosen": None}), line(INTEL)])
    outcome = convert(tmp_path, data + (ending if last else b""), "intel")
    assert outcome.verdicts == [(3, "null_field", "chosen")]
    assert outcome.report["rows_written"] == 2


def test_line_separators_of_unicode_end_no_line(tmp_path):
    rows = [INTEL | {"chosen": "a\u2028b\u2029c\x85d"}, INTEL | {"chosen": None}]
    outcome = convert(tmp_path, rows, "intel")
    assert outcome.verdicts == [(2, "null_field", "chosen")]
    assert outcome.rows[0]["chosen"][0]["content"] == "a\u2028b\u2029c\x85d"


@pytest.mark.parametrize("data", [b"", b"\n", b" \n\r\n\t\n", b"\xef\xbb\xbf"])
def test_a_file_without_rows_writes_nothing_and_says_so(tmp_path, data):
    outcome = convert(tmp_path, data, "intel")
    assert isinstance(outcome.error, NothingWrittenError)
    assert not (tmp_path / "out.parquet").exists()
    assert outcome.report["rows_read"] == 0


def test_a_file_of_bad_rows_only_writes_nothing_but_the_quarantine(tmp_path):
    outcome = convert(tmp_path, [INTEL | {"chosen": None}, b"{", b"[]"], "intel")
    assert isinstance(outcome.error, NothingWrittenError)
    assert "null_field 1" in str(outcome.error)
    assert [verdict[1] for verdict in outcome.verdicts] == [
        "null_field",
        "json_syntax",
        "not_an_object",
    ]
    assert not (tmp_path / "out.parquet").exists()


def test_a_column_that_no_row_has_is_an_error_that_says_what_fits(tmp_path):
    outcome = convert(tmp_path, [{"input": "q", "chosen": "a", "rejected": "b"}] * 3, "intel")
    assert isinstance(outcome.error, ColumnMismatchError)
    assert "question" in str(outcome.error)
    assert "icr" in str(outcome.error)
    assert not outcome.report


def test_a_misspelled_column_is_an_error_that_says_how_to_map_it(tmp_path):
    outcome = convert(tmp_path, [{"questions": "q", "chosen": "a", "rejected": "b"}], "intel")
    assert "--map question=questions" in str(outcome.error)


@pytest.mark.parametrize("column", ["qestion", "answers", "zq"])
def test_what_is_advised_for_a_wrong_mapping_works(tmp_path, column):
    rows = [{"question": "q", "answer": "a"}]
    mapping = {"question": column}
    outcome = convert(tmp_path, rows, "question_answer", columns=mapping)
    assert isinstance(outcome.error, ColumnMismatchError)
    assert f"column question is there: leave out --map question={column}" in str(outcome.error)
    assert convert(tmp_path, rows, "question_answer").report["rows_written"] == 1


def test_a_mapping_given_as_an_option_is_named_as_one(tmp_path):
    outcome = convert(
        tmp_path, [{"question": "q", "answer": "a"}], "gsm8k", options={"field_question": "qestion"}
    )
    assert "leave out --option field_question=qestion" in str(outcome.error)


def test_a_near_column_is_advised_for_the_parameter_that_lacks_it(tmp_path):
    rows = [{"prompt": [USER], "reward_model_ground_truth": "4"}]
    outcome = convert(tmp_path, rows, "verl")
    assert "map it with --map ground_truth=reward_model_ground_truth)" in str(outcome.error)
    mapping = {"ground_truth": "reward_model_ground_truth"}
    assert convert(tmp_path, rows, "verl", columns=mapping).report["rows_written"] == 1


def test_a_mapped_column_that_no_row_has_is_an_error(tmp_path):
    rows = [{**INTEL, "sistem_prompt": "s"}]
    outcome = convert(tmp_path, rows, "intel", columns={"system": "system_prompt"})
    assert isinstance(outcome.error, ColumnMismatchError)
    assert "did you mean 'sistem_prompt'?" in str(outcome.error)
    outcome = convert(tmp_path, rows, "intel", columns={"system": "sistem_prompt"})
    assert outcome.report["rows_written"] == 1


def test_a_mapped_column_may_begin_after_the_first_rows(tmp_path):
    rows = [INTEL] * 400 + [{**INTEL, "late": "s"}]
    outcome = convert(tmp_path, rows, "intel", columns={"system": "late"})
    assert outcome.report["rows_written"] == 401


def test_a_column_that_starts_late_in_the_first_block_is_missing_before_and_there_after(tmp_path):
    rows = [without(INTEL, "chosen")] * 400 + [INTEL]
    outcome = convert(tmp_path, rows, "intel")
    assert outcome.report["reasons"] == {"missing_field": 400}
    assert outcome.report["rows_written"] == 1


def test_a_system_text_that_starts_late_is_kept(tmp_path):
    rows = [INTEL] * 5000 + [INTEL | {"system": "Be brief."}]
    outcome = convert(tmp_path, rows, "intel")
    assert outcome.rows[-1]["prompt"][0] == {"role": "system", "content": "Be brief."}


def test_the_same_rows_are_read_from_every_kind_of_file(tmp_path):
    rows = [INTEL | {"system": None}, INTEL | {"chosen": "😀", "system": "s"}]
    rows.append(INTEL | {"rejected": "line\nline", "system": None})
    expected = convert(tmp_path, rows, "intel").rows
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(rows)))
    (tmp_path / "a.jsonl.zst").write_bytes(pa.compress(lines(rows), "zstd", asbytes=True))
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=2))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", pa.Table.from_pylist(rows).schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows))
    with (tmp_path / "a.csv").open("w", newline="") as file:
        import csv

        writer = csv.DictWriter(file, ["question", "chosen", "rejected", "system"])
        writer.writeheader()
        writer.writerows(rows)
    for name in ("a.jsonl.gz", "a.jsonl.zst", "a.json", "a.parquet", "a.arrow", "a.csv"):
        found = convert_file(str(tmp_path / name), tmp_path / f"{name}.out.parquet", "intel").rows
        assert found == expected, name


def test_parquet_rows_get_the_same_codes_without_a_line(tmp_path):
    rows = [INTEL, INTEL | {"chosen": None}, INTEL | {"chosen": " "}, INTEL | {"chosen": "5"}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    outcome = convert_file(str(tmp_path / "a.parquet"), tmp_path / "out.parquet", "intel")
    assert [
        (bad["row"], *verdict)
        for bad, verdict in zip(outcome.quarantine, outcome.verdicts, strict=True)
    ] == [
        (1, None, "null_field", "chosen"),
        (2, None, "empty_field", "chosen"),
        (3, None, "no_preference", None),
    ]


def test_parquet_text_that_is_not_utf8_is_quarantined(tmp_path):
    offsets = pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0")
    texts = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"a\xff\xfe"))
    table = pa.table({"question": ["q", "q"], "chosen": texts, "rejected": ["b", "b"]})
    pq.write_table(table, tmp_path / "a.parquet")
    outcome = convert_file(str(tmp_path / "a.parquet"), tmp_path / "out.parquet", "intel")
    assert outcome.verdicts == [(None, "invalid_utf8", "chosen")]
    assert outcome.report["rows_written"] == 1


def test_csv_rows_get_the_same_codes_and_their_physical_lines(tmp_path):
    text = 'question,completion,label\nq,"two\nlines",true\nq,a,maybe\nq,,1\nq,a\nq,a,0.0\n'
    (tmp_path / "a.csv").write_text(text)
    outcome = convert_file(str(tmp_path / "a.csv"), tmp_path / "out.parquet", "intel")
    assert outcome.verdicts == [
        (4, "type_error", "label"),
        (5, "null_field", "completion"),
        (6, "value_error", None),
    ]
    assert [row["label"] for row in outcome.rows] == [True, False]


def test_rows_of_a_json_array_are_named_by_the_line_they_begin_on(tmp_path):
    rows = [INTEL, INTEL | {"chosen": None}, INTEL]
    text = json.dumps(rows, indent=1)
    outcome = convert(tmp_path, text.encode(), "intel", name="a.json")
    expected = text.split("\n").index(" {", 3) + 1
    assert outcome.verdicts == [(expected, "null_field", "chosen")]
