"""`make gpu`: cases in processes of their own, and a table that claims nothing but what ran."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmark_modules import FOLDER, load

pytest.importorskip("trl")

from fmtkit.core import runner

gpu, gpu_cases = load("gpu"), load("gpu_cases")
TINY, Case, Setting = gpu_cases.TINY, gpu_cases.Case, gpu_cases.Setting

PROGRAM = FOLDER / "gpu.py"
ELSEWHERE = {"fsdp2", "zero2", "zero3", "vllm colocate", "vllm server, LoRA", "vllm server, full"}
"""What needs a GPU, or a package that is not here."""


def run(*arguments: str, cuda: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": cuda}
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def row_of(folder: Path, what, limit: float = 60) -> dict:
    return gpu.run_one(Case("one", "", what), Setting(folder, "cpu", TINY), limit)


def test_every_method_is_trained_in_full_and_with_lora() -> None:
    names = [case.name for case in gpu.cases(TINY)]
    methods = {"ebft structured", "ebft strided", *runner.names()} - {"ebft"}
    for method in methods:
        assert {f"{method}, full", f"{method}, LoRA"} <= set(names)
    assert ELSEWHERE | {"flex", "sft, DoRA", "grpo, QLoRA", "sft, LoftQ"} <= set(names)
    assert len(set(names)) == len(names)


def test_without_cuda_it_says_what_it_would_run() -> None:
    done = run()
    assert done.returncode == 0
    assert "no CUDA device is visible: nothing was run" in done.stdout
    assert all(case.name in done.stdout for case in gpu.cases(TINY))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--device", "cpu"], "it needs --tiny"),
        (["--write", "--tiny"], "for a whole run on a GPU"),
        (["--only", "sft", "--write"], "for a whole run on a GPU"),
        (["--only", "sttf"], "no case has sttf in its name"),
    ],
)
def test_what_would_measure_nothing_is_refused(arguments, message) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_case_that_raises_is_a_row_with_its_reason_and_its_log(tmp_path) -> None:
    def broken(setting):
        print("what it said before")
        raise ValueError("no such thing\nand more")

    found = row_of(tmp_path, broken)
    assert (found["status"], found["why"]) == ("failed", "ValueError: no such thing")
    assert "what it said before" in found["log"]
    assert row_of(tmp_path, lambda _: {"step_ms": 1.0})["status"] == "ok"


def test_a_case_that_cannot_run_here_did_not_fail(tmp_path) -> None:
    def absent(setting):
        raise gpu_cases.NotRunError("vllm is not installed")

    found = row_of(tmp_path, absent)
    assert (found["status"], found["why"]) == ("not run", "vllm is not installed")


def test_a_case_that_is_killed_is_a_row(tmp_path) -> None:
    def killed(setting):
        os.kill(os.getpid(), signal.SIGKILL)

    found = row_of(tmp_path, killed)
    assert (found["status"], found["why"]) == ("failed", "its process ended with -9")


def test_a_case_that_never_ends_is_ended_with_what_it_started(tmp_path) -> None:
    def endless(setting):
        child = subprocess.Popen(["sleep", "600"])
        (setting.folder / "child").write_text(str(child.pid))
        time.sleep(600)

    found = row_of(tmp_path, endless, limit=3)
    assert (found["status"], found["why"]) == ("failed", "not done after 3 s")
    pid = int((tmp_path / "child").read_text())
    while _is_running(pid):  # until the test's own limit of time
        time.sleep(0.05)


def test_cases_side_by_side_keep_their_logs_and_end_with_the_whole(tmp_path) -> None:
    def broken(setting):
        print(setting.folder.name)
        raise ValueError("no")

    def endless(setting):
        (setting.folder / "begun").touch()
        time.sleep(600)

    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "rows.jsonl").touch()
    (tmp_path / "shared" / gpu.LOG).write_text("of another", encoding="utf-8")
    some = [Case(name, "", broken, is_timed=False) for name in ("one", "two, LoRA", "three")]
    given = [
        (case, Setting(gpu.own_folder(tmp_path / "shared", case.name), "cpu", TINY))
        for case in some
    ]
    rows = {row["name"]: row for row in gpu.run_pool(given, 2, math.inf, 1)}
    assert set(rows) == {"one", "two, LoRA", "three"}
    assert "two_LoRA" in rows["two, LoRA"]["log"]
    assert "one" not in rows["two, LoRA"]["log"]
    assert (tmp_path / "one" / "rows.jsonl").is_symlink()
    last = [(Case(name, "", endless), Setting(tmp_path, "cpu", TINY)) for name in ("a", "b")]
    first, second = gpu.run_pool(last, 1, time.monotonic() + 3, 1)
    assert first["status"] == second["status"] == "not run"
    assert re.fullmatch(r"the time was up after \d+ s", first["why"])


def _is_running(pid: int) -> bool:
    """Return whether a process has not ended; one that ended may wait for whoever inherited it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return state.rsplit(")", 1)[1].split()[0] != "Z"


def results(*found: dict) -> dict:
    versions = {"torch": "2.13.0"}
    told = {"device": "GPU of a test", "tiny": False, "python": "3.12", "versions": versions}
    return {**told, "seconds": 9, "cases": list(found)}


