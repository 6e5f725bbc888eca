"""Refusals about the data: masks, templates and the mix of datasets."""

from collections.abc import Callable

from fmtkit.core.runner import Runner
from fmtkit.tokenizers.turn_rule import ENDS
from fmtkit.training.config import keys
from fmtkit.training.config.config import Config
from fmtkit.training.config.named_arguments import arguments_of


def _masks(config: Config, runner: Runner) -> str | None:
    entries = (*config.datasets, *config.test_datasets)
    for where in (*entries, {k: config.get(k) for k in ("roles_to_train", "train_on_eos")}):
        roles, ends = where.get("roles_to_train"), where.get("train_on_eos")
        ends = where.get("train_on_eot", ends)
        usual = roles in (None, ["assistant"]) and ends in {None, "turn"}
        if not usual and runner.mask != "completion":
            return (
                f"roles_to_train and train_on_eos choose what sft learns; {runner.method} compares "
                "whole replies: leave them out"
            )
        if where.get("message_field_training_detail") and runner.mask != "completion":
            return (
                f"message_field_training_detail chooses what sft learns; {runner.method} compares whole "
                "replies: leave it out"
            )
        if ends not in {None, *ENDS}:
            return f"train_on_eos: {ends}: takes {', '.join(ENDS)}"
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
    if runner.row_variables or "chat_template_kwargs" in arguments_of(runner).fields:
        return None
    return (
        f"chat_template_kwargs: the trainer for {runner.method} passes no variables to the "
        "template; set them in the template itself, by chat_template_jinja"
    )


def _weights(config: Config, _: Runner) -> str | None:
    for entry in config.datasets:
        weight = entry.get("weight")
        if isinstance(weight, (int, float)) and weight <= 0:
            return (
                f"weight: {weight} for {entry.get('path')}: takes a number above 0; leave the "
                "entry out"
            )
    return None


def length_policy(config: Config) -> str:
    """Return what becomes of longer rows, by the words of --on-overlong; they are dropped unless set."""
    wish = config.text("excess_length_strategy") or "drop"
    return str(keys.table()["excess_length_strategy"].translate(wish))


def _cuts(config: Config, runner: Runner) -> str | None:
    wish, way = config.text("excess_length_strategy"), length_policy(config)
    if not way.startswith("truncate"):
        return None
    if way in runner.cuts and not (way == "truncate-start" and config.is_true("sample_packing")):
        return None
    other = sorted(runner.cuts - {way})
    if way in runner.cuts:
        why = "packing cuts a row at its end"
    elif other:
        why = f"{runner.method} cuts a row at its {other[0].rpartition('-')[2]}"
    else:
        why = f"{runner.method} cuts no row"
    advice = f"write {other[0]}, or drop" if other else "write drop, or raise sequence_len"
    return f"excess_length_strategy: {wish}: {why}; {advice}"


RULES: tuple[tuple[str, str, Callable[[Config, Runner], str | None]], ...] = (
    ("mask", "turns or ends that cannot be trained on", _masks),
    ("two_templates", "two templates for one model", _templates),
    (
        "template_variables",
        "variables of the template that the trainer does not pass on",
        _variables,
    ),
    ("mix_weight", "a source with no weight in the mix", _weights),
    ("overlong", "rows cut where the trainer cuts none, or at the other end", _cuts),
)
"""Code, what it looks for, and what finds the reason why a configuration cannot be honoured."""
