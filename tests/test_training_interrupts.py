"""A signal ends a run as a whole: one checkpoint, exit code 130, no process left, and a resume."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import yaml

from fmtkit.core.runner import find
from fmtkit.training.building import interrupts
from fmtkit.training.building.callbacks import RunLog, TokenCounter
from fmtkit.training.building.interrupts import Stop

ARGS = SimpleNamespace(world_size=1, device="cpu")


def training_control() -> SimpleNamespace:
    return SimpleNamespace(should_save=False, should_training_stop=False, should_evaluate=True)


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", interrupts.SIGNALS)
def test_a_signal_asks_the_trainer_to_save_and_stop(number, tmp_path):
    stop, control = Stop(), training_control()
    log = RunLog(tmp_path, stop, TokenCounter(), find("dpo"))
    with interrupts.handling(stop.take), stop.while_training():
        press(number)
        log.on_step_end(ARGS, SimpleNamespace(global_step=1), control)
    assert control == SimpleNamespace(
        should_save=True, should_training_stop=True, should_evaluate=False
    )
    assert stop.granted


def test_the_end_of_the_epoch_saves_nothing_again(tmp_path):
    stop, control = Stop(), training_control()
    log = RunLog(tmp_path, stop, TokenCounter(), find("dpo"))
    stop.granted = control.should_save = True
    log.on_epoch_end(ARGS, SimpleNamespace(), control)
    assert not control.should_save
    assert not control.should_evaluate


def test_a_signal_after_the_last_step_does_not_undo_the_run(tmp_path):
    stop = Stop()
    with interrupts.handling(stop.take), stop.while_training():
        press()
    assert stop.asked
    assert not stop.granted


def test_a_signal_that_comes_twice_at_once_is_one_request():
    stop = Stop(same_request=600)
    with interrupts.handling(stop.take), stop.while_training():
        press()
        press()
    assert stop.asked


def test_a_second_signal_interrupts_at_once():
    stop = Stop(same_request=0)
    with interrupts.handling(stop.take), stop.while_training():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()


def test_a_signal_before_the_first_step_interrupts_at_once():
    with interrupts.handling(Stop().take), pytest.raises(KeyboardInterrupt):
        press(signal.SIGTERM)


def test_a_lost_terminal_stays_ignored_where_it_was():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupts.handling(Stop().take):
            press(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_are_put_back():
    before = signal.getsignal(signal.SIGINT)
    with interrupts.handling(Stop().take):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    pytest.importorskip("trl")
    import tiny_training as tiny

    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


def config_of(folder: Path, model: str) -> Path:
    """Write a run that would go on for ever, with an end of epoch that saves."""
    import tiny_training as tiny

    data = folder / "rows.jsonl"
    rows = tiny.preference_rows()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {
        **tiny.STEP,
        "base_model": model,
        "rl": "dpo",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data)}],
        "max_steps": 100000,
        "trainer_args": {"ddp_timeout": 120},
    }
    file = folder / "dpo.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return file


def command(config: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "fmtkit", "train", str(config), *more]


def left(run: Path) -> list[str]:
    """Return the commands of processes that still work on a run."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if str(run) in words and process.status() != psutil.STATUS_ZOMBIE:
            found.append(" ".join(words))
    return found


