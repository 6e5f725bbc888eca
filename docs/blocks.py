"""The examples of the documentation: ```console blocks that run, with the output that they show.

`python docs/blocks.py` pastes what the commands print now into the pages. A line `...` in an output
stands for any lines; such blocks are only compared. A comment before a block says what is done with
it: `<!-- not run: reason -->` skips it, `<!-- file: NAME -->` writes the block to a file.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "docs" / "examples"
COLUMNS = 100
MARK = re.compile(r"<!-- (not run|file): (.+?) -->")
SHELL = set("|&;<>()$`*?[]#~%!{}'\"\\")
JOINT = re.compile(r"(?P<both> 2>&1)? (?P<next>\|\|?|&&) ")
"""Where a first command ends and another begins that takes what it prints, or its exit code."""
LOADS_TORCH = ("fmtkit train ", "fmtkit try ")
QUOTED = re.compile(r"'[^'\n]*'")
VARYING = (
    (re.compile(r"in \d+\.\d\d s(, [\d,]+ rows/s)?"), "in 0.00 s"),
    (re.compile(r'"seconds": [\d.]+'), '"seconds": 0.0'),
    # Parquet's own bytes change with its version.
    (re.compile(r"(rows written +[\d,]+  )[\d.]+ [KMG]?B"), r"\1"),
)


@dataclass
class Step:
    """A command as it is typed, and the lines that follow it."""

    command: str
    shown: list[str] = field(default_factory=list)


@dataclass
class Block:
    """A fenced block of a page; `line` is that of its first inner line, from 0."""

    page: Path
    line: int
    language: str
    lines: list[str]
    mark: str = ""
    """What the comment before it asks for: `not run` or `file`."""
    detail: str = ""

    @property
    def name(self) -> str:
        """Return where the block stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line + 1}"

    def steps(self) -> list[Step]:
        """Return the commands of a console block; a backslash goes on with the next line."""
        steps: list[Step] = []
        for line in self.lines:
            if steps and not steps[-1].shown and steps[-1].command.endswith("\\"):
                steps[-1].command += f"\n{line}"
            elif line.startswith("$ "):
                steps.append(Step(line[2:]))
            elif steps:
                steps[-1].shown.append(line)
        return steps


def pages() -> list[Path]:
    """Return every page of the documentation."""
    beside = (*ROOT.glob("benchmarks/*.md"), *ROOT.glob("runners/*/README.md"))
    return [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *beside]


def blocks(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of a page."""
    block: Block | None = None
    mark = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n")):
        if block is not None and line == "```":
            yield block
            block, mark = None, ""
        elif block is not None:
            block.lines.append(line)
        elif line.startswith("```"):
            found = MARK.fullmatch(mark)
            kind, detail = (found[1], found[2]) if found else ("", "")
            block = Block(page, number + 1, line[3:].strip(), [], kind, detail)
        elif line.strip():
            mark = line.strip()


def run(page: Path, folder: Path) -> Iterator[tuple[Block, Step, str, int]]:
    """Run the console blocks of a page in a folder; yield what each command printed and its exit code."""
    for block in blocks(page):
        if block.mark == "file":
            (folder / block.detail).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        elif block.language == "console" and not block.mark:
            for step in block.steps():
                yield block, step, *execute(step.command, folder)


def execute(command: str, folder: Path) -> tuple[str, int]:
    """Run a command as a terminal of 100 columns would without being one.

    fmtkit runs in this process, at the head of a pipe or of a list too: to start Python takes longer
    than most of the commands. What loads torch has a process of its own.
    """
    line = command.replace("\\\n", " ")
    joint = JOINT.search(line)
    own, rest = (line[: joint.start()], line[joint.end() :]) if joint else (line, "")
    if (
        not own.startswith("fmtkit ")
        or own.startswith(LOADS_TORCH)
        or SHELL & set(QUOTED.sub("", own))
    ):
        return _shell(command, folder)
    piped = joint is not None and joint["next"] == "|"
    out, said, code = _here(shlex.split(own)[1:], apart=piped and not joint["both"])
    if joint is None:
        return out, code
    if piped:
        printed, code = _shell(rest, folder, out)
        return said + printed, code
    printed, code = _shell(f"(exit {code}) {joint['next']} {rest}", folder)
    return out + printed, code


def _shell(command: str, folder: Path, given: str = "") -> tuple[str, int]:
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = f"{folder / '.bin'}:{environment['PATH']}"
    done = subprocess.run(  # noqa: S603
        ["/bin/sh", "-c", command],
        cwd=folder,
        env=environment,
        input=given.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    return done.stdout.decode(), done.returncode


def _here(arguments: list[str], *, apart: bool) -> tuple[str, str, int]:
    """Return what fmtkit prints on stdout and on stderr, all as stdout unless they go apart."""
    from fmtkit import cli

    out = io.StringIO()
    said = io.StringIO() if apart else out
    given, sys.argv = sys.argv, ["fmtkit", *arguments]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    finally:
        sys.argv = given
    return out.getvalue(), said.getvalue() if apart else "", code


@contextlib.contextmanager
def samples(folder: Path) -> Iterator[Path]:
    """Copy the samples to a folder and work there."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    (folder / ".bin").mkdir()
    for name, more in {"fmtkit": " -m fmtkit", "python": ""}.items():
        shim = folder / ".bin" / name
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}"{more} "$@"\n', encoding="utf-8")
        shim.chmod(shim.stat().st_mode | stat.S_IXUSR)
    before, width = Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = str(COLUMNS)
    try:
        yield folder
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS")
        if width is not None:
            os.environ["COLUMNS"] = width


def lines_of(text: str) -> list[str]:
    """Return printed lines without what differs from run to run."""
    for pattern, same in VARYING:
        text = pattern.sub(same, text)
    return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []


def is_shown(step: Step, printed: str) -> bool:
    """Return whether a command printed what the page shows."""
    shown = lines_of("\n".join(step.shown))
    if "..." not in shown:
        return not shown or shown == lines_of(printed)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else re.escape(line) + "\n" for line in shown)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines_of(printed))) is not None


def rewrite(page: Path) -> bool:
    """Paste into a page what its commands print now; return whether it changed."""
    lines = page.read_text(encoding="utf-8").split("\n")
    before = list(lines)
    with tempfile.TemporaryDirectory() as folder, samples(Path(folder)) as here:
        fresh: dict[int, list[str]] = {}
        for block, step, printed, _ in run(page, here):
            inner = fresh.setdefault(block.line, [])
            inner += [*f"$ {step.command}".split("\n")]
            stale = not is_shown(step, printed)
            if stale and "..." in step.shown:
                sys.stderr.write(f"{block.name}: $ {step.command}\n{printed}\nshorten it by hand\n")
            keep = not stale or "..." in step.shown
            inner += step.shown if keep else printed.rstrip("\n").split("\n")
    for block in reversed([b for b in blocks(page) if b.line in fresh]):
        made = [line.rstrip() for line in fresh[block.line]]
        lines[block.line : block.line + len(block.lines)] = made
    page.write_text("\n".join(lines), encoding="utf-8")
    return lines != before


if __name__ == "__main__":
    for chosen in [Path(name).resolve() for name in sys.argv[1:]] or pages():
        if rewrite(chosen):
            sys.stdout.write(f"{chosen.relative_to(ROOT)}\n")
