"""What a killed run leaves never blocks the next one."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("killed_finishes.py")


def test_after_a_kill_at_any_rename_the_next_run_gives_the_same_bytes(tmp_path: Path) -> None:
    names = ["x.jsonl", "x.parquet", "out"]
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, *names], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    kills = [int(line) for line in run.stdout.split()]
    assert len(kills) == len(names)
    assert min(kills) > 2
