"""The type of a file is told by its columns and by what they hold."""

from pathlib import Path

import pytest
from runs import INTEL, KTO

from fmtkit.core.errors import ColumnMismatchError, OptionError, UnknownNameError
from fmtkit.detection import detection
from fmtkit.inspection.type_guesses import guess
from fmtkit.running import preparation
from fmtkit.sources.opening import open_sources

USER, BOT, OTHER = (
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "a"},
    {"role": "assistant", "content": "b"},
)
REAL = Path(__file__).parents[2] / "shared/data/real"


def choose(name, rows, method=None, mapping=None):
    return detection.choose(name, rows, method=method, mapping=mapping or {}, source="a.jsonl")


@pytest.mark.parametrize(
    ("name", "row", "table"),
    [
        ("intel", INTEL, "Preference"),
        ("intel", KTO, "Unpaired"),
        ("argilla_chat", {"chosen": [USER, BOT], "rejected": [USER, OTHER]}, "Preference"),
        ("argilla_chat", {"completion": [USER, BOT], "label": True}, "Unpaired"),
        ("argilla_chat", {"chosen": [USER], "completion": [BOT], "label": 0}, "Unpaired"),
        ("passthrough", {"prompt": "p", "completion": "c", "label": True}, "Unpaired"),
        ("passthrough", {"prompt": "p", "completion": "c"}, "Completion"),
        ("passthrough", {"prompt": "p", "completions": ["c"], "labels": [True]}, "Stepwise"),
        ("passthrough", {"messages": [USER, BOT]}, "Conversation"),
        ("passthrough", {"prompt": [USER], "chosen": [BOT], "rejected": [OTHER]}, "Preference"),
        ("passthrough", {"prompt": [USER]}, "Prompt"),
    ],
)
def test_columns_choose_among_the_converters_of_a_name(name, row, table):
    assert choose(name, [row] * 3).table == table


def test_a_few_bad_rows_change_no_choice():
    rows = [INTEL] * 8 + [{"question": None}, KTO]
    assert choose("intel", rows).table == "Preference"


def test_columns_of_both_tables_leave_it_to_the_method():
    row = INTEL | KTO
    assert choose("intel", [row], "kto").table == "Unpaired"
    assert choose("intel", [row], "dpo").table == "Preference"


def test_a_method_that_takes_no_such_table_is_an_error():
    with pytest.raises(OptionError, match="Stepwise"):
        choose("intel", [INTEL], "prm")
    with pytest.raises(UnknownNameError, match="dpo"):
        choose("intel", [INTEL], "dpoo")


def test_an_empty_sample_fits_any_name():
    assert choose("intel", []).name == "intel"


def test_mapped_columns_count_as_there():
    row = {"q": {"text": "x"}, "chosen": "a", "rejected": "b"}
    assert choose("intel", [row], mapping={"question": "q.text"}).table == "Preference"


def test_what_is_missing_is_named_with_what_is_there_and_what_fits():
    with pytest.raises(ColumnMismatchError) as error:
        choose("intel", [{"input": "q", "chosen": "a", "rejected": "b"}])
    for words in ("a.jsonl", "question", "chosen, input, rejected", "icr"):
        assert words in str(error.value)


def best(rows):
    return detection.detect(rows)[0].converter.name


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("intel", INTEL),
        ("alpaca", {"instruction": "i", "input": "", "output": "o"}),
        ("prompt_pairs", {"prompt": "q", "chosen": "a", "rejected": "b"}),
        ("ultra", {"prompt": "q", "chosen": [USER, BOT], "rejected": [USER, OTHER]}),
        (
            "hh_rlhf",
            {"chosen": "\n\nHuman: q\n\nAssistant: a", "rejected": "\n\nHuman: q\n\nAssistant: b"},
        ),
        ("gsm8k", {"question": "q", "answer": "a #### 4"}),
        (
            "nectar",
            {"prompt": "p", "answers": [{"answer": "a", "rank": 1}, {"answer": "b", "rank": 2}]},
        ),
        (
            "sharegpt",
            {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        ),
        ("openai", {"messages": [USER, BOT]}),
    ],
)
def test_a_row_is_detected_by_its_columns(name, row):
    assert best([row] * 3) == name


EXPECTED = {
    "llamafactory_dpo_en_demo.json": ["sharegpt_preference"],
    "llamafactory_kto_en_demo.json": ["messages_label"],
    "llamafactory_alpaca_en_demo.json": ["alpaca"],
    "llamafactory_glaive_toolcall_en_demo.json": ["sharegpt"],
    "gsm8k_test.jsonl": ["gsm8k"],
    "gsm8k_example_model_solutions.jsonl": ["graded"],
    "nemogym_example_single_tool_call.jsonl": ["nemo_gym"],
    "nemogym_math_with_judge.jsonl": ["nemo_gym"],
    "nemogym_mcqa.jsonl": ["nemo_gym"],
    "nemogym_reasoning_gym.jsonl": ["nemo_gym"],
    "tinker_conversations.jsonl": ["openai"],
    "gsm8k_pairs.chatml_intel.jsonl": ["intel"],
    "gsm8k.kto_intel.jsonl": ["intel"],
    "gsm8k_rank_ties.zephyr_nectar.jsonl": ["nectar"],
    "gsm8k.bradley_terry.jsonl": ["icr", "bradley_terry.chat_template"],
    "gsm8k_outcome_steps.stepwise.jsonl": ["stepwise_supervised"],
    "gsm8k.ebft_opencode.jsonl": ["question_answer"],
    "lf_dpo.argilla_chat.jsonl": ["argilla_chat"],
    "lf_dpo.ultra.jsonl": ["ultra"],
}


@pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared/data/real")
@pytest.mark.parametrize("name", EXPECTED)
def test_every_real_file_is_detected_under_a_random_name(tmp_path, name):
    copy = tmp_path / f"zq7{Path(name).suffix}"
    copy.write_bytes((REAL / name).read_bytes())
    [source] = open_sources(str(copy))
    assert guess(preparation.sample_of(source))[0].type in EXPECTED[name]
