"""Seconds and memory for a row whose list gets twice as long: for every type with a list in its rows.

One row of a type's fixture is taken, a list in it lengthened to n, 2n, 4n, ... items until one size takes
a second of CPU time, and each size is converted (rendered, where the type renders), validated and
inspected in this process. What is linear has a ratio of two; a ratio above 2.6 is marked. The memory is that of the
command that takes most, above what the process had before it.

    .venv/bin/python benchmarks/doublings.py --write
    .venv/bin/python benchmarks/doublings.py --only oasst --only openai --seconds 4
"""

import argparse
import gc
import json
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import fmtkit
from fmtkit.core.errors import FmtkitError, NothingWrittenError
from fmtkit.formats.target_registry import names
from fmtkit.reading import native

FIXTURES = Path(__file__).parents[1] / "fixtures"
TOKENIZER = FIXTURES / "tokenizer"
TEMPLATES = ("chatml", "llama3", "qwen3", "mistral_v3", "gemma")
FIRST, LARGEST, DEEPEST = 128, 1 << 16, 1 << 10
LINE = 8 << 20
"""Bytes that a row has at most."""
STEEP, SHORT, SMALL = 2.6, 0.15, 64.0
"""The ratio that is marked; the seconds and MB below which a ratio says nothing."""
CLEAR = Path("/proc/self/clear_refs")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- doublings -->", "<!-- /doublings -->"
PACKAGES = ("fmtkit", "pyarrow", "polars")
REPEATED = (slice(-2, None), slice(None), slice(-1, None), slice(1, None))
"""Which items of a list are repeated; the first choice that converts is taken."""
TRANSCRIPTS = frozenset({"hh_rlhf", "math_shepherd", "transcript"})
"""Types whose lists are written in one text."""
TEXTS = frozenset({"content", "value", "text", "answer", "response", "solution", "output", "input"})
"""Keys whose text gets a number in each repeated item, so that no two items are equal."""

Row = dict[str, Any]
Make = Callable[[int], Sequence[Row]]


@dataclass(frozen=True)
class Growth:
    """Rows of one type that grow with a number, and how they are converted."""

    name: str
    grows: str
    type: str
    make: Make
    options: dict[str, Any]
    read: dict[str, Any]
    survey: dict[str, Any]
    outcome: str
    largest: int = LARGEST


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the lists of a value are, outermost first; those within items of lists are left out."""
    if isinstance(value, list) and value:
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    elif isinstance(value, str) and value.startswith("["):
        yield path


def lengthened(row: Row, where: Sequence[tuple[Any, ...]], repeated: slice, n: int) -> Row:
    """Return the row with n items in its lists: the first ones as they are, then those of a slice."""
    made = json.loads(json.dumps(row))
    for path in where:
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        held = holder[path[-1]]
        items = json.loads(held) if isinstance(held, str) else held
        again = items[repeated] or items
        longer = items + [numbered(again[i % len(again)], i) for i in range(n - len(items))]
        holder[path[-1]] = json.dumps(longer) if isinstance(held, str) else longer
    return made


def numbered(item: Any, number: int) -> Any:
    """Return a copy of an item whose texts end in a number."""
    if isinstance(item, dict):
        return {
            key: f"{value} {number}"
            if key in TEXTS and isinstance(value, str)
            else numbered(value, number)
            for key, value in item.items()
        }
    return [numbered(one, number) for one in item] if isinstance(item, list) else item


def repeated_texts(row: Row, n: int) -> Row:
    """Return the row with all its longer texts n times."""
    long = max((len(v) for v in row.values() if isinstance(v, str)), default=0)
    return {
        key: value * n if isinstance(value, str) and len(value) * 2 > long else value
        for key, value in row.items()
    }


def tree(deep: bool, n: int) -> Row:
    """Return a tree of n messages: one reply below the other, or all below one question."""
    said = [
        {
            "message_id": str(i),
            "text": f"hi {i}",
            "role": ("prompter", "assistant")[i % 2 if deep else i > 0],
            "rank": None if deep or not i else i - 1,
            "lang": "en",
            "replies": [],
        }
        for i in range(n)
    ]
    for number, message in enumerate(said[1:], start=1):
        said[number - 1 if deep else 0]["replies"].append(message)
    return {"message_tree_id": "t", "tree_state": "ready", "prompt": said[0]}


def listed_tree(deep: bool, n: int) -> Row:
    """Return the same tree as a list of its messages."""
    rows, waiting = [], [(tree(deep, n)["prompt"], None)]
    while waiting:
        message, parent = waiting.pop()
        waiting += [(reply, message["message_id"]) for reply in message.pop("replies")]
        rows.append(message | {"parent_id": parent, "message_tree_id": "t", "deleted": False})
    return {"rows": rows}


def talk(n: int, last: str | None = None) -> Row:
    """Return a conversation of n messages; the last one may have a role of its own."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": f"hi {i}"} for i in range(n)]
    said[-1]["role"] = last or said[-1]["role"]
    return {"messages": said}


