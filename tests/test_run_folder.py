"""A run folder is a run's own: what a run reads, and what is not of a run, stays as it is."""

import gc
import json
from pathlib import Path

import pytest
import yaml

from fmtkit.core.errors import FmtkitError, OptionError, OutputExistsError
from fmtkit.training.config.config import dumps, load
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.run import process, run_folder, run_lock
from fmtkit.training.run.run import train

PAIR = {"prompt": "q", "chosen": "a", "rejected": "b"}


def write(folder, **keys):
    """Write a configuration and its data; return the file."""
    data = folder / "pairs.jsonl"
    data.write_text(json.dumps(PAIR) + "\n")
    values = {
        "base_model": "m",
        "rl": "dpo",
        "datasets": [{"path": str(data), "type": "preference.standard"}],
        "output_dir": str(folder / "run"),
    }
    values |= keys
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


def check(path, *, resume=False):
    run_folder.check(Run(planning.plan(path, partial=True), resume=resume))


@pytest.fixture
def config(tmp_path):
    return write(tmp_path, datasets=[{"path": str(tmp_path / "pairs.jsonl"), "type": "intel"}])


@pytest.mark.parametrize(
    "name", [*run_folder.SETTINGS, *run_folder.KEPT, "data/mine.jsonl", "model/config.json"]
)
def test_what_no_run_wrote_is_never_written_over_nor_moved(tmp_path, config, name):
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    with pytest.raises(OutputExistsError, match="no run of fmtkit wrote it; choose another"):
        check(config)
    assert path.read_text() == "{}"


def test_other_files_and_empty_folders_are_in_nobodys_way(tmp_path, config):
    (tmp_path / "run" / "data").mkdir(parents=True)
    (tmp_path / "run" / "notes.md").touch()
    check(config)


def test_processes_of_one_run_share_its_folder(tmp_path):
    with run_lock.hold(tmp_path) as lock:
        lock.share()
        process = run_lock.RunLock(tmp_path)
        process.share()
        lock.release()
        another = run_lock.RunLock(tmp_path)
        with pytest.raises(OutputExistsError):
            another.take()
        process.release()
        another.take()
        with pytest.raises(OutputExistsError, match="still uses"):
            run_lock.RunLock(tmp_path).share()
        another.release()


def test_a_training_process_holds_the_lock_until_it_ends(tmp_path, monkeypatch):
    """Alone too: the process that started it may have been killed."""
    seen = []

    def train_for_a_while(work, stop):
        gc.collect()
        with pytest.raises(OutputExistsError, match="still uses"), run_lock.hold(tmp_path):
            pass
        seen.append(work)
        return 0

    monkeypatch.setattr(process.job, "read", lambda run: run)
    monkeypatch.setattr(process, "train", train_for_a_while)
    assert process.main([str(tmp_path)]) == 0
    assert seen == [tmp_path]
    with run_lock.hold(tmp_path):
        assert process.main([str(tmp_path)]) == OutputExistsError.exit_code


def test_a_folder_with_a_plan_of_ours_is_a_runs_own(tmp_path, config):
    run = tmp_path / "run"
    run.mkdir()
    plan = planning.plan(config, partial=True)
    (run / "plan.json").write_text(plan.dumps())
    (run / "model").mkdir()
    (run / "config.yaml").touch()
    check(config)


@pytest.mark.parametrize("key", ["base_model", "ref_model", "tokenizer_config"])
@pytest.mark.parametrize("name", ["model", "merged", "checkpoints/checkpoint-2"])
def test_a_model_that_a_run_reads_is_not_moved_by_it(tmp_path, config, key, name):
    model = tmp_path / "run" / name
    model.mkdir(parents=True)
    keys = yaml.safe_load(config.read_text()) | {key: str(model)}
    config.write_text(yaml.safe_dump(keys))
    with pytest.raises(OptionError, match=r"holds, the source .*; choose another output_dir"):
        check(config)
    if name.startswith("checkpoints"):
        # A run that goes on leaves the checkpoints where they are.
        (tmp_path / "run" / "plan.json").write_text(planning.plan(config, partial=True).dumps())
        check(config, resume=True)


def test_a_config_in_the_run_folder_is_not_written_over(tmp_path, config):
    run = tmp_path / "run"
    run.mkdir()
    (run / "plan.json").write_text(planning.plan(config, partial=True).dumps())
    own = run / "config.yaml"
    own.write_text("# mine\n" + config.read_text())
    with pytest.raises(OptionError, match=r"config.yaml is the source"):
        check(own)
    # A run's own config, trained again, is written as it is.
    own.write_text(dumps(load(config)))
    check(own)


def test_data_that_a_run_would_move_is_refused(tmp_path, config):
    source = tmp_path / "run" / "completions.parquet"
    source.parent.mkdir()
    source.touch()
    keys = yaml.safe_load(config.read_text()) | {
        "datasets": [{"path": str(source), "type": "intel"}]
    }
    config.write_text(yaml.safe_dump(keys))
    with pytest.raises(OptionError, match="choose another output_dir"):
        check(config)


@pytest.mark.parametrize("url", ["s3://bucket/run", "hf://a/b", "file://localhost"])
def test_an_output_dir_that_is_a_url_is_refused_by_name(tmp_path, config, url):
    if url.startswith("file"):
        keys = yaml.safe_load(config.read_text()) | {"output_dir": f"file://{tmp_path}/run"}
        config.write_text(yaml.safe_dump(keys))
        assert planning.plan(config, partial=True).run == tmp_path / "run"
        return
    with pytest.raises(OptionError, match=r"output_dir .*fmtkit writes to local files"):
        train(config, overrides=[f"output_dir={url}"], dry_run=True)


def test_training_looks_before_it_writes(tmp_path, config):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("mine")
    before = sorted(Path(tmp_path).rglob("*"))
    with pytest.raises(FmtkitError, match=r"config.yaml is there"):
        train(config, prepare=True)
    with pytest.raises(FmtkitError, match=r"config.yaml is there"):
        train(config, dry_run=True)
    assert sorted(Path(tmp_path).rglob("*")) == before
