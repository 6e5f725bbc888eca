"""A map file says which columns a source has, in a type's words or in LLaMA-Factory's."""

import json

import pytest
from runs import fmtkit as command
from test_engines import TOKENIZER

import fmtkit
from fmtkit.core.errors import OptionError

ROWS = [{"q": "Hi", "good": "a", "bad": "b"}] * 3


def write(path, value):
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return str(path)


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "rows.jsonl", "".join(json.dumps(row) + "\n" for row in ROWS))


@pytest.mark.parametrize("name", ["map.json", "map.yaml"])
def test_a_plain_map_file_is_as_good_as_flags(tmp_path, source, name):
    columns = {"question": "q", "chosen": "good", "rejected": "bad"}
    given = write(tmp_path / name, columns)
    told = fmtkit.table(source, "intel", map_file=given)
    assert told.equals(fmtkit.table(source, "intel", columns=columns))
    # What is said at the call counts.
    assert fmtkit.table(source, "intel", map_file=given, columns={"chosen": "q"})[
        "chosen"
    ].to_pylist()[0] == [{"role": "assistant", "content": "Hi"}]


def test_an_inspection_of_a_config_reads_by_a_map_file(tmp_path, source, capsys):
    given = write(tmp_path / "map.json", {"question": "q", "chosen": "good", "rejected": "bad"})
    config = write(
        tmp_path / "dpo.yaml",
        {
            "base_model": TOKENIZER,
            "chat_template": "llama3",
            "rl": "dpo",
            "datasets": [{"path": source, "type": "intel"}],
        },
    )
    done = command(capsys, "inspect", "-c", config, "--map-file", given, "--json")
    assert (done.code, json.loads(done.out)["rows"]) == (0, len(ROWS))


def test_a_dataset_info_is_read_in_its_own_words(tmp_path, source):
    info = {
        "other": {"file_name": "other.json", "columns": {"prompt": "x"}},
        "mine": {
            "file_name": "rows.jsonl",
            "ranking": True,
            "columns": {"prompt": "q", "chosen": "good", "rejected": "bad"},
        },
    }
    given = write(tmp_path / "dataset_info.json", info)
    (row, *_) = fmtkit.table(source, "alpaca", map_file=given).to_pylist()
    assert [row[name][-1]["content"] for name in ("prompt", "chosen", "rejected")] == [
        "Hi",
        "a",
        "b",
    ]
    assert fmtkit.table(source, "alpaca", map_file=f"{given}#mine").num_rows == 3


def test_tags_name_the_keys_and_the_speakers_of_messages(tmp_path):
    talk = [{"who": "Ann", "says": "Hi"}, {"who": "Bot", "says": "Ho"}]
    source = write(tmp_path / "rows.jsonl", json.dumps({"talk": talk}) + "\n")
    tags = {"role_tag": "who", "content_tag": "says", "user_tag": "Ann", "assistant_tag": "Bot"}
    info = {"mine": {"columns": {"messages": "talk"}, "tags": tags}}
    given = write(tmp_path / "dataset_info.json", info)
    (row,) = fmtkit.table(source, "sharegpt", map_file=given).to_pylist()
    assert [(m["role"], m["content"]) for m in row["messages"]] == [
        ("user", "Hi"),
        ("assistant", "Ho"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[1]", "must be an object (names and values)"),
        ('{"question": 1}', "question: give the path of a column as text"),
        ('{"nothing": "q"}', "nothing is not a column of type intel"),
        ('{"a": {"columns": {}}, "b": {"columns": {}}}', "#NAME, with one of a, b"),
        ('{"a": {"tags": {"odd_tag": "x"}}}', "odd_tag 'x' is not supported"),
    ],
)
def test_a_map_file_that_says_nothing_is_one_line(tmp_path, source, text, words):
    with pytest.raises(OptionError, match="--map-file") as error:
        fmtkit.table(source, "intel", map_file=write(tmp_path / "map.json", text))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_data_set_that_is_not_there_is_named_with_the_near_one(tmp_path, source):
    info = write(tmp_path / "dataset_info.json", {"mine": {"columns": {}}})
    with pytest.raises(OptionError, match="did you mean 'mine'"):
        fmtkit.table(source, "intel", map_file=f"{info}#mime")


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_the_delimiter_of_a_csv_is_sniffed(tmp_path, mark):
    rows = [["question", "chosen", "rejected"], ["Hi, you", "a;b", "c|d\te"]] * 1
    text = "".join(mark.join(f'"{cell}"' for cell in row) + "\n" for row in rows)
    (made,) = fmtkit.table(write(tmp_path / "rows.csv", text), "intel").to_pylist()
    assert made["prompt"][0]["content"] == "Hi, you"
    assert made["rejected"][0]["content"] == "c|d\te"


def test_a_csv_of_one_column_is_not_cut_at_what_is_in_its_texts(tmp_path):
    source = write(tmp_path / "rows.csv", "text\none; two\nthree\n")
    assert fmtkit.table(source, "text")["text"].to_pylist() == ["one; two", "three"]


def test_a_delimiter_that_is_given_counts(tmp_path):
    source = write(tmp_path / "rows.csv", "question:answer\nHi, you:Ho; ho\n")
    (made,) = fmtkit.table(source, "question_answer", delimiter=":").to_pylist()
    assert made["completion"][0]["content"] == "Ho; ho"
    survey = fmtkit.inspect(source, delimiter=":")
    assert "--delimiter :" in (survey.command or "")
    with pytest.raises(OptionError, match="give one character"):
        fmtkit.table(source, "question_answer", delimiter="::")


def test_a_history_in_a_csv_is_read(tmp_path):
    cells = ["And 3?", "9", '"[[""1?"", ""1""]]"']
    text = "query;response;history\n" + ";".join(cells) + "\n"
    (made,) = fmtkit.table(write(tmp_path / "rows.csv", text), "question_answer").to_pylist()
    assert [turn["content"] for turn in made["prompt"]] == ["1?", "1", "And 3?"]
