"""The windows of strided EBFT in a survey: those of the trainer's collator, counted and shown."""

import random
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from rich.console import Console
from runs import fmtkit as command
from test_survey import GOLDENS, rows_of, tokenizer, write

import fmtkit
from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.core.tables import Tokens
from fmtkit.counting.anchors import AnchorRule, read_rule, row_anchors, token_count
from fmtkit.inspection.anchor_counts import AnchorTally, place_anchors
from fmtkit.inspection.survey_record import Survey, survey_schema
from fmtkit.reports.terminal import print_row

__all__ = ["tokenizer"]

needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")

RULE = {"stride": 6, "generate_max_len": 4}


def say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def chats(count: int) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                say("user", f"Write a function that adds {number}."),
                say("assistant", f"def add(x):\n    return x + {number}"),
                say("user", "Say what it does."),
                say("assistant", f"It takes a number x and gives back x plus {number}."),
            ]
        }
        for number in range(count)
    ]


def survey_of(path: Path, rows: list[dict[str, Any]], tokenizer: str, **options: Any) -> Survey:
    given = {"type": "ebft_strided_chat.transform", "max_length": 256, "ebft": RULE, **options}
    return fmtkit.inspect(write(path, rows), tokenizer=tokenizer, **given)


def tokens_table(rows: list[dict[str, Any]]) -> pa.Table:
    present = frozenset(rows[0])
    return pa.Table.from_pylist(rows, schema=Tokens.schema(present, wide=False, text=False))


def random_row(generator: random.Random, *, masked: bool) -> dict[str, Any]:
    length, padding = generator.randint(0, 25), generator.randint(0, 4)
    width = length + padding
    row = {
        "input_ids": [1] * width,
        "attention_mask": [1] * length + [0] * padding,
        "labels": [1] * width,
        "prompt_length": generator.randint(0, length),
    }
    mask = [int(generator.random() < 0.8) for _ in range(width)]
    return row | ({"anchor_mask": mask if generator.random() < 0.9 else None} if masked else {})


@pytest.mark.parametrize("masked", [False, True])
def test_columns_and_rows_place_the_same_anchors(masked):
    generator = random.Random(3)
    for _ in range(100):
        rule = AnchorRule(*(generator.randint(1, 6) for _ in range(3)), generator.randint(0, 4))
        rows = [random_row(generator, masked=masked) for _ in range(generator.randint(1, 9))]
        placed = place_anchors(rule, tokens_table(rows))
        anchors = [row_anchors(rule, row, token_count(row, 0)) for row in rows]
        windows = [
            {place for a in found for place in range(a, a + rule.generate_max_len)}
            for found in anchors
        ]
        assert placed.anchors.tolist() == [len(found) for found in anchors]
        assert placed.generated.tolist() == [len(found) for found in windows]
        assert placed.tokens.tolist() == [sum(row["attention_mask"]) for row in rows]
        assert not placed.padded_first.any()


def test_two_tallies_add_up():
    rows = [random_row(random.Random(number), masked=True) for number in range(40)]
    whole, first, second = AnchorTally(), AnchorTally(), AnchorTally()
    rule = AnchorRule(2, 2, 3)
    whole.add(place_anchors(rule, tokens_table(rows)))
    first.add(place_anchors(rule, tokens_table(rows[:13])))
    second.add(place_anchors(rule, tokens_table(rows[13:])))
    first.absorb(second)
    assert first.summary(rule) == whole.summary(rule)
    assert AnchorTally().summary(rule) is None


@needs_goldens
def test_the_summary_counts_what_the_rows_show(tmp_path, tokenizer):
    short = {"messages": [say("user", "Hi"), say("assistant", "Yo")]}
    rows = [*chats(5), short]
    survey = survey_of(tmp_path / "chats.jsonl", rows, tokenizer, show_mask=6)
    sides = [row.sides[0] for row in survey.shown]
    anchors = survey.anchors
    assert anchors is not None
    assert (anchors.rule.stride, anchors.rule.context_length) == (6, 8)
    assert (anchors.rows, anchors.rows_without) == (6, 1)
    assert anchors.anchors == sum(len(side.windows) for side in sides)
    assert anchors.generated == sum(side.generated_tokens for side in sides)
    assert anchors.tokens == sum(len(side.ids) for side in sides)
    assert rows_of(survey)["no_anchor"] == [5]
    assert sides[5].notes == ("no window fits: only ce_coef trains the row",)
    (figures,) = (f for f in survey.lengths if f.name == "input_ids")
    assert figures.tokens == anchors.tokens
    jsonschema.validate(survey.as_dict(), survey_schema())


