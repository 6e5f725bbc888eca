"""A progress bar of a training run, on a terminal only."""

import sys
from collections.abc import Callable
from typing import Any

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

    def __init__(self, rate: Callable[[], float | None]) -> None:
        """Begin without a bar; `rate` returns the tokens per second at the last log."""
        self.rate = rate
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
        """Move the bar."""
        del args, control
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Show the last metrics."""
        del args, state, control
        # The very last log has figures of the whole run, which the report shows.
        if self.bar is not None and (words := described(logs or {}, self.rate())):
            self.bar.update(self.task, description=words)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Close the bar."""
        del args, state, control
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


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
