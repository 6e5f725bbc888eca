"""What goes wrong in a training process, or would, is one line with the right exit code."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import OptionError, TokenizerError
from fmtkit.training.building import build
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import failures, process
from fmtkit.training.run import run as training_run


def keys_of(folder: Path, model: object, **keys) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "rows.parquet"
    if not data.exists():
        tiny.write_table("Preference", data)
    return {
        **tiny.STEP,
        "base_model": str(model),
        "rl": "dpo",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data)}],
        "max_steps": 2,
        **keys,
    }


def prepared(keys: dict[str, object]) -> Path:
    plan = planning.plan(keys)
    tiny.check(plan)
    training_run.prepare(plan, resume=False, rebuild=False)
    return plan.run


def told(capfd, run: Path) -> tuple[int, str]:
    """Run the training process here; return its exit code and its error line."""
    capfd.readouterr()
    code = process.main([str(run)])
    error = capfd.readouterr().err
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, error
    return code, lines[0]


@pytest.fixture
def copy(model, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("key", ["base_model", "ref_model"])
def test_weights_that_are_cut_short_are_found_before_anything_is_converted(
    key, copy, model, tmp_path
):
    file = copy / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    named = {"base_model": str(model), key: str(copy)}
    words = rf"{key}: .*model.safetensors is cut short: it has {len(data) // 2:,} of {len(data):,} "
    with pytest.raises(OptionError, match=words):
        prepared(keys_of(tmp_path, model) | named)
    file.write_bytes(b"")
    with pytest.raises(OptionError, match="do not hold its header"):
        prepared(keys_of(tmp_path, model) | named)
    assert not (tmp_path / "run" / "data").exists()


@pytest.mark.parametrize("text", ["", '{"architectures": [', "[]"])
def test_a_config_of_a_model_that_is_not_whole_is_one_line(text, copy, tmp_path):
    (copy / "config.json").write_text(text)
    with pytest.raises(OptionError, match=r"base_model: .*config.json"):
        prepared(keys_of(tmp_path, copy))


def test_a_shard_that_is_not_there_is_named(copy, tmp_path):
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(OptionError, match=r"model-00001-of-00002.safetensors, which"):
        prepared(keys_of(tmp_path, copy))


def test_a_tokenizer_larger_than_the_vocabulary_is_one_line(copy, tmp_path):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "vocab_size": 100}))
    words = "has 100 embeddings, and the tokenizer of .* has ids up to"
    with pytest.raises(OptionError, match=words):
        prepared(keys_of(tmp_path, copy))
    assert issubclass(TokenizerError, ValueError)


def test_an_id_without_an_embedding_is_explained(model, tmp_path, capfd, monkeypatch):
    from trl import DPOTrainer

    run = prepared(keys_of(tmp_path, model))

    def raising(*_, **__):
        raise IndexError("index out of range in self")

    monkeypatch.setattr(DPOTrainer, "compute_loss", raising)
    code, line = told(capfd, run)
    assert code == 2 or "no embedding" in line
    assert "the tokenizer has ids that the model has no embedding for" in line


def test_rows_of_which_no_token_is_trained_on_are_one_line(model, tmp_path, capfd):
    conversation = [
        {"role": "user", "content": "red"},
        {"role": "assistant", "content": "blue", "train": False},
    ]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"messages": conversation}) + "\n" for _ in range(8)))
    keys = keys_of(tmp_path, model, rl=None) | {"datasets": [{"path": str(data), "type": "openai"}]}
    del keys["rl"]
    code, line = told(capfd, prepared(keys))
    assert code == 2
    assert "no token of any row is trained on" in line


@pytest.mark.slow
def test_rows_that_the_trainer_leaves_out_are_counted_in_its_output_and_report(
    model, tmp_path, capfd
):
    def conversation(number: int, *, trained: bool) -> list[dict[str, object]]:
        reply = {"role": "assistant", "content": "blue", "train": trained}
        return [{"role": "user", "content": f"red {number}"}, reply]

    lines = [conversation(n, trained=n % 4 > 0) for n in range(8)] + [
        conversation(1, trained=True)
    ] * 2
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"messages": line}) + "\n" for line in lines))
    keys = keys_of(tmp_path, model) | {
        "datasets": [{"path": str(data), "type": "openai"}],
        "dataset_exact_deduplication": True,
    }
    del keys["rl"]
    run = prepared(keys)
    assert process.main([str(run)]) == 0
    duplicates = "dataset_exact_deduplication: 2 of 10 rows are duplicates and are left out"
    masked = "2 of 8 rows to train on are left out: SFTTrainer cannot use them"
    printed = capfd.readouterr().err
    found = json.loads((run / "report.json").read_text())["findings"]
    for words in (duplicates, masked):
        assert f"note: {words}" in printed
        assert [one.startswith(words) for one in found].count(True) == 1


@pytest.mark.slow
def test_rows_of_a_process_reward_model_without_a_step_within_the_length_are_counted(
    model, tmp_path, capfd
):
    rows = [
        {"prompt": "red " * (1 + 100 * (n == 3)), "completions": ["blue"], "labels": [True]}
        for n in range(8)
    ]
    data = tmp_path / "steps.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = keys_of(tmp_path, model, rl="prm", sequence_len=32, excess_length_strategy="keep") | {
        "datasets": [{"path": str(data), "type": "stepwise_supervised"}]
    }
    run = prepared(keys)
    assert process.main([str(run)]) == 0
    words = "1 of 8 rows to train on are left out: Trainer cannot use them with max_length 32"
    assert f"note: {words}" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "trainer_state.json"])
def test_a_full_disk_is_one_line_and_names_the_way_on(name, model, tmp_path, capfd):
    run = prepared(keys_of(tmp_path, model, save_strategy="steps", save_steps=1))
    checkpoint = run / "checkpoints" / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    # The kernel answers what is written there with ENOSPC, whatever language asks.
    (checkpoint / name).symlink_to("/dev/full")
    code, line = told(capfd, run)
    assert code == 3
    assert f"the disk of {run} is full" in line
    assert "--resume continues from the last complete checkpoint" in line


def test_full_disks_are_told_by_any_library(tmp_path):
    from safetensors import SafetensorError

    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    for error in (SafetensorError(said), OSError(28, "No space left on device")):
        assert failures.explained(error, tmp_path, TrainingError).exit_code == 3
    missing = failures.explained(OSError(2, "No such file"), tmp_path, TrainingError)
    assert missing.exit_code == TrainingError.exit_code


def test_what_a_trainer_refuses_as_it_is_made_is_one_line(model, tmp_path, capfd, monkeypatch):
    def refusing(*_):
        raise ValueError("first line\nsecond line")

    run = prepared(keys_of(tmp_path, model))
    monkeypatch.setattr(build, "make_trainer", refusing)
    code, line = told(capfd, run)
    assert code == 2
    assert line.startswith("error: ValueError: first line (test_training_failures.py:")
    assert line.endswith(f"; {run / failures.FILE} has the traceback")
    assert "second line" in (run / failures.FILE).read_text()


@pytest.mark.parametrize("name", ["_save", "_trained", "_report"])
def test_names_of_functions_do_not_decide_the_exit_code(name, model, tmp_path, capfd, monkeypatch):
    def refusing(*_):
        raise ValueError("not yet")

    refusing.__code__ = refusing.__code__.replace(co_name=name)
    monkeypatch.setattr(build, "make_trainer", refusing)
    assert told(capfd, prepared(keys_of(tmp_path, model)))[0] == OptionError.exit_code


def test_what_a_trainer_raises_in_a_step_is_one_line(model, tmp_path, capfd, monkeypatch):
    from trl import DPOTrainer

    def broken(*_, **__):
        raise KeyError("logits")

    monkeypatch.setattr(DPOTrainer, "compute_loss", broken)
    code, line = told(capfd, prepared(keys_of(tmp_path, model)))
    assert code == 1
    assert line.startswith("error: KeyError: 'logits' (test_training_failures.py:")


def test_a_package_that_an_optimizer_lacks_is_told_before_the_run(model, tmp_path):
    pytest.importorskip("transformers")
    from importlib.util import find_spec

    if find_spec("bitsandbytes"):
        pytest.skip("bitsandbytes is installed")
    with pytest.raises(RefusalError, match="bitsandbytes: pip install bitsandbytes"):
        prepared(keys_of(tmp_path, model, optimizer="adamw_bnb_8bit"))


@pytest.mark.parametrize(
    ("keys", "dtype", "origin"),
    [
        ({"bf16": True}, "bfloat16", "bf16"),
        ({"bf16": "auto"}, "bfloat16 or float32", "bf16"),
        ({"bf16": False}, "float32", "default of fmtkit"),
        ({"bf16": True, "torch_dtype": "float32"}, "float32", "torch_dtype"),
        ({}, "float32", "default of fmtkit"),
    ],
)
def test_bf16_is_the_precision_of_the_weights_too(keys, dtype, origin, model, tmp_path):
    plan = planning.plan({k: v for k, v in keys_of(tmp_path, model).items() if k != "bf16"} | keys)
    argument = plan.arguments.model["dtype"]
    assert argument.value == dtype
    assert origin in argument.origin


@pytest.mark.parametrize("adapter", [None, "lora"])
def test_weights_are_loaded_in_bfloat16(adapter, model, tmp_path):
    import torch

    run = prepared(keys_of(tmp_path, model, bf16=True, **({"adapter": adapter} if adapter else {})))
    from fmtkit.training.planning import job

    process.quiet()
    work = job.read(run)
    trainer = build.make_trainer(work, build.parts_of(work, []))
    base = [p.dtype for n, p in trainer.model.named_parameters() if "lora" not in n]
    assert set(base) == {torch.bfloat16}
    assert next(trainer.ref_model.parameters()).dtype == torch.bfloat16 if not adapter else True
