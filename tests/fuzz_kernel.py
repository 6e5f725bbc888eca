"""What `make fuzz` needs beside the target: specs and a first corpus, and the comparison of what was found.

python tests/fuzz_kernel.py write FOLDER      # FOLDER/specs (with layouts) and FOLDER/corpus, of the fixtures
python tests/fuzz_kernel.py compare FOLDER    # each input that fuzzing kept, with the strict parser
"""

import sys
from collections import defaultdict
from dataclasses import dataclass
from hashlib import sha1
from pathlib import Path

from test_kernel_layouts import job_of, laid_rows
from test_kernel_lines import check, check_kinds
from test_parse import CASES, bound, sound_lines

from fmtkit.columns.text_layout import Layout
from fmtkit.reading import clean_lines
from fmtkit.reading.binding import Binding
from fmtkit.running.preparation import Job
from fmtkit.stages import fusing

MOST_TARGETS = 256
"""A byte chooses one."""
BATCH = 300


@dataclass(frozen=True)
class Target:
    """What lines are read by, and lines for it; with a layout, the job that it is of."""

    binding: Binding
    lines: list[bytes]
    job: Job | None = None

    @property
    def layout(self) -> Layout | None:
        return None if self.job is None else self.job.fusions[0].paths.layout


def targets() -> list[Target]:
    """Return the layouts of all fixtures, and each fixture that the kernel reads, nothing and all kept."""
    jobs = ((case, job_of(case, template)) for case in CASES for template in ("qwen3", ""))
    found = [
        Target(job.plans[0].binding, sound_lines(case), job)
        for case, job in jobs
        if job is not None and job.fusions[0].paths
    ]
    for case in CASES:
        for keep in ("", "all"):
            binding = bound(case, keep).plans[0].binding
            if clean_lines.read(b"", binding.spec) is not None:
                found.append(Target(binding, sound_lines(case)))
    return found[:MOST_TARGETS]


def write(folder: Path) -> None:
    """Write the specs and layouts as the target reads them, and the lines of the fixtures as inputs."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    chosen = targets()
    told = []
    for target in chosen:
        spec, layout = target.binding.spec, target.layout
        laid = None if layout is None else clean_lines.layout_tuple(spec, layout)
        told.append((clean_lines.spec_tuple(spec), laid))
    (folder / "specs").write_text(repr(told), encoding="utf-8")
    for number, target in enumerate(chosen):
        for block in (*target.lines, b"\n".join(target.lines[:3])):
            made = bytes([number]) + block
            (corpus / sha1(made).hexdigest()).write_bytes(made)


def compare(folder: Path) -> None:
    """Compare the clean lines of every input with the strict parser's values, and rows made both ways."""
    # However few of the lines are laid out.
    fusing.WORTH = 0.0
    chosen = targets()
    inputs = sorted((folder / "corpus").iterdir())
    lines: dict[int, list[bytes]] = defaultdict(list)
    for path in inputs:
        held = path.read_bytes()
        number = held[0] % len(chosen) if held else 0
        lines[number] += [line for line in held[1:].split(b"\n") if line]
    laid = 0
    for number, found in lines.items():
        target = chosen[number]
        for at in range(0, len(found), BATCH):
            part = found[at : at + BATCH]
            check(target.binding, part)
            check_kinds(part)
            laid += laid_rows(target.job, part) if target.job is not None else 0
    count = sum(map(len, lines.values()))
    print(
        f"{len(inputs)} inputs of {count} lines: every clean line is what the strict parser makes of it; "
        f"{laid} were laid out, as the ordinary way makes them"
    )


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