def steps(run: Path) -> int:
    file = run / "metrics.jsonl"
    return len(file.read_text(encoding="utf-8").splitlines()) if file.is_file() else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "processes", "to"),
    # A terminal sends SIGINT to all processes; `kill` sends a signal to the one that is named.
    [
        (signal.SIGINT, 1, "all"),
        (signal.SIGTERM, 1, "first"),
        (signal.SIGINT, 2, "all"),
        (signal.SIGTERM, 2, "first"),
    ],
)
def test_an_interrupted_run_saves_once_leaves_nothing_and_resumes(
    number, processes, to, model, tmp_path
):
    config, run = config_of(tmp_path, model), tmp_path / "run"
    several = ["--num-processes", str(processes)]
    child = subprocess.Popen(
        command(config, *several),
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while child.poll() is None and steps(run) < 3:
        time.sleep(0.1)
    assert child.poll() is None, child.communicate()
    (os.killpg if to == "all" else os.kill)(child.pid, number)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130, said
    assert "Traceback" not in said
    assert left(run) == []
    (saved,) = (run / "checkpoints").glob("checkpoint-*")
    state = json.loads((saved / "trainer_state.json").read_text(encoding="utf-8"))
    step = state["global_step"]
    assert said.count(f"stopped at step {step}; --resume continues from there") == 1
    assert not (run / "model").exists()
    more = ["--resume", "--set", f"max_steps={step + 2}"]
    done = subprocess.run(
        command(config, *several, *more), check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    logged = [log["step"] for line in lines if "loss" in (log := json.loads(line))]
    assert logged == list(range(1, step + 3))
    assert json.loads((run / "report.json").read_text())["steps"] == step + 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell a child of it")
@pytest.mark.parametrize("processes", [1, 2])
def test_training_ends_with_a_checkpoint_when_its_parent_is_killed(processes, model, tmp_path):
    config, run = config_of(tmp_path, model), tmp_path / "run"
    log = tmp_path / "log"
    with log.open("w") as said:
        parent = subprocess.Popen(
            command(config, "--num-processes", str(processes)), stdout=said, stderr=said
        )
        while parent.poll() is None and steps(run) < 3:
            time.sleep(0.1)
        assert parent.poll() is None, log.read_text()
        trains = [p for p in psutil.process_iter(["cmdline"]) if is_worker(p, run)]
        parent.kill()
        parent.wait()
        _, alive = psutil.wait_procs(trains, timeout=120)
    assert alive == []
    (saved,) = (run / "checkpoints").glob("checkpoint-*")
    step = json.loads((saved / "trainer_state.json").read_text(encoding="utf-8"))["global_step"]
    assert f"stopped at step {step}; --resume continues from there" in log.read_text()


@pytest.mark.slow
def test_no_second_run_in_the_folder_of_one_that_goes_on(model, tmp_path):
    config, run = config_of(tmp_path, model), tmp_path / "run"
    first = subprocess.Popen(command(config), stderr=subprocess.PIPE, text=True)
    while first.poll() is None and steps(run) < 1:
        time.sleep(0.1)
    (trains,) = [p.pid for p in psutil.process_iter(["cmdline"]) if is_worker(p, run)]
    for more in ([], ["--resume"]):
        before = steps(run)
        second = subprocess.run(command(config, *more), check=False, capture_output=True, text=True)
        assert second.returncode == 2
        said = " ".join(second.stderr.split())
        assert f"{run}: a run that was started earlier still uses this folder" in said, second
        (named,) = re.findall(r"stop it \(kill ([\d ]+)\) and resume", said)
        assert {*map(int, named.split())} == {first.pid, trains}
        assert steps(run) >= before
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=120)
    assert first.returncode == 130


@pytest.mark.slow
def test_a_process_that_the_system_kills_is_told_as_a_lack_of_memory(model, tmp_path):
    config, run = config_of(tmp_path, model), tmp_path / "run"
    child = subprocess.Popen(
        command(config, "--num-processes", "2"), stderr=subprocess.PIPE, text=True
    )
    while child.poll() is None and steps(run) < 1:
        time.sleep(0.1)
    trains = [p for p in psutil.process_iter(["cmdline"]) if is_worker(p, run)]
    trains[-1].kill()
    _, said = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "out of memory (the system killed a training process): halve micro_batch_size" in said
    assert left(run) == []


def is_worker(process: psutil.Process, run: Path) -> bool:
    words = process.info["cmdline"] or []
    return words[-1:] == [str(run)] and "fmtkit.training.run.several" not in words
