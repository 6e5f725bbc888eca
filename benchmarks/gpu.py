"""What runs on a GPU, how fast, and in how much memory, beside the scripts that a user would write with TRL.

    python benchmarks/gpu.py [--list] [--only NAME ...] [--json FILE] [--write] [--seconds 570]
    python benchmarks/gpu.py --device cpu --tiny       # the same code, two steps of a tiny model
    python benchmarks/gpu.py --from benchmarks/gpu.json NEW.json --json benchmarks/gpu.json --write   # one table of all

Nothing is downloaded: model, tokenizer and rows are made on the spot (gpu_cases.py). Each case runs in a process
of its own with a limit of time, one after another, so that one that fails is a row of the table; then what is only
trained for a few steps (gpu_tried.py), several at once. Torch and TRL are imported once, before the processes are
forked off. Without a CUDA device the cases are listed and nothing runs.
`--write` puts the table into benchmarks/README.md, with the device's name; it holds what ran and nothing else.
"""

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import wait
from pathlib import Path
from shutil import which
from typing import Any

# Before torch: asking the driver instead of CUDA leaves the processes that are forked off free to use it.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
for name, value in {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "WANDB_DISABLED": "true",
}.items():
    os.environ.setdefault(name, value)

import gpu_cases  # noqa: E402 - after the environment
import gpu_tried  # noqa: E402
from gpu_cases import (  # noqa: E402
    TINY,
    WHOLE,
    Case,
    NotRunError,
    Setting,
    Size,
    prepare,
)

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- gpu -->", "<!-- /gpu -->"
TARGET = 1.05
SHOWN = ("fmtkit", "torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "vllm")
AT_ONCE = {"cuda": 11, "cpu": 2}
"""Processes that run beside each other where nothing is measured."""
LOG, RESULT = "log.txt", "result.json"
"""Files of a case in its folder."""
_LAST = 4000
"""Characters of a failure that the results keep."""


def cases(size: Size) -> tuple[Case, ...]:
    """Return every case, in the order in which they run: those that measure first."""
    return (*gpu_cases.cases(size), *gpu_tried.cases(size))


def main() -> int:
    """Run the cases, print the table; return 1 where one failed."""
    options = _arguments()
    if options.saved:
        told = joined(options.saved)
        _save(told, options.json)
        return show(told, options.write)
    size = TINY if options.tiny else WHOLE
    chosen = [
        case
        for case in cases(size)
        if _is_chosen(case, options.only)
        and not (options.without and _is_chosen(case, options.without))
    ]
    if not chosen:
        print(f"no case has {' or '.join(options.only)} in its name", file=sys.stderr)
        return 2
    if options.device == "cuda" and not options.list and _has_cuda() and not which("nvidia-smi"):
        print("nvidia-smi is not there: the name of the device is asked of it", file=sys.stderr)
        return 2
    if options.list or (options.device == "cuda" and not _has_cuda()):
        print_cases(chosen)
        if not options.list:
            print("no CUDA device is visible: nothing was run; these would be where there is one")
        return 0
    begun = time.monotonic()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="fmtkit-gpu-") as folder:
        for row in run_all(chosen, Path(folder), options.device, size, options.seconds):
            print(_line(row), file=sys.stderr, flush=True)
            results.append(row)
            told = {
                **_environment(options.device, options.tiny),
                "seconds": round(time.monotonic() - begun),
                "cases": results,
            }
            # After each row: what is cut off keeps what it has measured.
            _save(told, options.json)
    return show(told, options.write)


def _save(told: dict[str, Any], file: Path | None) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def show(told: dict[str, Any], is_written: bool) -> int:
    """Print the table, and write it into the page where that is asked for; return 1 where a case failed."""
    text = as_markdown(told)
    print(text)
    if is_written:
        if told["tiny"]:
            raise SystemExit("--write is for runs on a GPU: these figures mean nothing")
        write(text)
    return int(any(found["status"] == "failed" for found in told["cases"]))


