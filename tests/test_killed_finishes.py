"""What a killed run leaves never blocks the next one."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("killed_finishes.py")


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "out"])
def test_after_a_kill_at_any_rename_the_next_run_gives_the_same_bytes(
    tmp_path: Path, name: str
) -> None:
    run = subprocess.run(
        [sys.executable, SCRIPT, tmp_path, name], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 2
