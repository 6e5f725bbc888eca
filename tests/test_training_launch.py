"""The command follows from the keys: one process, torchrun, or accelerate with a profile."""

from pathlib import Path

import pytest

from fmtkit.core.errors import OptionError, UnknownNameError
from fmtkit.training.config.config import load
from fmtkit.training.planning import visible_gpus
from fmtkit.training.planning.launch import PROFILES, make

RUN = Path("runs/x")


def launch(**keys):
    return make(load(keys), RUN)


def inner(made, name):
    found = made.accelerate[name]
    assert isinstance(found, dict)
    return found


def test_one_process_is_plain_python():
    made = launch()
    assert made.command[1:] == ("-P", "-m", "fmtkit.training.run.process", "runs/x")
    assert not made.needs_cuda


def test_several_processes_go_through_torchrun():
    assert "--nproc_per_node=2" in launch(num_processes=2).command
    assert "fmtkit.training.run.several" in launch(num_processes=2).command


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_written_beside_the_run(profile):
    made = launch(accelerate_config=profile, num_processes=2)
    assert str(RUN / "accelerate.yaml") in made.command
    assert made.accelerate["num_processes"] == (1 if profile == "single" else 2)


@pytest.mark.parametrize("profile", PROFILES)
def test_accelerate_reads_a_profile(profile, tmp_path):
    import yaml

    config_args = pytest.importorskip("accelerate.commands.config.config_args")
    made = launch(accelerate_config=profile, num_processes=2)
    file = tmp_path / "accelerate.yaml"
    file.write_text(yaml.safe_dump(dict(made.accelerate)), encoding="utf-8")
    read = config_args.load_config_from_file(str(file))
    assert read.num_processes == (1 if profile == "single" else 2)


def test_a_file_is_passed_as_it_is(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("num_processes: 2\n", encoding="utf-8")
    assert str(file) in launch(accelerate_config=str(file)).command


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(
        UnknownNameError, match=r"no profile \(accelerate_config\) named 'fsdp3'; did you mean"
    ):
        launch(accelerate_config="fsdp3")


def test_a_missing_file_is_refused():
    with pytest.raises(OptionError, match="no such file"):
        launch(accelerate_config="nowhere.yaml")


def test_the_peers_fsdp_keys_become_version_two():
    made = launch(
        fsdp=["full_shard", "auto_wrap"],
        fsdp_config={
            "fsdp_transformer_layer_cls_to_wrap": "Qwen2DecoderLayer",
            "cpu_offload": True,
        },
    )
    inside = inner(made, "fsdp_config")
    assert inside["fsdp_version"] == 2
    assert inside["fsdp_transformer_layer_cls_to_wrap"] == "Qwen2DecoderLayer"
    assert inside["fsdp_offload_params"] is True
    assert made.needs_cuda


def test_a_deepspeed_file_that_is_absent_becomes_the_stage_it_names():
    made = launch(deepspeed="deepspeed_configs/zero3_bf16.json")
    assert inner(made, "deepspeed_config")["zero_stage"] == 3
    assert "is used instead" in made.notes[0]


def test_a_deepspeed_file_that_is_there_reaches_the_trainer(tmp_path):
    file = tmp_path / "ds.json"
    file.write_text("{}", encoding="utf-8")
    assert launch(deepspeed=str(file)).trainer == {"deepspeed": str(file)}


def test_a_deepspeed_file_without_a_stage_is_refused():
    with pytest.raises(OptionError, match="give one, or zero1, zero2 or zero3"):
        launch(deepspeed="mine.json")


def test_two_ways_of_launching_are_refused():
    with pytest.raises(OptionError, match="deepspeed and fsdp both say how to launch"):
        launch(deepspeed="zero2", fsdp=True)


def test_context_parallelism_splits_each_sequence():
    made = launch(context_parallel_size=2)
    assert inner(made, "parallelism_config")["parallelism_config_cp_size"] == 2
    assert made.trainer == {"pad_to_multiple_of": 4}
    assert made.accelerate["num_processes"] == 2


@pytest.mark.parametrize(
    ("environment", "drivers", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [], True),
        ({"CUDA_VISIBLE_DEVICES": ""}, ["kfd"], False),
        ({}, [], False),
        ({}, ["kfd"], True),
    ],
)
def test_a_gpu_may_be_there_where_a_driver_is(
    environment, drivers, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(visible_gpus, "DRIVER", tmp_path / "nvidia")
    monkeypatch.setattr(visible_gpus, "OTHERS", (tmp_path / "kfd", tmp_path / "dxg"))
    for name in drivers:
        (tmp_path / name).touch()
    assert visible_gpus.may_be_there(environment) is expected
