"""Several processes train one model together, or say that they do not."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

pytest.importorskip("trl")

import runs
import tiny_training as tiny

from fmtkit.core.errors import OptionError
from fmtkit.training.building import build
from fmtkit.training.planning import device_checks, launch
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.check import Run
from fmtkit.training.planning.types import Arguments
from fmtkit.training.run import process, run, several

REWARD = "def length(completions, **kwargs): return [float(len(str(c))) for c in completions]\n"
ONLINE = {"reward_funcs": ["rewards.length"], "num_generations": 2, "max_completion_length": 4}
STRIDED = {"mode": "strided", "stride": 4, "context_length": 4, "generate_max_len": 3}
STRIDED |= {"n_samples_per_prompt": 2}
METHODS = {
    "sft": ("Conversation", {}),
    "kto": ("Unpaired", {}),
    "reward": ("Preference", {"reward_model": True}),
    "prm": ("Stepwise", {"process_reward_model": True}),
    "orpo": ("Preference", {}),
    "grpo": ("Prompt", {"trl": ONLINE}),
    "rloo": ("Prompt", {"trl": ONLINE}),
    "ebft": ("", {"trl": {"num_generations": 2, "max_completion_length": 4}}),
    "strided": ("", {"ebft": STRIDED}),
}
EBFT = {"ebft": "ebft_opencode.transform", "strided": "ebft_strided_structured.transform"}


def trained(capfd, folder: Path, model: str, method: str, **keys) -> tuple[dict, dict]:
    """Train a few steps through the command; return the weights and the last line of metrics."""
    from safetensors.torch import load_file

    folder.mkdir()
    table, more = METHODS.get(method, ("Preference", {}))
    rows = {"path": str(folder / "rows.parquet")}
    if method in EBFT:
        rows = {"path": str(folder / "rows.jsonl"), "type": EBFT[method]}
        pairs = [{"input": "the red apple", "output": f"a big stone {i} of"} for i in range(16)]
        Path(rows["path"]).write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    else:
        tiny.write_table(table, folder / "rows.parquet")
    (folder / "rewards.py").write_text(REWARD)
    rl = "ebft" if method in EBFT else method
    named = {} if method in {"sft", "reward", "prm"} else {"rl": rl}
    # Nothing says where to train: on a machine without a GPU that is the CPU.
    step = {name: value for name, value in tiny.STEP.items() if name != "use_cpu"}
    whole = {
        **step,
        **named,
        **more,
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": [rows],
        "max_steps": 2,
        **keys,
    }
    (folder / "c.yaml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    done = runs.fmtkit(capfd, "train", folder / "c.yaml")
    assert done.code == 0, done.err
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    last = [log for line in lines if "loss" in (log := json.loads(line))][-1]
    file = next((folder / "run" / "model").glob("*.safetensors"))
    return load_file(file), last


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sft", "dpo"])
def test_two_processes_learn_what_one_learns_from_twice_the_batch(method, model, tmp_path, capfd):
    both, log = trained(capfd, tmp_path / "two", model, method, num_processes=2)
    alone, other = trained(capfd, tmp_path / "one", model, method, micro_batch_size=4)
    assert log["num_tokens"] == other["num_tokens"]
    assert log["loss"] == pytest.approx(other["loss"], rel=1e-3)
    assert set(both) == set(alone)
    assert all(value.allclose(alone[name], atol=1e-4) for name, value in both.items())


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"sft"}))
def test_two_processes_go_through_the_rows_twice_as_fast(method, model, tmp_path, capfd):
    _, two = trained(capfd, tmp_path / "two", model, method, num_processes=2)
    _, one = trained(capfd, tmp_path / "one", model, method)
    assert two["epoch"] == pytest.approx(2 * one["epoch"])


def job_of(**keys):
    plan = planning.plan({"base_model": "m", "rl": "dpo", **keys}, partial=True)
    return run.job_of(plan, (), (), None)


@pytest.mark.parametrize(
    ("environment", "joined", "keys", "refused"),
    [
        ({}, 1, {}, False),
        ({"WORLD_SIZE": "2"}, 2, {"num_processes": 2}, False),
        ({"WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2"}, 4, {"num_processes": 2}, False),
        # accelerate launch --cpu --num_processes 2 starts one.
        ({}, 1, {"num_processes": 2}, True),
        # Two that do not know of each other.
        ({"WORLD_SIZE": "2"}, 1, {"num_processes": 2}, True),
        ({"WORLD_SIZE": "2"}, 1, {"num_processes": 2, "use_cpu": False}, True),
        ({"WORLD_SIZE": "3"}, 3, {"num_processes": 2}, True),
        ({"WORLD_SIZE": "2"}, 1, {}, True),
    ],
)
def test_processes_that_are_not_as_many_as_were_asked_for_are_refused(
    environment, joined, keys, refused, monkeypatch
):
    for name in ("WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if not refused:
        process.check_world(job_of(**keys), joined)
        return
    with pytest.raises(OptionError, match="processes were to train together") as caught:
        process.check_world(job_of(**keys), joined)
    assert ("need true" in str(caught.value)) is ("use_cpu" in keys)


def test_arguments_with_a_world_size_of_their_own_tell_how_many_train(tmp_path):
    from transformers import TrainingArguments

    @dataclass
    class LikePPOConfig(TrainingArguments):
        """A field hides the property until the trainer sets it."""

        world_size: int | None = None

    arguments = LikePPOConfig(output_dir=str(tmp_path), use_cpu=True)
    assert arguments.world_size is None
    assert build.processes_of(arguments) == 1


@pytest.mark.parametrize(
    ("ended", "code"),
    [
        ([(1, 10), (1, 10)], 1),
        # The one that waited for the killed one was seen first, or at the same look.
        ([(1, 10), (-signal.SIGKILL, 10)], -signal.SIGKILL),
        ([(1, 10), (-signal.SIGKILL, 11)], -signal.SIGKILL),
        # The launcher ends the rest.
        ([(-signal.SIGTERM, 10), (2, 10)], 2),
        ([(-signal.SIGKILL, 40), (2, 10)], 2),
    ],
)
def test_of_processes_that_end_together_the_killed_one_failed_first(ended, code):
    failures = [SimpleNamespace(exitcode=code, timestamp=at) for code, at in ended]
    assert several.exit_code_of(failures) == code


@pytest.mark.parametrize("connected", [False, True])
def test_a_process_ends_without_freeing_what_connects_it(connected, tmp_path):
    init = f"torch.distributed.init_process_group('gloo', 'file://{tmp_path}/store', rank=0, world_size=1)"
    lines = [
        "import atexit, torch",
        "from fmtkit.training.run import process",
        init if connected else "",
        "class Freed:",
        "    def __del__(self): print('freed')",
        "atexit.register(print, 'trackers ended')",
        "kept = Freed()",
        "process.leave(3)",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    said = ["trackers ended"] if connected else ["trackers ended", "freed"]
    assert done.stdout.splitlines() == said


def test_the_processes_of_a_file_of_accelerates_are_counted(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("num_processes: 2\n", encoding="utf-8")
    assert job_of(accelerate_config=str(file)).processes == 2
    assert job_of(accelerate_config=str(file), num_processes=4).processes == 4
    assert job_of(accelerate_config="single", num_processes=4).processes == 1
    file.write_text("mixed_precision: bf16\n", encoding="utf-8")
    assert job_of(accelerate_config=str(file)).processes is None
    for text in ("num_processes: [", "\xff", "- 1\n"):
        file.write_text(text, encoding="latin-1")
        with pytest.raises(OptionError, match=r"accelerate_config: .*mine.yaml"):
            job_of(accelerate_config=str(file))


def test_more_processes_than_gpus_are_refused_before_anything_is_converted(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    here = launch.Launch((), "torchrun")

    def plan(config, how):
        settings = planning.load({"base_model": "m", "rl": "dpo", **config})
        uses_cpu = bool(settings.get("use_cpu"))
        return SimpleNamespace(
            config=settings, launch=how, uses_cpu=uses_cpu, arguments=Arguments()
        )

    def found(config, how=here, **run):
        return device_checks.find_processes(Run(plan(config, how), **run))

    told = found({"num_processes": 2})
    assert told.message.startswith("num_processes: 2 processes for 1 visible GPUs")
    assert found({"num_processes": 2}, trains_here=False) is None
    assert found({"num_processes": 1}) is None
    assert found({"num_processes": 2, "use_cpu": True}) is None
    assert found({"num_processes": 2}, replace(here, is_local=False)) is None
