"""What `report_to` names is given every log of a run; each where its package is installed."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

pytest.importorskip("trl")

import tiny_training as tiny

pytestmark = pytest.mark.slow


def tensorboard(folder: Path) -> list[float]:
    """Return the losses that TensorBoard reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file.parent)).Reload()
    return [event.value for event in events.Scalars("train/loss")]


def wandb(folder: Path) -> list[float]:
    """Return the losses of an offline run: its file has each value twice, as JSON behind its name."""
    (file,) = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    found = re.findall(rb"train/loss\x82\x01.([0-9.e-]+)", file.read_bytes(), re.DOTALL)
    return [float(value) for value in dict.fromkeys(found)]


def trackio(folder: Path) -> list[float]:
    """Return the losses in Trackio's database."""
    import sqlite3

    (file,) = (folder / "trackio").glob("*.db")
    with sqlite3.connect(file) as connection:
        rows = connection.execute("select run_name, metrics from metrics order by step").fetchall()
    # Without a name of its own a run has that of its folder.
    assert {name for name, _ in rows} == {"run"}
    logs = [json.loads(text) for _, text in rows]
    return [log["train/loss"] for log in logs if "train/loss" in log]


TRACKERS = {read.__name__: read for read in (tensorboard, wandb, trackio)}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_is_given_the_losses_of_a_run(name, tmp_path, monkeypatch):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    data = tmp_path / "rows.jsonl"
    rows = tiny.preference_rows()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    keys = {
        **tiny.STEP,
        "base_model": tiny.make_model(tmp_path / "model", template=tiny.TEMPLATE),
        "rl": "dpo",
        "output_dir": str(tmp_path / "run"),
        "datasets": [{"path": str(data)}],
        "report_to": [name],
        **({"wandb_mode": "offline", "wandb_project": "fmtkit"} if name == "wandb" else {}),
    }
    file = tmp_path / "dpo.yaml"
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "fmtkit", "train", str(file)], check=True, cwd=tmp_path)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [log["loss"] for line in lines if "loss" in (log := json.loads(line))]
    assert len(losses) == 3
    assert TRACKERS[name](tmp_path) == pytest.approx(losses, abs=1e-6)
