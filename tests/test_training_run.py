"""A whole run, in its own processes: convert, train, report, resume, interrupt."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.commands import run_listings
from fmtkit.core.errors import OptionError, ResumeError
from fmtkit.training import train
from fmtkit.training.run import run as runs


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def config(tmp_path, model):
    """Write a configuration and its data; return the file."""
    pairs = [
        {
            "question": row["prompt"][0]["content"],
            "chosen": row["chosen"][0]["content"],
            "rejected": row["rejected"][0]["content"],
        }
        for row in tiny.preference_rows()
    ]
    data = tmp_path / "pairs.jsonl"
    data.write_text("".join(json.dumps(pair) + "\n" for pair in pairs), encoding="utf-8")
    keys = {
        **tiny.STEP,
        "base_model": model,
        "rl": "dpo",
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(data), "type": "chatml.intel"}],
        "adapter": "lora",
        "lora_r": 4,
        "lora_target_linear": True,
        "save_strategy": "steps",
        "save_steps": 2,
        "max_steps": 4,
    }
    file = tmp_path / "dpo.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return file


def metrics(folder: Path) -> dict[int, float]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.mark.slow
def test_a_run_leaves_everything_in_its_folder_and_resumes_with_the_same_data(config, tmp_path):
    outcome = train(config, overrides=["merge_lora=true"])
    run = tmp_path / "run"
    assert outcome.exit_code == 0
    assert outcome.report is not None
    source = tmp_path / "pairs.jsonl"
    told = f"| ↳ {source} | 16 | `{sha256(source.read_bytes()).hexdigest()}` |"
    for folder, library in (("model", "peft"), ("merged", "transformers")):
        card = (run / folder / "README.md").read_text(encoding="utf-8")
        assert f"library_name: {library}" in card
        assert told in card
    assert outcome.report["steps"] == 4
    for name in ("config.yaml", "data", "checkpoints", "metrics.jsonl", "report.json", "model"):
        assert (run / name).exists(), name
    whole = metrics(run)
    # The same run, cut after two steps and resumed, has the same losses.
    shutil_tree(run / "checkpoints" / "checkpoint-4")
    (run / "metrics.jsonl").unlink()
    assert train(config, resume=True, overrides=["merge_lora=true"]).exit_code == 0
    resumed = metrics(run)
    assert set(resumed) == {3, 4}
    assert resumed == pytest.approx({step: whole[step] for step in (3, 4)}, abs=1e-6)


def shutil_tree(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)


def prepared(config, **options):
    """Plan and prepare a run without starting it."""
    from fmtkit.training.planning import plan as planning

    plan = planning.plan(config)
    runs.prepare(plan, resume=options.get("resume", False), rebuild=False)
    return plan


def test_an_earlier_run_is_set_aside_and_not_overwritten(config, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "report.json").write_text("old", encoding="utf-8")
    prepared(config)
    assert not (run / "report.json").exists()
    assert (run / "earlier" / "1" / "report.json").read_text(encoding="utf-8") == "old"


def test_a_resume_where_there_was_no_run_is_refused(config):
    with pytest.raises(ResumeError, match=r"holds no checkpoint, and .*run no run"):
        prepared(config, resume=True)


def checkpoint(folder: Path) -> None:
    """Write what a checkpoint of step 2 holds, as far as it can be told without loading it."""
    from zipfile import ZipFile

    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text('{"global_step": 2}', encoding="utf-8")
    (folder / "adapter_config.json").write_text("{}", encoding="utf-8")
    header = b"{}"
    weights = len(header).to_bytes(8, "little") + header
    (folder / "adapter_model.safetensors").write_bytes(weights)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        with ZipFile(folder / name, "w") as archive:
            archive.writestr("data.pkl", b"")


def test_a_resume_of_another_run_is_refused(config, tmp_path):
    prepared(config)
    checkpoint(tmp_path / "run" / "checkpoints" / "checkpoint-2")
    keys = yaml.safe_load(config.read_text(encoding="utf-8"))
    with pytest.raises(ResumeError, match=r"learning_rate was 0\.001 and is 0\.5"):
        prepared({**keys, "learning_rate": 0.5}, resume=True)


def test_a_resume_may_go_on_for_longer(config, tmp_path):
    prepared(config)
    checkpoint(tmp_path / "run" / "checkpoints" / "checkpoint-2")
    keys = yaml.safe_load(config.read_text(encoding="utf-8"))
    prepared({**keys, "max_steps": 8}, resume=True)


@pytest.mark.slow
def test_a_prepared_run_trains_by_the_command_that_is_printed(config, tmp_path, capsys):
    import runs as commands

    done = commands.fmtkit(capsys, "train", config, "--prepare", "--set", "max_steps=1")
    assert done.code == 0
    assert (tmp_path / "run" / "job.json").is_file()
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert done.out == f"{sys.executable} -P -m fmtkit.training.run.process {tmp_path / 'run'}\n"
    subprocess.run(done.out.split(), check=True, capture_output=True)
    assert json.loads((tmp_path / "run" / "report.json").read_text())["steps"] == 1


@pytest.mark.parametrize("left", [("model",), ("model", "metrics.jsonl", "report.html", "merged")])
def test_a_run_ends_with_what_it_left_and_the_commands_that_go_on(config, tmp_path, capsys, left):
    plan = train(config, dry_run=True).plan
    run = tmp_path / "run"
    for name in left:
        (run / name).mkdir(parents=True)
    report = {"steps": 1, "seconds": 2.5}
    run_listings.print_end(runs.Outcome(plan, 0, report), report)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "dpo -> lora adapter, 1 step\n" in printed.err
    assert all(str(run / name) in printed.err for name in left)
    assert f"next   fmtkit try {run} --prompt TEXT\n" in printed.err
    # Once merged, an adapter needs no second merging.
    assert (f"fmtkit merge {run}\n" in printed.err) == ("merged" not in left)


def test_a_dry_run_writes_nothing(config, tmp_path):
    outcome = train(config, dry_run=True)
    assert outcome.plan.method == "dpo"
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_there_is_one_line_before_any_process(config):
    with pytest.raises(OptionError, match=r"base_model: \./nowhere: no such folder"):
        train(config, overrides=["base_model=./nowhere"])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("adapter=qlora", "quantized weights need a CUDA device"),
        ("accelerate_config=zero2", "launching by accelerate, zero2 needs a CUDA device"),
    ],
)
def test_what_needs_cuda_says_so_before_anything_is_converted(
    config, tmp_path, monkeypatch, override, words
):
    monkeypatch.setattr("fmtkit.training.planning.visible_gpus.may_be_there", lambda _: False)
    for use_cpu, why in (("null", "none is visible"), ("true", "use_cpu: true trains without")):
        with pytest.raises(OptionError, match=f"{words}, and {why}"):
            train(config, overrides=[override, f"use_cpu={use_cpu}"])
    with pytest.raises(OptionError, match=r"use_cpu: true trains without.*\[cpu_only\]"):
        train(config, overrides=[override, "use_cpu=true"], dry_run=True)
    assert not (tmp_path / "run" / "data").exists()


@pytest.mark.parametrize(
    ("optimizer", "package"),
    [
        ("adamw_bnb_8bit", "bitsandbytes"),
        ("paged_adamw_32bit", "bitsandbytes"),
        ("adamw_torch_8bit", "torchao"),
        ("galore_adamw_8bit", "galore-torch"),
        ("schedule_free_adamw", "schedulefree"),
    ],
)
def test_an_optimizer_of_a_package_that_is_not_here_is_told_before_anything_is_converted(
    optimizer, package, config, tmp_path, monkeypatch
):
    monkeypatch.setattr("fmtkit.training.planning.device_checks.find_spec", lambda _: None)
    with pytest.raises(OptionError, match=f"{optimizer} needs the package {package}: pip install"):
        train(config, overrides=[f"optimizer={optimizer}"])
    assert not (tmp_path / "run" / "data").exists()


def test_a_process_without_cuda_says_so_before_a_model_is_loaded(config, monkeypatch, capfd):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    # A driver that cannot be asked: the training process finds out.
    monkeypatch.setattr("fmtkit.training.planning.visible_gpus.may_be_there", lambda _: True)
    outcome = train(config, overrides=["adapter=qlora", "use_cpu=null"])
    assert outcome.exit_code == 2
    error = capfd.readouterr().err
    assert "quantized weights need a CUDA device, and none is visible" in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_two_processes_train_together(config, tmp_path):
    outcome = train(config, num_processes=2, overrides=["max_steps=2", "ddp_timeout=120"])
    assert outcome.exit_code == 0
    assert set(metrics(tmp_path / "run")) == {1, 2}
