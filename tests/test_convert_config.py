"""`fmtkit convert -c`: the datasets of a config become the rows that `fmtkit train` trains on."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from runs import INTEL, KTO, fmtkit, lines

pytest.importorskip("trl")

from fmtkit.options.convert_options import ConvertOptions
from fmtkit.training.data import datasets
from fmtkit.training.data.convert_config import convert_config
from fmtkit.training.planning import plan as planning

LONG = " ".join(["why"] * 300)
CHAT = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def rows_of(method: str) -> tuple[str, list[dict]]:
    """Return a type for a method, and rows of which one is too long."""
    if method in ("sft", "distillation"):
        long = {"messages": [{"role": "user", "content": LONG}, CHAT["messages"][1]]}
        return "openai", [CHAT, long, CHAT]
    if method in ("kto", "bco"):
        liked = {"question": "q", **KTO}
        return "intel", [liked, liked | {"question": LONG}, liked]
    if method == "prm":
        row = {"prompt": "p", "completions": ["one", "two"], "labels": [True, False]}
        return "stepwise_supervised", [row, row | {"prompt": LONG}]
    if method in ("grpo", "gdpo", "rloo"):
        return "gsm8k", [{"question": q, "answer": "a #### 4"} for q in ("q", LONG, "r")]
    return "intel", [INTEL, INTEL | {"question": LONG}, INTEL | {"question": "else"}]


@pytest.fixture
def config(tmp_path, model):
    """Return a function that writes a config over rows and returns its file."""

    def write(method: str = "dpo", rows: list[dict] | None = None, **keys: object) -> Path:
        kind, made = rows_of(method)
        source = tmp_path / "rows.jsonl"
        source.write_bytes(lines(rows or made))
        whole = {
            "base_model": model,
            "rl": method,
            "datasets": [{"path": str(source), "type": kind}],
            "output_dir": str(tmp_path / "run"),
            **keys,
        }
        if method in ("grpo", "gdpo", "rloo"):
            whole |= {"trl": {"reward_funcs": ["accuracy"]}}
        file = tmp_path / "config.yaml"
        file.write_text(yaml.safe_dump({k: v for k, v in whole.items() if v is not None}))
        return file

    return write


def trained(config: Path):
    """Return the rows that a run of the config would train on, as they are converted for it."""
    made = planning.plan(str(config))
    [source], _ = datasets.prepare(made, made.template_text())
    return pq.read_table(list(source.files))


def converted(config: Path, out: Path, **options: object):
    convert_config(config, [], out, ConvertOptions(**options))
    return pq.read_table(out)


@pytest.mark.parametrize("method", ["sft", "dpo", "orpo", "kto", "reward", "prm", "grpo"])
def test_the_rows_are_those_of_a_run(config, tmp_path, method):
    file = config(method, sequence_len=100)
    expected = trained(file)
    found = converted(file, tmp_path / "out.parquet", as_="messages")
    assert expected.num_rows < len(rows_of(method)[1])
    assert found.equals(expected)


def test_rows_of_text_are_as_many_as_those_of_messages(config, tmp_path):
    file = config("dpo", sequence_len=100, chat_template="chatml")
    found = converted(file, tmp_path / "out.parquet")
    assert found.num_rows == trained(file).num_rows == 2
    assert found.column("prompt")[0].as_py().startswith("<|im_start|>")


@pytest.mark.parametrize("given", ["text", "file"])
def test_a_template_in_the_config_is_found_as_text_and_as_a_file(config, tmp_path, given):
    (tmp_path / "mine.jinja").write_text(TEMPLATE)
    value = TEMPLATE if given == "text" else str(tmp_path / "mine.jinja")
    file = config("dpo", chat_template="jinja", chat_template_jinja=value, sequence_len=100)
    found = converted(file, tmp_path / "out.parquet")
    assert found.column("prompt")[0].as_py() == "<user>" + INTEL["question"]
    assert found.num_rows == trained(file).num_rows
    assert planning.plan(str(file)).template_text() == TEMPLATE


def test_a_jinja_template_without_a_text_is_one_line(config, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = config("dpo", chat_template="jinja")
    for command in (("convert", "-c", file, "-o", "x.parquet"), ("train", file, "--prepare")):
        done = fmtkit(capsys, *command)
        assert done.code == 2
        assert "chat_template_jinja" in done.err
        assert "Traceback" not in done.err


def test_flags_win_over_the_config(config, tmp_path):
    file = config("dpo", sequence_len=100, seed=3)
    assert converted(file, tmp_path / "a.parquet", max_length=5000).num_rows == 3
    assert converted(file, tmp_path / "b.parquet", limit=1).num_rows == 1
    assert converted(file, tmp_path / "c.parquet", keep="question").num_columns == 4


def test_a_share_for_validation_is_split_off_in_a_folder(config, tmp_path):
    rows = [INTEL | {"question": f"q{i}"} for i in range(40)]
    file = config("dpo", rows, val_set_size=10)
    convert_config(file, [], tmp_path / "out", ConvertOptions())
    made = planning.plan(str(file))
    datasets.prepare(made, made.template_text())
    for split in ("train", "validation"):
        [own] = (tmp_path / "out" / "data").glob(f"{split}-*")
        [theirs] = (tmp_path / "run" / "data" / "00" / "data").glob(f"{split}-*")
        assert pq.read_table(own).num_rows == pq.read_table(theirs).num_rows
    assert converted(file, tmp_path / "all.parquet").num_rows == 40


def test_what_only_the_trainer_does_is_said(config, tmp_path, capsys):
    source = str(tmp_path / "rows.jsonl")
    entry = {"path": source, "type": "intel", "split": "train[50%:]", "weight": 2}
    file = config("dpo", datasets=[entry], sequence_len=9999)
    done = fmtkit(capsys, "convert", "-c", file, "-o", tmp_path / "x.parquet", "--json")
    assert json.loads(done.out)["rows_written"] == 1
    assert "note:" in done.err
    assert "split" not in done.err
    assert "weight" in done.err


@pytest.mark.parametrize("command", ["convert", "train"])
def test_a_key_at_fault_is_named_with_its_line_and_no_flag_is(command, config, capsys, tmp_path):
    file = config(sequence_len=None, excess_length_strategy="keep", keep=["nope"])
    number = file.read_text(encoding="utf-8").splitlines().index("keep:") + 1
    out = ["-o", tmp_path / "out"] if command == "convert" else []
    done = fmtkit(capsys, command, "-c", file, *out)
    assert done.code == 2
    assert f"{file}:{number}: keep nope: no row has that column" in done.err
    assert "--" not in done.err


def test_a_flag_that_was_typed_is_named_as_it_was_typed(config, capsys, tmp_path):
    done = fmtkit(capsys, "convert", "-c", config(), "-o", tmp_path / "out", "--keep", "nope")
    assert done.code == 2
    assert "--keep nope: no row has that column" in done.err
    assert "config.yaml:" not in done.err
