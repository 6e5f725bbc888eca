"""What a reader has to walk through: the hops, functions and modules of fmtkit that a block and a config pass.

The block is the second one of flat pairs as `chatml.intel`: read, converted, rendered, encoded and
written, with nothing wrong in it. The config is docs/examples/dpo.yaml, planned once before, so that
what only an import runs is not counted. A measure of the design, not of its speed.

A hop is a function that is given what walks and decides something: the block (as bytes, lines, table or
piece) or the config (as Config, Plan or Arguments) is one of its arguments, and its source has a condition.
Whoever is given a part alone, or has no condition, is a helper; what the block or the config answers of itself
is none either.

    .venv/bin/python benchmarks/walk.py           # the counts, and the modules in the order they are entered
    .venv/bin/python benchmarks/walk.py --functions
"""

import argparse
import ast
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import polars as pl
import pyarrow as pa

import fmtkit
from fmtkit.reading.clean_lines import LayoutLines
from fmtkit.running.pipeline import Piece
from fmtkit.sources.blocks import Block, Records
from fmtkit.stages.fusing import Fused
from fmtkit.training.config.config import Config
from fmtkit.training.planning.plan import plan
from fmtkit.training.planning.run_plan import Plan
from fmtkit.training.planning.types import Arguments
from fmtkit.work import engines

ROOT = Path(__file__).resolve().parents[1]
Walk = dict[str, list[str]]
"""Module -> its functions, both in the order in which they are entered."""
NO_STEPS = frozenset({"fmtkit.core.data_classes"})
"""Modules that no reader follows: methods that every dataclass has."""
BLOCK = (Block, Records, Fused, LayoutLines, Piece, pa.Table, pa.RecordBatch, pl.DataFrame)
CONFIG = (Config, Plan, Arguments)
_BYTES = 50_000
"""Bytes that are a block, or what became of one, and no part of it."""
_CONDITIONS = (ast.If, ast.IfExp, ast.Match, ast.BoolOp, ast.Raise, ast.ExceptHandler)


class Profiler:
    """Notes each function of fmtkit, of its runners too, that is entered while it is on, and the hops."""

    def __init__(self, walking: tuple[type, ...]) -> None:
        self.walking = walking
        self.walk: Walk = {}
        self.hops: Walk = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name == "<module>":
            return
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT / "fmtkit") or path.is_relative_to(ROOT / "runners"):
            module = str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
            if module in NO_STEPS:
                return
            functions = self.walk.setdefault(module, [])
            if code.co_qualname not in functions:
                functions.append(code.co_qualname)
            hops = self.hops.get(module, ())
            if code.co_qualname not in hops and self._is_given(frame) and decides(code):
                self.hops.setdefault(module, []).append(code.co_qualname)

    def _is_given(self, frame: FrameType) -> bool:
        """Return whether an argument is what walks; not whether a method is of it."""
        names = frame.f_code.co_varnames[
            : frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
        ]
        given = [frame.f_locals.get(name) for name in names]
        is_own = names[:1] == ("self",) and isinstance(given[0], self.walking)
        return not is_own and any(map(self._is_walking, given))

    def _is_walking(self, value: object) -> bool:
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        is_bytes = self.walking is BLOCK and isinstance(value, (bytes, memoryview))
        return isinstance(value, self.walking) or (is_bytes and len(value) > _BYTES)


def decides(code: CodeType) -> bool:
    """Return whether the source of a function has a condition; False for comprehensions and lambdas."""
    return code.co_firstlineno in _deciding(code.co_filename) and not code.co_name.startswith("<")


@cache
def _deciding(file: str) -> frozenset[int]:
    """Return the first line of each function with a condition."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef) and any(map(_is_condition, ast.walk(node))):
            lines |= {node.lineno, *(one.lineno for one in node.decorator_list)}
    return frozenset(lines)


def _is_condition(node: ast.AST) -> bool:
    return isinstance(node, _CONDITIONS) or (isinstance(node, ast.comprehension) and bool(node.ifs))


class InOrder(engines.Threads):
    """An engine without threads that profiles all that becomes of the second task."""

    profiler = Profiler(BLOCK)

    def map(self, work: Callable[[Any], Any], tasks: Iterator[Any]) -> Iterator[Any]:
        for number in range(sys.maxsize):
            sys.setprofile(InOrder.profiler if number == 1 else None)
            task = next(tasks, None)
            if task is None:
                break
            yield work(task)
        sys.setprofile(None)


def block() -> Profiler:
    """Return what one block passes."""
    InOrder.profiler = Profiler(BLOCK)
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
    return InOrder.profiler


def config() -> Profiler:
    """Return what one config passes on its way to a plan."""
    profiler = Profiler(CONFIG)
    path = ROOT / "docs/examples/dpo.yaml"
    plan(path)
    sys.setprofile(profiler)
    try:
        plan(path)
    finally:
        sys.setprofile(None)
    return profiler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--functions", action="store_true", help="list the functions of each module"
    )
    listed = parser.parse_args().functions
    for name, passed in (("a block of chatml.intel", block()), ("a config", config())):
        functions, hops = (sum(map(len, one.values())) for one in (passed.walk, passed.hops))
        print(f"{name}: {hops} hops, {functions} functions in {len(passed.walk)} modules")
        for module, entered in passed.walk.items():
            deciding = passed.hops.get(module, ())
            print(f"  {module} ({len(entered)})", *deciding)
            if listed:
                print(*(f"    {function}" for function in entered), sep="\n")


if __name__ == "__main__":
    main()
