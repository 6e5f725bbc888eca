"""When weights are sent to the generator of answers: every so many steps."""

from typing import Any


class SyncInterval:
    """Lets TRL transfer the weights only when `interval` steps have passed since the last time.

    Counted from the last transfer, not by the step's own number: with `num_iterations: 2` answers are
    made at every second step, and an interval of 3 then means steps 0, 4, 8. The weights are always
    sent before the first answers, and before an evaluation, which is of the current model.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self.last: int | None = None

    def before_generation(self, trainer: Any) -> bool:
        """Return whether TRL will transfer the weights now; keep it from doing so if they are not due.

        TRL does whenever `_last_loaded_step` is not the current step.
        """
        step = trainer.state.global_step
        if trainer._last_loaded_step == step:
            return False
        due = self.last is None or step - self.last >= self.interval or not trainer.model.training
        if due:
            self.last = step
            return True
        trainer._last_loaded_step = step
        return False