def calls(n: int) -> Row:
    """Return a conversation in which each second message is a call of a tool."""
    call = {"type": "function", "function": {"name": "w", "arguments": {"at": "x"}}}
    said: list[Row] = [{"role": "user", "content": "Hi"}]
    for i in range(n // 2):
        said.append({"role": "assistant", "content": "", "tool_calls": [call]})
        said.append({"role": "tool", "content": f"it is {i}", "name": "w"})
    return {"messages": [*said, {"role": "assistant", "content": "So."}]}


def growths(folder: Path, chosen: Sequence[str]) -> Iterator[Growth | None]:
    """Yield what grows: each list of each type, then conversations in other ways."""
    try_out = partial(tried, folder)
    for name in sorted({described["name"] for described in fmtkit.types()}):
        if chosen and name not in chosen:
            continue
        for grows, makes in ways(name).items():
            yield try_out(name, grows, makes)
    if chosen and "openai" not in chosen:
        return
    for template in TEMPLATES:
        yield try_out("openai", f"messages, {template}", [talk], template=template)
        yield try_out("openai", f"calls of tools, {template}", [calls], template=template)
    masks = {"tokenizer": str(TOKENIZER), "chat_template": "chatml"}
    tokens = masks | {"as_": "tokens"}
    yield try_out("openai", "messages, as tokens", [talk], more=tokens, survey=masks)
    yield try_out("openai", "messages, the last one bad", [partial(talk, last="nobody")])
    for target in names():
        yield try_out("openai", f"messages, --to {target}", [talk], more={"to": target})
    empty: dict[str, Any] = {}
    grows = "messages of one row, and rows"
    yield Growth("openai", grows, "chatml.openai", among_short_rows, empty, empty, empty, "")


def ways(name: str) -> dict[str, list[Callable[[int], Row]]]:
    """Return what grows in the rows of a type, with the ways to lengthen it."""
    if name.startswith("oasst") and name != "oasst_instructions":
        make = listed_tree if ".rows" in name else tree
        return {"a deep tree": [partial(make, True)], "a wide tree": [partial(make, False)]}
    rows = [
        json.loads(line)
        for path in sorted((FIXTURES / name).glob("*source.jsonl"))
        for line in path.read_bytes().split(b"\n")[:4]
        if line.startswith(b"{") and line.endswith(b"}")
    ]
    found: dict[str, list[Callable[[int], Row]]] = {}
    for row in rows:
        lists = list(paths(row))
        for where in [*((path,) for path in lists), tuple(lists)]:
            if where:
                makes = [partial(lengthened, row, where, again) for again in REPEATED]
                found.setdefault(", ".join(".".join(path) for path in where), makes)
    if not found and name in TRANSCRIPTS:
        found["texts"] = [partial(repeated_texts, row) for row in rows[:2]]
    return found


def among_short_rows(n: int) -> list[Row]:
    """Return a conversation of n messages, and n conversations of two to four."""
    return [talk(n), *[talk(2 + i % 3) for i in range(n)]]


def tried(
    folder: Path,
    name: str,
    grows: str,
    makes: Sequence[Callable[[int], Row]],
    *,
    template: str | None = "chatml",
    more: dict[str, Any] | None = None,
    survey: dict[str, Any] | None = None,
) -> Growth | None:
    """Choose the first way that is converted, or else refused; None where no way can be read."""
    path = FIXTURES / name / "settings.json"
    settings = json.loads(path.read_bytes()) if path.exists() else {}
    options = settings | (more or {})
    kinds: list[tuple[str, dict[str, Any]]] = [(name, options)]
    if template and not more:
        kinds.insert(0, (f"{template}.{name}", options))
        kinds.insert(1, (name, options | {"chat_template": template}))
    fallback: Growth | None = None
    for kind, given in kinds:
        for make in makes:
            many = partial(one_row, make)
            try:
                reason = convert(folder, kind, written(folder, many(9)), given)
            except FmtkitError:
                continue
            largest = DEEPEST if "deep" in grows else LARGEST
            found = Growth(name, grows, kind, many, given, settings, survey or {}, reason, largest)
            if not reason:
                return found
            fallback = fallback or found
    return fallback


def one_row(make: Callable[[int], Row], n: int) -> list[Row]:
    """Return a table of one row."""
    return [make(n)]


def written(folder: Path, rows: Sequence[Row]) -> Path:
    """Write rows as JSON lines."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def deep_enough() -> None:
    """Let Python write the deepest tree."""
    sys.setrecursionlimit(4 * DEEPEST + 1000)


def convert(folder: Path, kind: str, source: Path, options: dict[str, Any]) -> str:
    """Convert rows, to Parquet or to JSON lines; return why nothing was written."""
    out = folder / ("out.jsonl" if "to" in options else "out.parquet")
    for old in folder.glob("out*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    try:
        fmtkit.convert(str(source), kind, out, **options)
    except NothingWrittenError as error:
        report = json.loads(Path(str(error.report)).read_bytes()) if error.report else {}
        return ", ".join(sorted(report.get("reasons", {}))) or "nothing was written"
    return ""


def cost(action: Callable[[], object]) -> tuple[float, float]:
    """Return the CPU seconds of something, in all threads of this process, and the MB that it took at most."""
    gc.collect()
    if CLEAR.exists():
        CLEAR.write_text("5")  # from here the peak is counted
    begun, before = time.process_time(), memory("VmRSS")
    action()
    return time.process_time() - begun, memory("VmHWM") - before


def memory(key: str) -> float:
    """Return a figure of this process in MB; 0 where the system does not tell."""
    if not CLEAR.exists():
        return 0.0
    return int(CLEAR.with_name("status").read_text().partition(f"{key}:")[2].split()[0]) / 1000


def measured(growth: Growth, folder: Path, enough: float) -> tuple[int, list[list[float]]]:
    """Return the last size; and of each size the seconds of each command, and the memory."""
    n, taken = FIRST, []
    while True:
        rows = growth.make(n)
        source = written(folder, rows)
        commands = [
            lambda: convert(folder, growth.type, source, growth.options),  # noqa: B023
            lambda: fmtkit.validate(str(source), growth.name, **growth.read),  # noqa: B023
            lambda: fmtkit.inspect(str(source), growth.name, **growth.survey),  # noqa: B023
        ]
        costs = [cost(command) for command in commands]
        taken.append([*(seconds for seconds, _ in costs), max(size for _, size in costs)])
        full = source.stat().st_size * 2 > LINE * len(rows) or n >= growth.largest
        if full or (sum(taken[-1][:-1]) > enough and len(taken) > 2):
            return n, taken
        n *= 2


def ratio(before: float, after: float, least: float) -> str:
    """Write a ratio, marked where it is steep; what is all overhead has none."""
    if after < least:
        return "-"
    return f"{after / max(before, 0.01):.1f}" + (" **steep**" if after > STEEP * before else "")


def lines(chosen: Sequence[str], enough: float) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| type | what grows | n | convert s | ratio | validate s | ratio | inspect s | ratio | MB | ratio | |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for growth in filter(None, growths(folder, chosen)):
            n, taken = measured(growth, folder, enough)
            *pairs, (old, new) = zip(taken[-2], taken[-1], strict=True)
            cells = [cell for a, b in pairs for cell in (f"{b:.2f}", ratio(a, b, SHORT))]
            cells += [f"{new:.0f}", ratio(old, new, SMALL)]
            yield f"| {' | '.join([growth.type, growth.grows, f'{n:,}', *cells, growth.outcome])} |"


def main() -> None:
    """Print the table, or put it into README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="types to measure")
    parser.add_argument(
        "--seconds", type=float, default=0.6, help="CPU seconds at which a row ends"
    )
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    deep_enough()
    table = []
    for line in lines(arguments.only, arguments.seconds):
        print(line, flush=True)
        table.append(line)
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    kernel = native.why_not() or "used"
    made = f"{date.today()}, Python {platform.python_version()}, {versions}; kernel: {kernel}."
    table += ["", made]
    print(table[-1])
    if arguments.write:
        write(table)


def write(table: Sequence[str]) -> None:
    """Put the table into README.md; rows of other types, of an earlier run, stay."""
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    former, _, after = rest.partition(END)
    head, made = table[:2], table[-1]
    rows = {cells(line)[:2]: line for line in (*former.splitlines(), *table[2:-2]) if is_row(line)}
    body = "\n".join([*head, *(rows[key] for key in sorted(rows)), "", made])
    README.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def cells(line: str) -> tuple[str, ...]:
    """Return the cells of a row of the table."""
    return tuple(cell.strip() for cell in line.strip("|").split("|"))


def is_row(line: str) -> bool:
    """Return whether a line is a row of the table, not its head."""
    return line.startswith("| ") and not line.startswith("| type |")


if __name__ == "__main__":
    main()
