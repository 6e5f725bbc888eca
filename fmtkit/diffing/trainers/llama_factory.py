"""LLaMA-Factory: its converter, its template and its processor of the stage."""

from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.diffing.given_rows import GivenRows, converted
from fmtkit.diffing.own_rows import OwnRows
from fmtkit.diffing.trainer import Asked, Request, Trainer
from fmtkit.training.data.loss_rules import LossRule

_STAGES = {"tokens": "sft", "pairs": "rm", "replies": "kto", "scores": "rm"}
_LONG = 131_072
"""The length of a config that names none; LLaMA-Factory's own default is 2,048."""


def _request(own: OwnRows, asked: Asked, folder: Path) -> tuple[Request, GivenRows | None]:
    from fmtkit.diffing.own_rows import form_of

    form = form_of(own.plan)
    if own.plan.runner.head == "steps":
        raise OptionError("--against llama-factory: LLaMA-Factory has no process reward models")
    given = converted(own, folder, TRAINER.name)
    dataset: dict[str, object] = {"formatting": "sharegpt"}
    named = {"conversations": "messages"}
    dataset["columns"] = {named.get(one, one): one for one in given.columns}
    if "chosen" in given.columns:
        dataset["ranking"] = True
    settings: dict[str, object] = {
        "stage": _STAGES[form],
        "cutoff_len": own.job.max_length or _LONG,
        "train_on_prompt": LossRule.of_job(own.job).learns_all("Conversation"),
    }
    if isinstance(message := own.plan.config.get("default_system_message"), str):
        settings["default_system"] = message
    request: Request = {
        "trainer": TRAINER.name,
        "rows": str(given.file),
        "dataset": dataset,
        "head": own.plan.runner.head,
        "settings": {**settings, **asked.settings},
    }
    return request, given


TRAINER = Trainer(
    name="llama-factory",
    module="llamafactory",
    package="llamafactory==0.9.5",
    needs=(
        "torch==2.13.0",
        "transformers==5.6.0",
        "trl==0.24.0",
        "datasets==4.0.0",
        "accelerate==1.11.0",
        "peft==0.18.1",
        "omegaconf",
        "pillow",
        "pyyaml",
        "numpy",
    ),
    request=_request,
    stubs=("torchaudio",),
    left_out=(
        "torchaudio and torchvision (PyPI's builds do not load beside a torch for CPUs; torchaudio is an "
        "empty module), av, gradio, modelscope, fastapi, matplotlib and tiktoken"
    ),
)
