"""What a reader has to walk through: the modules and functions of fmtkit that a block and a config pass.

The block is the second one of flat pairs as `chatml.intel`: read, converted, rendered, encoded and
written, with nothing wrong in it. The config is docs/examples/dpo.yaml, planned once before, so that
what only an import runs is not counted. A measure of the design, not of its speed.

    .venv/bin/python benchmarks/walk.py           # the counts, and the modules in the order they are entered
    .venv/bin/python benchmarks/walk.py --functions
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import fmtkit
from fmtkit.converting import engines
from fmtkit.training.planning.plan import plan

ROOT = Path(__file__).resolve().parents[1]
Walk = dict[str, list[str]]
"""Module -> its functions, both in the order in which they are entered."""
NO_STEPS = frozenset({"fmtkit.core.data_classes"})
"""Modules that no reader follows: methods that every dataclass has."""


class Profiler:
    """Notes each function of fmtkit, of its runners too, that is entered while it is on."""

    def __init__(self) -> None:
        self.walk: Walk = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name == "<module>":
            return
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "fmtkit") or path.is_relative_to(ROOT / "runners"):
            module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
            if module in NO_STEPS:
                return
            functions = self.walk.setdefault(module, [])
            if frame.f_code.co_qualname not in functions:
                functions.append(frame.f_code.co_qualname)


class InOrder(engines.Threads):
    """An engine without threads that profiles all that becomes of the second task."""

    profiler = Profiler()

    def map(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        for number in range(sys.maxsize):
            sys.setprofile(InOrder.profiler if number == 1 else None)
            task = next(tasks, None)
            if task is None:
                break
            yield work(task)
        sys.setprofile(None)


def block() -> Walk:
    """Return what one block passes."""
    row = {"system": "Be brief.", "question": "Why?\n" + "word " * 300}
    row |= {"chosen": "Because. " * 100, "rejected": "No. " * 100}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pairs.jsonl")
        lines = (json.dumps({**row, "question": f"{n} {row['question']}"}) for n in range(12_000))
        source.write_text("\n".join(lines), encoding="utf-8")
        threads, engines.Threads.map = engines.Threads.map, InOrder.map
        try:
            fmtkit.convert(source, "chatml.intel", Path(folder, "out.parquet"), workers=1)
        finally:
            engines.Threads.map = threads
    return InOrder.profiler.walk


def config() -> Walk:
    """Return what one config passes on its way to a plan."""
    profiler = Profiler()
    path = ROOT / "docs/examples/dpo.yaml"
    plan(path)
    sys.setprofile(profiler)
    try:
        plan(path)
    finally:
        sys.setprofile(None)
    return profiler.walk


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--functions", action="store_true", help="list the functions of each module"
    )
    listed = parser.parse_args().functions
    for name, walk in (("a block of chatml.intel", block()), ("a config", config())):
        functions = sum(map(len, walk.values()))
        print(f"{name}: {len(walk)} modules, {functions} functions")
        for module, entered in walk.items():
            print(f"  {module} ({len(entered)})")
            if listed:
                print(*(f"    {function}" for function in entered), sep="\n")


if __name__ == "__main__":
    main()