@needs_goldens
def test_a_converted_file_shows_the_same_windows(tmp_path, tokenizer):
    before = survey_of(tmp_path / "chats.jsonl", chats(3), tokenizer, show_mask=3)
    fmtkit.convert(
        tmp_path / "chats.jsonl",
        "ebft_strided_chat.transform",
        tmp_path / "out.parquet",
        tokenizer=tokenizer,
        max_length=256,
    )
    after = fmtkit.inspect(tmp_path / "out.parquet", tokenizer=tokenizer, ebft=RULE, show_mask=3)
    assert after.best_guess == "passthrough"
    assert [row.sides for row in after.shown] == [row.sides for row in before.shown]
    assert after.anchors == before.anchors


@needs_goldens
def test_padding_before_a_token_is_found(tmp_path, tokenizer):
    row = {"input_ids": [5, 5], "attention_mask": [0, 1], "labels": [5, 5], "prompt_length": 0}
    path = write(tmp_path / "tokens.jsonl", [row])
    survey = fmtkit.inspect(path, tokenizer=tokenizer, show_mask=1)
    assert rows_of(survey)["padded_first"] == [0]
    assert "no_anchor" not in rows_of(survey)
    assert "strided EBFT refuses" in survey.shown[0].sides[0].notes[0]


@needs_goldens
def test_other_tables_have_no_windows(tmp_path, tokenizer):
    survey = fmtkit.inspect(write(tmp_path / "c.jsonl", chats(2)), tokenizer=tokenizer, show_mask=2)
    assert survey.anchors is None
    assert all(side.windows == () for row in survey.shown for side in row.sides)


@needs_goldens
def test_a_pipe_shows_anchors_and_the_ends_of_windows(tmp_path, tokenizer):
    survey = survey_of(tmp_path / "chats.jsonl", chats(1), tokenizer, show_mask=1)
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        print_row(survey.shown[0], console)
    text = capture.get()
    (side,) = survey.shown[0].sides
    assert text.count("▸") == len(side.windows) == 4
    assert text.count("◂") == 4
    assert "4 windows of 4 tokens over" in text
    assert "⟦▸def add(x◂)" in text


@needs_goldens
def test_a_terminal_sets_windows_apart_from_their_neighbours(tmp_path, tokenizer):
    tiled = {"stride": 4, "generate_max_len": 4}
    survey = survey_of(tmp_path / "chats.jsonl", chats(1), tokenizer, show_mask=1, ebft=tiled)
    console = Console(width=200, force_terminal=True, color_system="truecolor")
    with console.capture() as capture:
        print_row(survey.shown[0], console)
    # Rich writes the two greys as backgrounds by their numbers.
    assert "48;5;237m" in capture.get()
    assert "48;5;239m" in capture.get()


@needs_goldens
def test_the_command_takes_the_keys_of_a_config(tmp_path, tokenizer, capsys):
    path = write(tmp_path / "chats.jsonl", chats(2))
    words = ["inspect", path, "--type", "ebft_strided_chat.transform", "--tokenizer", tokenizer]
    words += ["--max-length", "256"]
    done = command(capsys, *words, "--ebft", "stride=5", "--ebft", "min_completion_prefix=2")
    assert done.code == 0
    keys = "stride 5, context_length 8, generate_max_len 8, min_completion_prefix 2"
    assert f"windows that strided EBFT regenerates ({keys})" in done.out
    wrong = command(capsys, *words, "--ebft", "strid=5")
    assert wrong.code == 2
    assert "did you mean 'stride'?" in wrong.err


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stride": 0}, r"ebft\.stride is 0; it takes a whole number of at least 1"),
        ({"context_length": "x"}, r"ebft\.context_length is x"),
        ({"generate_max_len": 2.5}, r"ebft\.generate_max_len is 2\.5"),
        ({"min_completion_prefix": -1}, "at least 0"),
    ],
)
def test_a_rule_takes_whole_numbers(values, message):
    with pytest.raises(OptionError, match=message):
        read_rule(values)


def test_a_rule_names_the_key_that_was_meant():
    assert read_rule({"stride": "4", "min_completion_prefix": 0}) == AnchorRule(stride=4)
    with pytest.raises(
        UnknownNameError, match="no key of ebft that places anchors named 'ce_coef'"
    ):
        read_rule({"ce_coef": 1})
