"""What `make fuzz` needs beside the target: specs and a first corpus, and the comparison of what was found.

python tests/fuzz_kernel.py write FOLDER      # FOLDER/specs and FOLDER/corpus, of the fixtures
python tests/fuzz_kernel.py compare FOLDER    # each input that fuzzing kept, with the strict parser
"""

import sys
from hashlib import sha1
from pathlib import Path

from test_kernel_lines import check, check_kinds
from test_parse import CASES, bound, sound_lines

from fmtkit.converting.binding import Binding
from fmtkit.reading import clean_lines


def targets() -> list[tuple[Binding, list[bytes]]]:
    """Return a binding for each fixture that the kernel reads, without kept columns and with all."""
    found = []
    for case in CASES:
        for keep in ("", "all"):
            binding = bound(case, keep).plans[0].binding
            if clean_lines.read(b"", binding.spec) is not None:
                found.append((binding, sound_lines(case)))
    return found[:256]


def write(folder: Path) -> None:
    """Write the specs as the target reads them, and the lines of the fixtures as inputs."""
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    chosen = targets()
    specs = [clean_lines.told(binding.spec) for binding, _ in chosen]
    (folder / "specs").write_text(repr(specs), encoding="utf-8")
    for number, (_, lines) in enumerate(chosen):
        for block in (*lines, b"\n".join(lines[:3])):
            made = bytes([number]) + block
            (corpus / sha1(made).hexdigest()).write_bytes(made)


def compare(folder: Path) -> None:
    """Compare the clean lines of every input with the strict parser's values."""
    chosen = targets()
    inputs = sorted((folder / "corpus").iterdir())
    lines = 0
    for path in inputs:
        number, block = path.read_bytes()[:1], path.read_bytes()[1:]
        found = block.split(b"\n")
        if not number or not found[-1]:
            found = found[:-1]
        lines += len(found)
        check(chosen[number[0] % len(chosen)][0] if number else chosen[0][0], found)
        check_kinds(found)
    print(
        f"{len(inputs)} inputs of {lines} lines: every clean line is what the strict parser makes of it"
    )


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](Path(sys.argv[2]))