def test_the_table_has_figures_of_what_ran_alone(tmp_path) -> None:
    fine = {"name": "sft, full", "status": "ok", "step_ms": 21.04, "trl_step_ms": 20.0, "step_ratio": 1.052, "memory_mib": 900.0, "trl_memory_mib": 900.0, "memory_ratio": 1.0, "largest_difference_of_losses": 0.0}  # fmt: skip
    masks = {"length": 1024, "tokens_of_a_row": 5088, "largest_difference": 0.5, "equal": False, "flex_ms": 3.0, "dense_ms": 9.0, "flex_memory_mib": 100.0, "dense_memory_mib": 1000.0}  # fmt: skip
    text = gpu.as_markdown(
        results(
            fine,
            {"name": "dpo, full", "status": "failed", "why": "not done after 90 s"},
            {"name": "vllm server", "status": "not run", "why": "vllm is not installed"},
            {"name": "flex", "status": "ok", "lengths": [masks]},
            {"name": "orpo, full", "status": "ok", "is_timed": False},
        )
    )
    assert text.startswith("GPU of a test; ")
    assert "| sft, full | 21.0 | 20.0 | 1.05 | 900 | 900 | 1.00 | 0 |" in text
    assert "- dpo, full: failed: not done after 90 s" in text
    assert "- vllm server: not run: vllm is not installed" in text
    assert "| dpo" not in text
    assert "so that there are no figures: orpo, full." in text
    assert "| orpo" not in text
    assert "| 1,024 | 5,088 | 3.0 | 9.0 | 100 | 1,000 | 0.5, **too much** |" in text
    assert "above 1.05: sft, full" in text
    page = tmp_path / "README.md"
    page.write_text(f"before\n{gpu.BEGIN}\nold\n{gpu.END}\nafter\n", encoding="utf-8")
    gpu.write(text, page)
    written = page.read_text(encoding="utf-8")
    assert "old" not in written
    assert written.startswith(f"before\n{gpu.BEGIN}\nGPU of a test")
    assert written.endswith(f"{gpu.END}\nafter\n")


def test_runs_of_several_leases_make_one_table(tmp_path) -> None:
    def saved(name: str, **told) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(results() | told), encoding="utf-8")
        return path

    late = {"status": "not run", "why": "the time was up"}
    fine = {"status": "ok", "step_ms": 20.0}
    first = [{"name": "zero2", **fine}, {"name": "dpo, full", **late}, {"name": "flex", **late}]
    second = [
        {"name": "sft, full", **fine},
        {"name": "dpo, full", **fine},
        {"name": "zero2", **late},
    ]
    versions = {"torch": "2.13.0", "trl": "1.12.0"}
    runs = [saved("1", cases=first), saved("2", cases=second, versions=versions)]
    told = gpu.joined(runs)
    assert [row["name"] for row in told["cases"]] == ["sft, full", "dpo, full", "flex", "zero2"]
    assert [row["status"] for row in told["cases"]] == ["ok", "ok", "not run", "ok"]
    assert told["versions"] == {"torch": "2.13.0", "trl": "1.12.0"}
    assert told["seconds"] == 18
    (tmp_path / "4").write_text("{", encoding="utf-8")
    for files, words in (
        ([tmp_path / "none"], "not the results of a run"),
        ([tmp_path / "4"], "not the results of a run"),
        ([saved("5", cases=[{"name": "of old", **late}])], "no case 'of old' any more"),
    ):
        with pytest.raises(SystemExit, match=words):
            gpu.joined(files)
    with pytest.raises(SystemExit, match="these figures mean nothing"):
        gpu.show(results() | {"tiny": True}, True)
    with pytest.raises(SystemExit, match="different devices"):
        gpu.joined([runs[0], saved("3", device="another", cases=[])])


def test_the_page_has_a_place_for_the_table() -> None:
    page = gpu.README.read_text(encoding="utf-8")
    assert page.count(gpu.BEGIN) == page.count(gpu.END) == 1


ALIKE = ("orpo", "simpo", "cpo", "alphapo", "gdpo", "rloo", "gmpo", "sdpo", "iw_opd", "online_dpo", "gkd", "bco", "ppo", "xpo", "nash_md", "DoRA", "checkpointing", "offloading", "tf32", "fp16", "compile")  # fmt: skip
"""What the test leaves out: each is trained on a CPU by another test."""


@pytest.mark.slow
def test_the_whole_runs_on_a_cpu_with_the_losses_of_trl(tmp_path) -> None:
    arguments = ["--device", "cpu", "--tiny", "--seconds", "3000", "--without", *ALIKE]
    done = run(*arguments, "--json", str(tmp_path / "out" / "results.json"))
    assert done.returncode == 0, done.stdout
    told = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    assert told["tiny"]
    rows = {found["name"]: found for found in told["cases"]}
    names = {case.name for case in gpu_cases.cases(TINY)}
    assert names < set(rows)
    of_methods = {f"{method}, {how}" for method in runner.names() for how in ("full", "LoRA")}
    for name, found in rows.items():
        here = name in (names | of_methods) - ELSEWHERE
        assert found["status"] == ("ok" if here else "not run"), found
    for name in ("sft", "dpo", "kto", "reward", "grpo"):
        for how in ("full", "LoRA"):
            assert rows[f"{name}, {how}"]["largest_difference_of_losses"] < 1e-5
    assert [line["equal"] for line in rows["flex"]["lengths"]] == [True, True]
    assert "no figure here means anything" in done.stdout
