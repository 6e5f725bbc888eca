"""The survey: planted defects by row, figures against a count by hand, and what files are."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sick_rows

import fmtkit
from fmtkit import catalogue
from fmtkit.core.errors import ColumnMismatchError, TokenizerError
from fmtkit.inspection.inspection import run
from fmtkit.inspection.survey_record import Survey
from fmtkit.options.inspect_options import InspectOptions
from fmtkit.reports import html
from fmtkit.tokenizers import tokens

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
GOLDENS = SHARED / "data/goldens/tokenizer"
REAL = SHARED / "data/real"

needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir(), reason="needs ../shared/data/goldens")


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama3")
    (folder / "tokenizer.json").write_bytes((GOLDENS / "tokenizer.json").read_bytes())
    special = json.loads((GOLDENS / "variants.json").read_text())["llama3"]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    source = (ROOT / "templates/llama3.jinja").read_text()
    trimming = source.replace("message['content'] +", "message['content'] | trim +")
    (folder / "chat_template.jinja").write_text(trimming)
    return str(folder)


def as_llama3(messages: list[dict[str, str]]) -> str:
    turns = (
        f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n{m['content']}<|eot_id|>"
        for m in messages
    )
    return "<|begin_of_text|>" + "".join(turns)


def rows_of(survey: Survey) -> dict[str, list[int]]:
    return {found.code: sorted(place.row for place in found.places) for found in survey.findings}


@needs_goldens
def test_every_planted_defect_is_found_in_its_row(tmp_path, tokenizer):
    rows, planted = sick_rows.sick()
    path = write(tmp_path / "pairs.jsonl", rows)
    survey = fmtkit.inspect(path, type="ultra", tokenizer=tokenizer)
    assert rows_of(survey) == planted
    for finding in survey.findings:
        assert [place.line for place in finding.places] == [p.row + 1 for p in finding.places]
        assert finding.count == len(planted[finding.code])


@needs_goldens
@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_a_clean_dataset_has_no_findings(tmp_path, tokenizer, with_tokenizer):
    path = write(tmp_path / "pairs.jsonl", [sick_rows.clean(number) for number in range(300)])
    options = {"tokenizer": tokenizer} if with_tokenizer else {}
    survey = fmtkit.inspect(path, **options)
    assert survey.findings == ()
    assert survey.type == survey.best_guess == "argilla_chat"
    assert (survey.rows_read, survey.rows) == (300, 300)


@needs_goldens
def test_figures_equal_a_count_by_hand(tmp_path, tokenizer):
    rows = [sick_rows.clean(number) for number in range(120)]
    survey = fmtkit.inspect(write(tmp_path / "pairs.jsonl", rows), tokenizer=tokenizer)
    loaded = tokens.load(tokenizer)
    expected: dict[str, list[int]] = {"prompt+chosen": [], "prompt+rejected": []}
    for row in rows:
        for side in ("chosen", "rejected"):
            expected[f"prompt+{side}"].append(len(loaded.encode(as_llama3(row[side])).ids))
    figures = {f.name: f for f in survey.lengths}
    for name, sizes in expected.items():
        ordered = sorted(sizes)
        got = figures[name]
        assert (got.rows, got.tokens, got.max) == (len(sizes), sum(sizes), max(sizes))
        assert got.mean == pytest.approx(float(np.mean(sizes)))
        for share in (50, 90, 95, 99):
            rank = -(-share * len(sizes) // 100) - 1
            assert getattr(got, f"p{share}") == ordered[rank]
        assert sum(entry.rows for entry in got.bins) == len(sizes)
    assert survey.roles == Counter({"assistant": 240, "system": 120, "user": 120})


@needs_goldens
def test_cuts_equal_a_count_by_hand(tmp_path, tokenizer):
    rows = [sick_rows.clean(number) for number in range(60)]
    survey = fmtkit.inspect(
        write(tmp_path / "pairs.jsonl", rows), tokenizer=tokenizer, max_length=[64], loss_budget=0.1
    )
    loaded = tokens.load(tokenizer)
    sizes = [
        [len(loaded.encode(as_llama3(row[side])).ids) for side in ("chosen", "rejected")]
        for row in rows
    ]
    assert survey.cutting is not None
    by_way = {cut.way: cut for cut in survey.cutting.cuts if cut.max_length == 64}
    longest = [max(pair) for pair in sizes]
    assert by_way["drop"].rows_lost == sum(size > 64 for size in longest)
    assert by_way["drop"].tokens_lost == sum(sum(p) for p in sizes if max(p) > 64)
    cut = sum(max(0, size - 64) for pair in sizes for size in pair)
    assert by_way["truncate-end"].tokens_lost == by_way["truncate-start"].tokens_lost == cut
    assert survey.cutting.smallest_max_length == sorted(longest)[-7]


@needs_goldens
def test_masks_tell_roles_apart(tmp_path, tokenizer):
    rows = [sick_rows.clean(number) for number in range(40)]
    survey = fmtkit.inspect(
        write(tmp_path / "pairs.jsonl", rows), tokenizer=tokenizer, show_mask=2, row=[39]
    )
    assert survey.masks is not None
    trained = {role.role: role.trained / role.tokens for role in survey.masks.roles}
    assert (trained["assistant"], trained["user"], trained["system"]) == (1.0, 0.0, 0.0)
    assert 0 < trained["template"] < 0.5
    assert [row.place.row for row in survey.shown] == [0, 1, 39]
    side = survey.shown[0].sides[0]
    first, end = side.trained[0]
    reply = side.text[side.offsets[first][0] : side.offsets[end - 1][1]]
    assert reply == rows[0]["chosen"][-1]["content"] + "<|eot_id|>"


@needs_goldens
def test_a_template_without_an_end_of_turn_is_a_finding(tmp_path, tokenizer):
    template = tmp_path / "bare.jinja"
    template.write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    path = write(tmp_path / "pairs.jsonl", [sick_rows.clean(number) for number in range(30)])
    survey = fmtkit.inspect(path, tokenizer=tokenizer, chat_template=str(template))
    assert [(f.code, f.count) for f in survey.findings] == [("end_not_trained", 30)]


@needs_goldens
def test_a_template_that_doubles_bos_and_end_is_a_finding(tmp_path, tokenizer):
    template = tmp_path / "double.jinja"
    template.write_text(
        "{{ bos_token }}{{ bos_token }}{% for m in messages %}{{ m.content }}<|eot_id|>"
        "{% if m.role == 'assistant' %}<|eot_id|>{% endif %}{% endfor %}"
    )
    path = write(tmp_path / "pairs.jsonl", [sick_rows.clean(number) for number in range(30)])
    survey = fmtkit.inspect(path, tokenizer=tokenizer, chat_template=str(template))
    found = {f.code: f.count for f in survey.findings}
    # The second end of turn is one that a model never writes: it stops at the first.
    assert found == {"bos_doubled": 30, "end_doubled": 30, "template_tokens_trained": 30}


@needs_goldens
def test_a_template_that_refuses_a_role_says_which_rows(tmp_path, tokenizer):
    template = tmp_path / "strict.jinja"
    template.write_text(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no system here') }}{% endif %}{{ m.content }}<|eot_id|>{% endfor %}"
    )
    rows = [sick_rows.clean(number) for number in range(20)]
    for side in ("chosen", "rejected"):
        rows[4][side] = rows[4][side][1:]
    path = write(tmp_path / "pairs.jsonl", rows)
    survey = fmtkit.inspect(path, tokenizer=tokenizer, chat_template=str(template))
    (found,) = survey.findings
    assert (found.code, found.count) == ("template_refused", 19)
    assert any("no system here" in note for note in survey.notes)
    assert survey.lengths_rows == 1


def test_prompts_shared_by_splits_are_found(tmp_path):
    rows = [sick_rows.clean(number) for number in range(30)]
    train = write(tmp_path / "train.jsonl", rows[:20])
    test = write(tmp_path / "test.jsonl", [*rows[20:], sick_rows.last(rows[5], "rejected", "No.")])
    survey = fmtkit.inspect([train, test])
    (found,) = survey.findings
    assert (found.code, rows_of(survey)["prompt_in_splits"]) == ("prompt_in_splits", [5, 30])
    places = [(Path(p.source).name, p.source_row, p.line) for p in found.places]
    assert places == [("train.jsonl", 5, 6), ("test.jsonl", 10, 11)]


def test_labels_out_of_balance_come_with_weights(tmp_path):
    rows = [{"question": f"q{i}", "completion": f"a{i}", "label": i % 5 == 0} for i in range(100)]
    survey = fmtkit.inspect(write(tmp_path / "kto.jsonl", rows))
    (found,) = survey.findings
    assert (found.code, found.details["desirable_weight_from"]) == ("label_balance", 4.0)


def test_soft_and_missing_step_labels_are_found(tmp_path):
    rows = [{"prompt": f"p{i}", "completions": ["a", "b"], "labels": [1.0, 0.0]} for i in range(9)]
    rows[3]["labels"] = [0.7, 1.0]
    survey = fmtkit.inspect(write(tmp_path / "prm.jsonl", rows), type="stepwise_supervised")
    assert rows_of(survey) == {"soft_labels": [3]}


def test_bad_rows_are_counted_and_shown(tmp_path):
    rows = [{"question": "q", "chosen": f"a{i}", "rejected": "b"} for i in range(10)]
    rows[3]["chosen"] = 7  # type: ignore[assignment]
    path = write(tmp_path / "intel.jsonl", rows)
    with path.open("a") as file:
        file.write("{not json\n")
    survey = fmtkit.inspect(path, type="intel")
    assert survey.ledger["reasons"] == {"json_syntax": 1, "type_error": 1}
    places = {bad.code: (bad.place.row, bad.place.line) for bad in survey.bad_rows}
    assert places == {"json_syntax": (10, 11), "type_error": (3, 4)}
    assert survey.found(("type_error", "length_bias")) == ("type_error",)


def test_columns_that_start_late_are_seen(tmp_path):
    rows = [{"question": f"q{i}", "chosen": f"a{i}", "rejected": "b"} for i in range(50)]
    rows[40]["late"] = "x"
    survey = fmtkit.inspect(write(tmp_path / "intel.jsonl", rows))
    columns = {column.name: column for column in survey.columns}
    assert columns["late"].null_share == pytest.approx(0.98)
    assert columns["chosen"].kinds == {"text": 50}


def test_a_file_that_fits_no_type_is_still_described(tmp_path):
    survey = fmtkit.inspect(write(tmp_path / "x.jsonl", [{"foo": 1, "bar": None}, {"foo": "a"}]))
    assert (survey.type, survey.rows_read) == (None, 2)
    assert {c.name: (c.kinds, c.null_share) for c in survey.columns} == {
        "foo": ({"integer": 1, "text": 1}, 0.0),
        "bar": ({}, 1.0),
    }
    assert "no type fits" in survey.notes[0]
    assert "whose columns are foo, bar" in survey.notes[0]
    assert "--plugin FILE.py" in survey.notes[0]


def test_scripts_are_told_by_unicode_block(tmp_path):
    rows = [{"question": "abcd", "chosen": "приветы", "rejected": "漢字かな"}]
    survey = fmtkit.inspect(write(tmp_path / "intel.jsonl", rows))
    assert {name: round(share * 15) for name, share in survey.scripts.items()} == {
        "Latin": 4, "Cyrillic": 7, "Han": 2, "Kana": 2,
    }  # fmt: skip


@needs_goldens
def test_a_sample_is_labelled_as_one(tmp_path, tokenizer):
    path = write(tmp_path / "pairs.jsonl", [sick_rows.clean(number) for number in range(400)])
    survey = fmtkit.inspect(path, tokenizer=tokenizer, sample=100)
    assert survey.lengths_rows == 100
    assert any("--sample" in note for note in survey.notes)


@needs_goldens
def test_the_survey_does_not_depend_on_the_number_of_workers(tmp_path, tokenizer):
    rows, _ = sick_rows.sick()
    path = write(tmp_path / "pairs.jsonl", rows)
    one, three = (fmtkit.inspect(path, tokenizer=tokenizer, workers=n).as_dict() for n in (1, 3))
    assert one == three


@needs_goldens
@pytest.mark.parametrize(("type", "unit"), [("openai", "characters"), ("chatml.openai", "tokens")])
def test_a_row_on_the_page_has_the_size_that_its_unit_says(tmp_path, type, unit):
    row = {"messages": [{"role": "user", "content": "how"}, {"role": "assistant", "content": "so"}]}
    source = write(tmp_path / "one.jsonl", [row])
    options = InspectOptions(type=type, tokenizer=str(ROOT / "fixtures/tokenizer"))
    page = html.render(run(str(source), options))
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    (((size, trained, named),),) = (entry[6] for entry in data["rows"])
    assert named == unit
    bare = len("[user]\nhow\n[assistant]\nso")
    assert (size, trained) == (bare, 0) if unit == "characters" else 0 < trained < size


def test_a_survey_fits_its_schema(tmp_path):
    rows, _ = sick_rows.sick()
    path = write(tmp_path / "pairs.jsonl", [*rows, {"chosen": 1}])
    # The repository's own, which a clone has anywhere.
    own = str(ROOT / "fixtures/tokenizer")
    survey = fmtkit.inspect(
        path,
        tokenizer=own,
        chat_template="chatml",
        type="ultra",
        show_mask=2,
        max_length=[64],
    )
    assert survey.masks
    schema = catalogue.schema("survey")
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(json.dumps(survey.as_dict())), schema)
    bare = fmtkit.inspect(write(tmp_path / "x.jsonl", [{"foo": 1}]))
    jsonschema.validate(json.loads(json.dumps(bare.as_dict())), schema)


def test_what_is_missing_is_said_in_one_line(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"foo": 1}])
    with pytest.raises(ColumnMismatchError, match="question"):
        fmtkit.inspect(path, type="intel")
    with pytest.raises(TokenizerError, match="no such folder"):
        fmtkit.inspect(path, tokenizer="./nowhere")
    with pytest.raises(TypeError, match="did you mean 'tokenizer'"):
        fmtkit.inspect(path, tokeniser="x")


TYPES = {
    "gsm8k.bradley_terry.jsonl": "bradley_terry.chat_template",
    "gsm8k.ebft_opencode.jsonl": "question_answer",
    "gsm8k.kto_intel.jsonl": "intel",
    "gsm8k_example_model_solutions.jsonl": "graded",
    "gsm8k_outcome_steps.stepwise.jsonl": "stepwise_supervised",
    "gsm8k_pairs.chatml_intel.jsonl": "intel",
    "gsm8k_rank_ties.zephyr_nectar.jsonl": "nectar",
    "gsm8k_test.jsonl": "gsm8k",
    "lf_dpo.argilla_chat.jsonl": "argilla_chat",
    "lf_dpo.ultra.jsonl": "ultra",
    "llamafactory_alpaca_en_demo.json": "alpaca",
    "llamafactory_dpo_en_demo.json": "sharegpt_preference",
    "llamafactory_glaive_toolcall_en_demo.json": "sharegpt",
    "llamafactory_kto_en_demo.json": "messages_label",
    "nemogym_example_single_tool_call.jsonl": "nemo_gym",
    "nemogym_math_with_judge.jsonl": "nemo_gym",
    "nemogym_mcqa.jsonl": "nemo_gym",
    "nemogym_reasoning_gym.jsonl": "nemo_gym",
    "tinker_conversations.jsonl": "openai",
}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data/real")
@pytest.mark.parametrize("name", sorted(TYPES))
def test_the_type_of_a_real_file_is_named(name):
    survey = fmtkit.inspect(REAL / name, limit=200)
    assert survey.best_guess == TYPES[name]
    assert survey.rows > 0
    assert survey.lengths_rows == survey.rows


def test_the_replies_of_a_ranking_are_looked_at_one_by_one(tmp_path):
    rows = [
        {
            "prompt": f"Which {i}?",
            "answers": [{"answer": f"This {i}.", "rank": 1}, {"answer": f"That {i}.", "rank": 2}],
        }
        for i in range(9)
    ]
    rows[4]["answers"][1]["answer"] = "<think>Hm"  # type: ignore[index]
    path = write(tmp_path / "ranked.jsonl", rows)
    survey = fmtkit.inspect(path, type="nectar", options={"pairs": "none"})
    assert survey.table == "Ranking"
    assert rows_of(survey) == {"unclosed_think": [4]}
    assert {figures.name for figures in survey.lengths} == {"prompt", "replies"}


def test_a_file_of_junk_says_why_no_row_could_be_read(tmp_path):
    (tmp_path / "junk.jsonl").write_bytes(b"junk\n{\n\xff\n")
    survey = fmtkit.inspect(str(tmp_path / "junk.jsonl"))
    (note,) = survey.notes
    assert note.startswith("no row could be read (json_syntax 2, invalid_utf8 1)")


def test_texts_of_parquet_that_are_no_utf8_are_passed_over(tmp_path):
    bytes_ = pa.array([b"Why?", b"\xff", b"How?"])
    column = pa.StringArray.from_buffers(3, *bytes_.buffers()[1:])
    table = pa.table({"question": column, "chosen": ["a"] * 3, "rejected": ["b"] * 3})
    pq.write_table(table, tmp_path / "a.parquet")
    for name in (None, "intel"):
        survey = fmtkit.inspect(str(tmp_path / "a.parquet"), name)
        assert (survey.rows_read, survey.rows) == (3, 2)
