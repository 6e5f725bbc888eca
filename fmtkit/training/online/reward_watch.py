"""What a run with rewards has beside TRL's own trainer, by a callback and without a class of its own.

A sample that failed ends the run on every process, before a step is made of its batch; what calls took is
logged, and what a run should know of its rewards is reported at its end.
"""

from collections.abc import Callable
from typing import Any

from fmtkit.training.online.failed_samples import FailedSamples
from fmtkit.training.online.rewards import Rewards


def watch(trainer: Any, rewards: Rewards) -> None:
    """Watch a trainer of TRL's that trains with these rewards."""
    failed = FailedSamples(trainer, rewards, 0.0)
    rewards.group_size = lambda: _group_size(trainer)
    rewards.log_lengths(_ends(trainer))
    trainer.add_callback(_watcher(failed))
    trainer.train = _reporting(trainer.train, failed)


def _group_size(trainer: Any) -> int:
    """Return the number of answers to a prompt, in training or evaluation, whichever is running."""
    training: int = trainer.num_generations
    return (
        training if trainer.model.training else getattr(trainer, "num_generations_eval", training)
    )


def _ends(trainer: Any) -> set[int]:
    """Return the tokens with which a whole answer ends, as TRL does to count those that were cut off."""
    given = trainer.processing_class
    tokenizer = getattr(given, "tokenizer", given)
    ends = getattr(trainer, "eos_token_ids", [tokenizer.eos_token_id])
    return {*ends, tokenizer.pad_token_id}


def _watcher(failed: FailedSamples) -> Any:
    from transformers import TrainerCallback

    class WatchRewards(TrainerCallback):
        """Looks at the rewards of a batch between its loss and the step, or after its evaluation."""

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            failed.check()

        def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, state, control
            failed.check()

    return WatchRewards()


def _reporting(train: Callable[..., Any], failed: FailedSamples) -> Callable[..., Any]:
    """Return `train` that reports what is to be said of the rewards at its end, and stops their workers."""

    def train_and_report(*args: Any, **kwargs: Any) -> Any:
        with failed.reporting():
            return train(*args, **kwargs)

    return train_and_report
