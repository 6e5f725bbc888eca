"""Refusals about the data: masks, templates and the mix of datasets."""

from collections.abc import Callable

from fmtkit.message_kinds import FLAGS
from fmtkit.runner import Runner
from fmtkit.training.arguments import fields_of
from fmtkit.training.config import Config


def _masks(config: Config, _: Runner) -> str | None:
    entries = (*config.datasets, *config.test_datasets)
    for where in (*entries, {k: config.get(k) for k in ("roles_to_train", "train_on_eos")}):
        roles = where.get("roles_to_train")
        if roles not in (None, ["assistant"]):
            return (
                f"roles_to_train: {roles}: only [assistant] can be learnt; mark messages by "
                "message_field_training"
            )
        if where.get("train_on_eos") not in {None, "turn"}:
            return (
                f"train_on_eos: {where['train_on_eos']}: a reply is learnt with its own end of "
                "turn; write `turn`"
            )
    return None


def _templates(config: Config, _: Runner) -> str | None:
    for entry in (*config.datasets, *config.test_datasets):
        own, whole = entry.get("chat_template"), config.get("chat_template")
        if own is not None and whole is not None and own != whole:
            return (
                f"chat_template: {whole} for the run and {own} for {entry.get('path')}; a "
                "model has one template"
            )
    if config.get("chat_template_jinja") and config.get("chat_template") not in {None, "jinja"}:
        return "chat_template and chat_template_jinja both give a template; keep one"
    return None


def _variables(config: Config, runner: Runner) -> str | None:
    if not config.get("chat_template_kwargs"):
        return None
    if runner.row_variables or "chat_template_kwargs" in fields_of(runner.config).annotations:
        return None
    return (
        f"chat_template_kwargs: the trainer for {runner.method} passes no variables to the "
        "template; set them in the template itself, by chat_template_jinja"
    )


def _marks(config: Config, _: Runner) -> str | None:
    for entry in (*config.datasets, *config.test_datasets):
        wish = entry.get("message_field_training")
        if wish not in {None, *FLAGS}:
            return (
                f"message_field_training: {wish}: whether a message is learnt is read from its "
                f"{', '.join(FLAGS[:-1])} or {FLAGS[-1]}; rename the key in the data"
            )
    return None


def _weights(config: Config, _: Runner) -> str | None:
    for entry in config.datasets:
        weight = entry.get("weight")
        if isinstance(weight, (int, float)) and weight <= 0:
            return (
                f"weight: {weight} for {entry.get('path')}: takes a number above 0; leave the "
                "entry out"
            )
    return None


REFUSALS: dict[str, Callable[[Config, Runner], str | None]] = {
    "mask": _masks,
    "two_templates": _templates,
    "template_variables": _variables,
    "message_field_training": _marks,
    "mix_weight": _weights,
}
"""Name -> why a configuration cannot be honoured, or None."""
