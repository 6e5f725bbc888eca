"""What `fmtkit env create` and `fmtkit env list` print."""

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from fmtkit.diffing.environments import Environment
from fmtkit.diffing.trainer import Trainer
from fmtkit.reports.console import aligned, output, print_json, show


def print_environments(
    found: Sequence[Environment],
    *,
    as_json: bool,
    trainers: Sequence[Trainer] = (),
    folder: Path | None = None,
) -> None:
    """Print environments with what making them took, and the trainers that one can be made for."""
    if as_json:
        print_json({"environments": [one.as_dict() for one in found]})
        return
    table = aligned("left", "left", "left")
    for one in found:
        sizes = f"{_size(one.download_bytes)} downloaded, {_size(one.disk_bytes)} on disk"
        took = f"{sizes}, {one.seconds:,.0f} s"
        table.add_row(Text(one.name, style="cyan"), one.python, took)
    there = {one.name for one in found}
    for trainer in trainers:
        name = f"{trainer.name}=={trainer.version}"
        if name not in there:
            table.add_row(Text(name, style="cyan"), "not made", f"fmtkit env create {trainer.name}")
    lines = [] if folder is None else [Text(f"in {folder}"), Text("")]
    show(output(), *lines, table)


def _size(count: int) -> str:
    if count < 1_000_000_000:
        return f"{count / 1_000_000:,.0f} MB"
    return f"{count / 1_000_000_000:,.1f} GB"
