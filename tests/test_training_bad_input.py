"""What cannot train is one line and exit code 2, before a model is loaded or a process started."""

import json
import re
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import runs
import tiny_training as tiny

from fmtkit.training.run import run as training_run

PAIRS = [{"question": f"q {i}", "chosen": f"good {i}", "rejected": f"bad {i}"} for i in range(8)]
EQUAL = [{**pair, "rejected": pair["chosen"]} for pair in PAIRS]
LABELLED = [{"question": p["question"], "completion": p["chosen"], "label": True} for p in PAIRS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Path(tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE))


def changed(model: Path, folder: Path, file: str, **values) -> str:
    """Copy a model's configuration with some values changed; None takes one away."""
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"):
        (folder / name).write_bytes((model / name).read_bytes())
    facts = json.loads((folder / file).read_text(encoding="utf-8")) | values
    facts = {k: v for k, v in facts.items() if v is not None}
    (folder / file).write_text(json.dumps(facts), encoding="utf-8")
    return str(folder)


def train(capsys, monkeypatch, folder: Path, rows: list[dict], **keys) -> runs.Command:
    """Run `fmtkit train` on these rows; a process that would be started fails the test."""
    monkeypatch.setattr(training_run, "launch", lambda _: pytest.fail("a process was started"))
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    whole = {
        **tiny.STEP,
        "rl": "dpo",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data), "type": "chatml.intel"}],
        **keys,
    }
    config = folder / "c.yaml"
    given = {name: value for name, value in whole.items() if value is not None}
    config.write_text(yaml.safe_dump(given), encoding="utf-8")
    return runs.fmtkit(capsys, "train", config)


def refused(done: runs.Command, words: str) -> None:
    assert done.code == 2, done.err
    assert done.out == ""
    told = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    # Below it the line of the config, and carets.
    lines = [line for line in told if not re.match(r"  +\d* \| ", line)]
    assert len(lines) == 1, done.err
    assert words in lines[0]
    # fmtkit train has no such flags: what a conversion advises is said in keys.
    assert not re.search(r"--(map|option|tokenizer|chat-template|max-length|method|as)\b", lines[0])


CASES = {
    "a missing column": (
        [{"question": "q", "chosen": "a", "rejcted": "b"}],
        {},
        "needs column rejected (near: rejcted; map it with columns: {rejected: rejcted}",
    ),
    "no row is left": ([{**PAIRS[0], "chosen": ""}], {}, "datasets: "),
    "every row is too long": (PAIRS, {"sequence_len": 2}, "datasets: "),
    "chosen equals rejected everywhere": (EQUAL, {}, "no_preference"),
    "labels of one kind": (LABELLED, {"rl": "kto"}, "every label is true"),
    "a batch of one": (LABELLED, {"rl": "kto", "micro_batch_size": 1}, "[kto_batch]"),
    "a batch that is no multiple": (
        PAIRS,
        {"batch_size": 7, "micro_batch_size": 2},
        "[batch_size]",
    ),
    "no file": (PAIRS, {"datasets": [{"path": "./nope.jsonl", "type": "chatml.intel"}]}, "no such"),
    "an unknown type": (
        PAIRS,
        {"datasets": [{"path": "a.jsonl", "type": "chatml.intle"}]},
        "did you mean",
    ),
    "a model that is not there": (PAIRS, {"base_model": "./nowhere"}, "no such folder"),
    "a tracker of no such name": (PAIRS, {"report_to": "wandbb"}, "did you mean 'wandb'?"),
    "a loss of no such name": (PAIRS, {"loss_type": "sigmiod"}, "[loss_type]"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_cannot_train_is_one_line(case, model, tmp_path, capsys, monkeypatch):
    rows, keys, words = CASES[case]
    named = json.dumps(keys).replace("a.jsonl", str(tmp_path / "rows.jsonl"))
    keys = {"base_model": str(model), **json.loads(named)}
    refused(train(capsys, monkeypatch, tmp_path, rows, **keys), words)


def test_a_tracker_that_is_not_installed_is_one_line(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fmtkit.training.planning.device_checks.find_spec", lambda _: None)
    keys = {"base_model": str(model), "report_to": ["tensorboard"]}
    words = "report_to: tensorboard is not installed: pip install tensorboard, or leave it out"
    refused(train(capsys, monkeypatch, tmp_path, PAIRS, **keys), words)


def test_a_missing_chat_template_is_one_line(model, tmp_path, capsys, monkeypatch):
    bare = changed(model, tmp_path / "bare", "config.json")
    rows = tiny.preference_rows(1)
    keys = {"base_model": bare, "datasets": [{"path": str(tmp_path / "rows.jsonl")}]}
    refused(train(capsys, monkeypatch, tmp_path, rows, **keys), "no chat template")


def test_a_tokenizer_without_padding_is_one_line(model, tmp_path, capsys, monkeypatch):
    bare = changed(model, tmp_path / "bare", "tokenizer_config.json", pad_token=None)
    refused(train(capsys, monkeypatch, tmp_path, PAIRS, base_model=bare), "no pad token")


def test_a_reward_model_with_the_wrong_head_is_one_line(model, tmp_path, capsys, monkeypatch):
    wrong = changed(
        model,
        tmp_path / "wrong",
        "config.json",
        architectures=["LlamaForSequenceClassification"],
        id2label={"0": "a", "1": "b"},
    )
    keys = {"base_model": wrong, "rl": None, "reward_model": True}
    refused(train(capsys, monkeypatch, tmp_path, PAIRS, **keys), "has a head of 2 outputs")


def test_a_classifier_is_no_model_for_dpo(model, tmp_path, capsys, monkeypatch):
    wrong = changed(
        model, tmp_path / "w", "config.json", architectures=["LlamaForTokenClassification"]
    )
    refused(
        train(capsys, monkeypatch, tmp_path, PAIRS, base_model=wrong), "trains a language model"
    )
