"""TRL: the trainer class of the method, its dataset preparation and its collator."""

from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.diffing.given_rows import GivenRows, as_they_are
from fmtkit.diffing.own_rows import OwnRows
from fmtkit.diffing.trainer import Asked, Request, Trainer
from fmtkit.training.data.loss_rules import LossRule

_OF_TOKENS = frozenset(
    {
        "max_length",
        "max_prompt_length",
        "max_completion_length",
        "truncation_mode",
        "assistant_only_loss",
        "completion_only_loss",
        "step_separator",
        "train_on_last_step_only",
        "eos_token",
        "pad_token",
        "chat_template_kwargs",
    }
)
"""Arguments on which ids and labels depend; the others are not passed on."""


def _request(own: OwnRows, asked: Asked, folder: Path) -> tuple[Request, GivenRows | None]:
    runner, job = own.plan.runner, own.job
    if not runner.trainer.startswith("trl"):
        raise OptionError(f"--against trl: TRL has no trainer of its own for {own.plan.method}")
    if "Segments" in {one.table for one in own.plan.datasets}:
        raise OptionError("--against trl: TRL has no rows of segments (type: input_output)")
    settings = {name: value for name, value in job.trainer.items() if name in _OF_TOKENS}
    if runner.mask == "completion":
        # The config says which tokens are learned; this is how TRL is told so.
        learns_all = LossRule.of_job(job).learns_all("Conversation")
        settings.setdefault("assistant_only_loss", not learns_all)
    given = as_they_are(own, folder)
    if "messages" not in given.columns:
        settings.pop("assistant_only_loss", None)
    request: Request = {
        "trainer": TRAINER.name,
        "class": runner.trainer,
        "config": runner.config,
        "head": runner.head,
        "rows": str(given.file),
        "settings": {**settings, **asked.settings},
    }
    return request, given


TRAINER = Trainer(
    name="trl",
    module="trl",
    package="trl==1.16.0",
    needs=("torch==2.13.0", "transformers==5.23.0", "datasets==5.2.0", "accelerate==1.15.0"),
    request=_request,
)
