"""Methods that TRL has removed still run where an old TRL is installed.

Opt in with FMTKIT_OLD_TRL=FOLDER, a folder that holds an unpacked TRL 1.12.0
and the requests package that its online trainers import
(pip install --no-deps --target FOLDER trl==1.12.0; pip install --target FOLDER requests).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OLD = os.environ.get("FMTKIT_OLD_TRL")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not OLD, reason="FMTKIT_OLD_TRL names no folder with an old TRL"),
]

SCRIPT = """
import json, math, sys
from pathlib import Path
import tiny_training as tiny
from fmtkit.training import process
process._quiet()
folder, method = Path(sys.argv[1]), sys.argv[2]
model = tiny.make_model(folder / "model", template=tiny.TEMPLATE)
more = {"reward_model_path": model} if method != "bco" else {}
if method == "ppo":
    more["trainer_args"] = {"response_length": 8, "local_rollout_forward_batch_size": 2}
elif method != "bco":
    more["max_new_tokens"] = 8
table = "Unpaired" if method == "bco" else "Prompt"
work = tiny.make_job(folder / "run", model, method, table, more)
assert process.train(work) == 0
lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
assert lines
values = [v for line in lines for k, v in line.items() if "loss" in k]
assert values and all(v is None or math.isfinite(v) for v in values), values
"""


@pytest.mark.parametrize("method", ["bco", "nash_md", "xpo", "ppo"])
def test_a_removed_method_trains_on_an_old_version(method, tmp_path):
    path = os.pathsep.join([str(OLD), str(Path(__file__).parent)])
    subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), method],
        env={**os.environ, "PYTHONPATH": path},
        check=True,
    )