def joined(files: Sequence[Path]) -> dict[str, Any]:
    """Return the results of several runs as those of one: a device may be lent for minutes at a time.

    Of each case the last row with figures counts, else the last one that says why there are none; logs of failures
    stay in the files of the runs. Versions may differ in what one run alone had installed.
    """
    try:
        runs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    except (OSError, ValueError) as error:
        raise SystemExit(f"--from: not the results of a run: {error}") from error
    order = [case.name for case in cases(WHOLE)]
    strange = [row["name"] for run in runs for row in run["cases"] if row["name"] not in order]
    if strange:
        raise SystemExit(f"--from: there is no case {strange[0]!r} any more; run it again")
    if len({(run["device"], run["tiny"]) for run in runs}) > 1:
        raise SystemExit("these are runs on different devices, or of models of different sizes")
    rows: dict[str, dict[str, Any]] = {}
    for row in (row for run in runs for row in run["cases"]):
        before = rows.get(row["name"])
        if before is None or row["status"] == "ok" or before["status"] != "ok":
            rows[row["name"]] = {key: value for key, value in row.items() if key != "log"}
    found = sorted(rows.values(), key=lambda row: order.index(row["name"]))
    versions: dict[str, list[str]] = {}
    for name, numbers in (pair for run in runs for pair in run["versions"].items()):
        known = versions.setdefault(name, [])
        known += [number for number in numbers.split(" and ") if number not in known]
    told = {name: " and ".join(numbers) for name, numbers in versions.items()}
    seconds = sum(run["seconds"] for run in runs)
    return {**runs[0], "versions": told, "seconds": seconds, "cases": found}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts of names")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="parts of names")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a tiny model, two steps")
    parser.add_argument(
        "--seconds", type=int, default=570, help="after which no case is begun or goes on"
    )
    parser.add_argument(
        "--from",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        dest="saved",
        help="run nothing: one table of the results that --json wrote",
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument(
        "--write", action="store_true", help="put the table into benchmarks/README.md"
    )
    options = parser.parse_args()
    if options.device == "cpu" and not options.tiny:
        parser.error("--device cpu proves the code and measures nothing: it needs --tiny")
    if options.write and (
        options.device == "cpu" or options.tiny or options.only or options.without
    ):
        parser.error(
            "--write is for a whole run on a GPU: leave out --tiny, --only, --without and --device cpu"
        )
    return options


def _is_chosen(case: Case, only: Sequence[str]) -> bool:
    return not only or any(part in case.name for part in only)


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def print_cases(chosen: Sequence[Case]) -> None:
    """Print what would run."""
    width = max(len(case.name) for case in chosen)
    for case in chosen:
        print(f"{case.name:{width}}  {case.about} (at most {case.limit} s)")


def run_all(
    chosen: Sequence[Case], folder: Path, device: str, size: Size, seconds: float
) -> Iterator[dict[str, Any]]:
    """Run each case in a process of its own and yield its row; none goes on after so many seconds."""
    end = time.monotonic() + seconds
    shared = folder / "shared"
    shared.mkdir()
    # In a process of its own too: nothing that torch begins at its first use is forked.
    patience = 10 if device == "cpu" else 1
    made = Case("model and rows", "", prepare)
    with _without_cuda():
        _import()
    found = run_one(made, Setting(shared, device, size), made.limit * patience)
    if found["status"] != "ok":
        yield found
        return
    timed = [case for case in chosen if case.is_timed]
    others = [case for case in chosen if not case.is_timed]
    for some, at_once in ((timed, 1), (others, AT_ONCE[device])):
        given = [(case, Setting(own_folder(shared, case.name), device, size)) for case in some]
        yield from run_pool(given, at_once, end, patience)


def own_folder(shared: Path, name: str) -> Path:
    """Make a folder of a case's own, with links to what all of them read."""
    folder = shared.parent / re.sub(r"[^\w]+", "_", name)
    folder.mkdir()
    for path in shared.iterdir():
        if path.name not in (LOG, RESULT):
            (folder / path.name).symlink_to(path)
    return folder


def _import() -> None:
    """Import what the cases share, which takes longer than most of them."""
    import datasets
    import peft
    import transformers
    import trl

    import fmtkit

    # Lazy packages load their modules when these are asked for.
    _ = (transformers.Trainer, trl.SFTTrainer, trl.DPOTrainer, trl.GRPOTrainer, trl.RewardTrainer)
    _ = (peft.LoraConfig, datasets.Dataset, fmtkit.train)


@contextlib.contextmanager
def _without_cuda() -> Iterator[None]:
    """Keep CUDA from beginning in this process: one that is forked off it could not use CUDA.

    bitsandbytes asks for the capability of the devices as it is imported; the driver knows it too.
    """
    import torch

    plain = torch.cuda.get_device_capability
    torch.cuda.get_device_capability = _capability
    try:
        yield
    finally:
        torch.cuda.get_device_capability = plain
    if torch.cuda.is_initialized():
        raise SystemExit("a package began CUDA as it was imported; no case could use it")


def _capability(_device: object = None) -> tuple[int, int]:
    major, _, minor = _of_device("compute_cap").partition(".")
    return int(major), int(minor)


def _of_device(what: str) -> str:
    """Return what the driver says of the first device."""
    command = ["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return told.splitlines()[0].strip()


def run_one(case: Case, setting: Setting, limit: float) -> dict[str, Any]:
    """Run a case in a process of its own and return its row."""
    return next(run_pool([(case, setting)], 1, math.inf, limit / case.limit))


def run_pool(
    given: Sequence[tuple[Case, Setting]], at_once: int, end: float, patience: float
) -> Iterator[dict[str, Any]]:
    """Run cases in processes of their own, so many at once; yield the row of each as it ends.

    Args:
        given: Cases, each with a folder of its own.
        at_once: The most processes.
        end: By the monotonic clock: no case begins or goes on after it.
        patience: By what the limits of the cases are multiplied.

    """
    waiting = deque(given)
    running: list[_Running] = []
    while waiting or running:
        while waiting and len(running) < at_once:
            case, setting = waiting.popleft()
            if time.monotonic() >= end:
                yield {"name": case.name, "status": "not run", "why": "the time was up"}
            else:
                running.append(_Running(case, setting, end, patience))
        if not running:
            continue
        first = min(one.until for one in running) - time.monotonic()
        wait([one.process.sentinel for one in running], max(0, first))
        for one in [one for one in running if one.is_over()]:
            running.remove(one)
            yield one.row()


class _Running:
    """A case that runs in a process of its own."""

    def __init__(self, case: Case, setting: Setting, end: float, patience: float) -> None:
        self.case = case
        self.log = setting.folder / LOG
        self.result = setting.folder / RESULT
        self.result.unlink(missing_ok=True)
        self.begun = time.monotonic()
        self.until = min(end, self.begun + case.limit * patience)
        self.is_cut = self.until == end
        """Whether the time of the whole ends before its own."""
        self.process = multiprocessing.get_context("fork").Process(
            target=_in_process, args=(case, setting, self.result, self.log)
        )
        self.process.start()

    def is_over(self) -> bool:
        """Return whether it ended, or is to."""
        return not self.process.is_alive() or time.monotonic() >= self.until

    def row(self) -> dict[str, Any]:
        """End what is left of it and return its row."""
        seconds = time.monotonic() - self.begun
        took = {"name": self.case.name, "seconds": round(seconds, 1)}
        if self.process.is_alive():
            _end(self.process)
            if self.is_cut:
                return {
                    **took,
                    "status": "not run",
                    "why": f"the time was up after {seconds:.0f} s",
                }
            why = f"not done after {seconds:.0f} s"
            return {**took, "status": "failed", "why": why, "log": _tail(self.log)}
        self.process.join()
        # Whatever it started and left running (a server) ends with it.
        _kill(self.process.pid)
        if not self.result.is_file():
            why = f"its process ended with {self.process.exitcode}"
            return {**took, "status": "failed", "why": why, "log": _tail(self.log)}
        found: dict[str, Any] = json.loads(self.result.read_text(encoding="utf-8"))
        if not self.case.is_timed:
            found["is_timed"] = False
        return {**took, **found} | ({"log": _tail(self.log)} if found["status"] == "failed" else {})


def _in_process(case: Case, setting: Setting, result: Path, log: Path) -> None:
    """Run a case; what it prints goes to the log."""
    os.setsid()
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = sys.stderr = os.fdopen(1, "w", buffering=1, closefd=False)
    try:
        found = {"status": "ok", **case.run(setting)}
    except NotRunError as error:
        found = {"status": "not run", "why": str(error)}
    except BaseException as error:  # a row of the table, whatever it was
        traceback.print_exc()
        first = (str(error).splitlines() or [""])[0]
        found = {"status": "failed", "why": f"{type(error).__name__}: {first}"[:200]}
    part = result.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    part.replace(result)


def _end(process: Any) -> None:
    _kill(process.pid)
    process.kill()  # Before its first line it leads no session yet.
    process.join(10)


def _kill(pid: int | None) -> None:
    """End a process and all that it started: it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid or 0, signal.SIGKILL)


def _tail(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-_LAST:] if log.is_file() else ""


def _environment(device: str, tiny: bool) -> dict[str, Any]:
    named = platform.processor() or platform.machine()
    if device == "cuda":
        named = _of_device("name")
    return {
        "device": named,
        "tiny": tiny,
        "python": platform.python_version(),
        "versions": _versions(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in SHOWN:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


# --- the table ----------------------------------------------------------------------------------


def _line(found: dict[str, Any]) -> str:
    return f"{found['name']}: {found['status']}{': ' + found['why'] if 'why' in found else ''}, {found.get('seconds', 0)} s"


def as_markdown(told: dict[str, Any]) -> str:
    """Return the results as a part of a page."""
    size = (
        "a tiny model, two steps: no figure here means anything"
        if told["tiny"]
        else (
            f"a Qwen3 of {WHOLE.layers} layers and hidden size {WHOLE.hidden}, bf16, batches of {WHOLE.batch}, up to "
            f"{WHOLE.length} tokens"
        )
    )
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    lines = [
        f"{told['device']}; {size}. {versions}; Python {told['python']}. {told['seconds']} s in all.",
        "",
        "| case | ms a step | by TRL | ratio | peak MiB | by TRL | ratio | losses differ by at most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    fine = [found for found in told["cases"] if found["status"] == "ok"]
    measured = [found for found in fine if found.get("is_timed", True)]
    lines += [_row(found) for found in measured if "lengths" not in found]
    lines += _flex_table(measured)
    tried = [found["name"] for found in fine if found not in measured]
    if tried:
        text = "Also trained, for a few steps and several at once, so that there are no figures: "
        lines += ["", f"{text}{'; '.join(tried)}."]
    others = [found for found in told["cases"] if found["status"] != "ok"]
    if others:
        lines += ["", "What has no figures:", ""]
        lines += [f"- {found['name']}: {found['status']}: {found['why']}" for found in others]
    missed = [
        found["name"]
        for found in told["cases"]
        for name in ("step_ratio", "memory_ratio")
        if found.get(name, 0) > TARGET
    ]
    verdict = (
        f"above {TARGET}: {', '.join(dict.fromkeys(missed))}"
        if missed
        else f"no ratio is above {TARGET}"
    )
    if not told["tiny"] and any("step_ratio" in found for found in told["cases"]):
        lines += ["", f"The target is {TARGET} times TRL's step and memory at most; {verdict}."]
    return "\n".join(lines)


def _row(found: dict[str, Any]) -> str:
    cells = [
        _figure(found.get("step_ms"), 1),
        _figure(found.get("trl_step_ms"), 1),
        _figure(found.get("step_ratio"), 2),
        _figure(found.get("memory_mib"), 0),
        _figure(found.get("trl_memory_mib"), 0),
        _figure(found.get("memory_ratio"), 2),
        _small(found.get("largest_difference_of_losses")),
    ]
    return f"| {found['name']} | {' | '.join(cells)} |"


def _figure(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.1g}" if value else "0"


def _flex_table(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [line for found in results for line in found.get("lengths", ())]
    if not lines:
        return []
    out = [
        "",
        "Strided EBFT, forward and backward of one document by FlexAttention and by the dense mask:",
        "",
        "| S | tokens of a row | flex, ms | dense, ms | flex, MiB | dense, MiB | log-probabilities differ by at most |",
        "|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        cells = [f"{line['length']:,}", f"{line['tokens_of_a_row']:,}"]
        cells += [_figure(line[name], 1) for name in ("flex_ms", "dense_ms")]
        cells += [_figure(line[name], 0) for name in ("flex_memory_mib", "dense_memory_mib")]
        verdict = "" if line["equal"] else ", **too much**"
        out.append(f"| {' | '.join(cells)} | {_small(line['largest_difference'])}{verdict} |")
    return out


def write(text: str, readme: Path = README) -> None:
    """Put the table in the place of the one in the README."""
    page = readme.read_text(encoding="utf-8")
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise SystemExit(f"{readme}: the marks {BEGIN} and {END} are not there")
    readme.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
