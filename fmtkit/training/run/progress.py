"""The progress of a training run: a bar on a terminal, lines in a log."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fmtkit.core.progress_lines import ProgressLines, of_total

_SHOWN = {
    "loss": "loss",
    "eval_loss": "eval",
    "rewards/margins": "margin",
    "reward": "reward",
    "rewards/accuracies": "accuracy",
    "tokens_per_second": "tokens/s",
}


class ProgressBar:
    """Steps done, with the last metrics. Mixed with transformers' callback class."""

    def __init__(self, rate: Callable[[], float | None], lines: ProgressLines) -> None:
        """Begin without a bar; `rate` returns the tokens per second at the last log."""
        self.rate = rate
        self.lines = lines
        self.metrics = ""
        self.bar: Any = None
        self.task: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Open the bar in the first process, if there is a terminal."""
        del args, control
        if not state.is_world_process_zero or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self.bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task("", total=state.max_steps, completed=state.global_step)
        self.bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the bar, or print a line in the first process."""
        del args, control
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)
        elif state.is_world_process_zero:
            done = f"step {of_total(state.global_step, state.max_steps)}"
            self.lines(f"{done}  {self.metrics}".rstrip())

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Show the last metrics."""
        del args, state, control
        # The very last log has figures of the whole run, which the report shows.
        words = described(logs or {}, self.rate())
        self.metrics = words or self.metrics
        if self.bar is not None and words:
            self.bar.update(self.task, description=words)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        del args, state, control
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


@contextmanager
def preparing(lines: ProgressLines) -> Iterator[None]:
    """Print lines while `datasets` maps over the rows: tokenizing, packing and the like.

    Its own bars are meant for a terminal, and TRL has no callback for this.
    """
    from datasets import arrow_dataset

    module: Any = arrow_dataset
    before = module.hf_tqdm
    module.hf_tqdm = _reporting(before, lines)
    try:
        yield
    finally:
        module.hf_tqdm = before


def _reporting(bar: Any, lines: ProgressLines) -> Any:
    """Return the bar of `datasets`, which draws nothing here, as one that prints lines."""

    def start(self: Any, *args: Any, desc: str | None = None, **known: Any) -> None:
        bar.__init__(self, *args, desc=desc, **known)
        self.so_far, self.what = known.get("initial", 0), desc or "Map"

    def update(self: Any, n: int = 1) -> None:
        bar.update(self, n)
        self.so_far += n
        lines(lambda: f"{self.what}: {of_total(self.so_far, self.total)} rows")

    return type(bar.__name__, (bar,), {"__init__": start, "update": update})


def described(logs: dict[str, Any], rate: float | None = None) -> str:
    """Return the most informative metrics in one line; an empty string if there are none of them."""
    known = any(name in logs for name in _SHOWN)
    logs = {**logs, "tokens_per_second": rate} if known else {}
    parts = [
        f"{word} {logs[name]:.4g}"
        for name, word in _SHOWN.items()
        if isinstance(logs.get(name), (int, float))
    ]
    return "  ".join(parts)
