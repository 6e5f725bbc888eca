"""axolotl: its loading of a config's datasets, and for texts of pairs the trainer that it builds."""

from pathlib import Path

from fmtkit.core.errors import OptionError
from fmtkit.diffing.given_rows import GivenRows, converted
from fmtkit.diffing.own_rows import OwnRows
from fmtkit.diffing.trainer import Asked, Request, Trainer

_OF_TOKENS = (
    "base_model",
    "sequence_len",
    "excess_length_strategy",
    "train_on_inputs",
    "special_tokens",
    "tokens",
    "added_tokens_overrides",
    "tokenizer_config",
    "tokenizer_type",
    "min_sample_len",
    "default_system_message",
    "chat_template_kwargs",
)
"""Keys of a config on which ids and labels depend."""
_OF_ENTRIES = ("roles_to_train", "train_on_eos", "train_on_eot")
_LONG = 131_072
"""The length of a config that names none; axolotl's own default is 512."""


def _request(own: OwnRows, asked: Asked, folder: Path) -> tuple[Request, GivenRows | None]:
    config = own.plan.config
    if asked.as_is:
        keys = {**asked.keys, **asked.settings}
        return {"trainer": TRAINER.name, "keys": keys, "limit": asked.limit}, None
    given = converted(own, folder, "axolotl", allow_loss=("arguments",))
    keys = {name: value for name in _OF_TOKENS if (value := config.get(name)) is not None}
    keys |= {"chat_template": "tokenizer_default", "sequence_len": own.job.max_length or _LONG}
    if own.job.template_text is not None:
        keys |= {"chat_template": "jinja", "chat_template_jinja": own.job.template_text}
    entry: dict[str, object] = {"path": str(given.file), "ds_type": "json"}
    entry["field_messages"] = "messages"
    if "chosen" in given.columns:
        if own.plan.runner.head == "score":
            raise OptionError(
                "--against axolotl: its reward models read types of their own; with --as-is it reads the "
                "config's datasets itself"
            )
        keys["rl"] = own.plan.method
        entry |= {"type": "chat_template.default"}
        entry |= {"field_chosen": "chosen", "field_rejected": "rejected"}
    else:
        entry |= {"type": "chat_template", "message_field_training": "train"}
        entry |= {"message_field_training_detail": "train_detail"}
        named = own.plan.datasets[0].entry
        entry |= {name: named[name] for name in _OF_ENTRIES if name in named}
    request: Request = {
        "trainer": TRAINER.name,
        "rows": str(given.file),
        "keys": {**keys, "datasets": [entry], **asked.settings},
    }
    return request, given


TRAINER = Trainer(
    name="axolotl",
    module="axolotl",
    package="axolotl==0.19.0",
    needs=(
        "torch==2.13.0",
        "transformers==5.16.1",
        "trl==1.9.0",
        "datasets==4.8.4",
        "accelerate==1.13.0",
        "peft==0.20.0",
        "tokenizers==0.23.1",
        "huggingface_hub==1.17.0",
        "pydantic==2.12.5",
        "PyYAML==6.0.3",
        "posthog==6.7.11",
        "typer==0.25.1",
        "python-dotenv==1.0.1",
        "numba>=0.63.1,<1",
        "evaluate==0.4.1",
        "triton>=3.4.0",
        "wandb",
        "addict",
        "colorama",
        "einops",
        "fire",
        "pillow",
        "requests",
        "scipy",
    ),
    request=_request,
    left_out=(
        "bitsandbytes, xformers, liger-kernel, torchao, flash-linear-attention and kernels (they need CUDA "
        "and replace layers of models), gradio, trackio, lm_eval, modal and the file systems of clouds"
    ),
    as_is=True,
)
