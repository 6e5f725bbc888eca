"""What the loss, the gradient and the margins of a run say: warnings, and when it ends."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Reward workers import the callback's errors, and start without pyarrow.
    from fmtkit.core.runner import Runner


class LossWatchdog:
    """Ends a run whose loss is above a limit for several steps, as axolotl's callback does.

    It is mixed with transformers' callback class in the training process.
    """

    def __init__(self, limit: float, patience: int) -> None:
        """Watch for a loss above `limit` after `patience` steps in a row."""
        self.limit = limit
        self.patience = patience
        self.steps_above = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the steps since the last logged loss below the limit; stop after too many."""
        del args
        loss = state.log_history[-1].get("loss") if state.log_history else None
        if loss is None:
            return
        self.steps_above = self.steps_above + 1 if loss > self.limit else 0
        if self.steps_above == self.patience:
            control.should_training_stop = True
            if state.is_world_process_zero:
                print(  # noqa: T201
                    f"warning: step {state.global_step}: the loss is {loss:.4g}, above "
                    f"loss_watchdog_threshold ({self.limit:g}) for {self.patience} steps: the run ends "
                    "here",
                    file=sys.stderr,
                )


def findings(logs: list[Mapping[str, float]], runner: "Runner") -> Iterator[str]:
    """Yield warnings from a row of logs, each with the next step to try."""
    norms = [log["grad_norm"] for log in logs if "grad_norm" in log]
    losses = [log["loss"] for log in logs]
    if norms and max(norms) == 0.0:
        yield (
            "no learning signal: the gradient is zero; look at `fmtkit inspect --show-mask 3` "
            "(is any "
            "token trained on?), and for online methods at the spread of the rewards"
        )
    elif runner.health is None and len(losses) > 1 and max(losses) == min(losses):
        # The value of an online loss says nothing: with one step per generation it is zero.
        yield "no learning signal: the loss does not move; raise learning_rate, or look at the data"
    accuracies = [log["rewards/accuracies"] for log in logs if "rewards/accuracies" in log]
    # Before the model has moved both sides have the same reward, so no pair is won or lost.
    margins = [log.get("rewards/margins", -1.0) for log in logs]
    if (
        "Preference" in runner.tables
        and accuracies
        and max(accuracies) == 0.0
        and min(margins) < 0.0
    ):
        yield "chosen loses to rejected in every pair: are the two columns swapped?"


def not_a_number(name: str, value: float, step: int) -> str:
    """Return why a run ends at a metric that is no number, and what to try."""
    return (
        f"{name} is {value} at step {step}: lower learning_rate (a tenth), set max_grad_norm: 1.0 "
        "and warmup_steps; with fp16 use bf16: true; --resume continues from the last checkpoint, if "
        "there is one"
    )
