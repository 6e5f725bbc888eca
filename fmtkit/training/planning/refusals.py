"""Refusals: settings of a config that cannot be honoured, each with the reason and what to do instead.

Those of the model are in `model_refusals`, those of a section in its own modules.
"""

from collections.abc import Iterator, Mapping

from fmtkit.core import section
from fmtkit.core.runner import DEFAULT, Runner, find, guess, methods
from fmtkit.training.config import keys
from fmtkit.training.config.config import Config
from fmtkit.training.config.keys import OF_DATASET, arguments_of
from fmtkit.training.planning import variables
from fmtkit.training.planning.check import advise, refuse
from fmtkit.training.planning.resolve import has_evaluation, length_policy
from fmtkit.training.planning.run_plan import Plan


@refuse("method", "keys of a section with a method that does not use them", keys=("*.*",))
def _method(config: Config, runner: Runner) -> str | None:
    """Refuse sections of other methods if the config does not set `rl`."""
    if runner.method != DEFAULT:
        return None
    for name in sorted(keys.section_names()):
        other = guess({name})
        inside = [one for one in config.settings if one.startswith(f"{name}.")]
        if other is not None and inside:
            # The first has the line, where it is written without its section too.
            return f"{inside[0]}: the keys of {name} are for a method other than {DEFAULT}; write rl: {other}"
    return None


@refuse(
    "context_parallel",
    "context parallelism with a method that does not support it",
    keys=("context_parallel_size",),
)
def _context_parallel(config: Config, runner: Runner) -> str | None:
    size = config.get("context_parallel_size")
    if size in {None, 1}:
        return None
    if not runner.splits_sequences:
        able = methods(lambda one: one.splits_sequences)
        return (
            f"context_parallel_size: {size} works only with {able}: TRL's trainer for "
            f"{runner.method} does not "
            "split sequences; leave it out, and use fsdp and gradient_checkpointing for long rows"
        )
    if config.is_true("sample_packing"):
        return (
            f"context_parallel_size: {size} does not go with sample_packing; turn one of them off"
        )
    return None


@advise(
    "loss_type",
    "when using 'exo_pair' loss",
    about="a loss that the method does not have, and `exo_pair` without `label_smoothing`",
)
def _exo_pair(_: Plan) -> str:
    return "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001"


@refuse(
    "variables",
    "variables of `env` that fmtkit sets itself, or that look like a secret",
    keys=("env",),
)
def _env(config: Config, _: Runner) -> Iterator[str]:
    yield from variables.faults(config)


@refuse(
    "environment_method", "an environment with a method that cannot use it", keys=("of sections",)
)
def _environment(config: Config, runner: Runner) -> Iterator[str]:
    usual = find(runner.method)
    for one in section.every():
        if not one.switch or not config.get(one.switch) or one.name in runner.sections:
            continue
        if one.name in usual.sections and usual.variant_key:
            value = config.get(usual.variant_key)
            yield (
                f"{one.switch}: the trainer of {usual.variant_key}: {value} has no use for it; leave one "
                "of the two out"
            )
        else:
            able = methods(lambda other: one.name in other.sections)  # noqa: B023 - called at once
            yield f"{one.switch}: {runner.method} has no use for it; it is for {able}"


@refuse("order", "`group_by_length` for rows that have no single length", keys=("group_by_length",))
def _lengths(config: Config, runner: Runner) -> str | None:
    has_kto_order = "kto_order" in runner.refusals
    if runner.sees_lengths or has_kto_order or not config.is_true("group_by_length"):
        return None
    return (
        f"group_by_length: the rows of {runner.method} have no single length by which transformers could "
        "group them; leave it out"
    )


@advise(
    "padding_free",
    "`padding_free=True` without packing",
    about="`padding_free` without packing, where it keeps to no length",
)
def _padding(plan: Plan) -> str:
    return (
        f"padding_free: TRL's trainer for {plan.method} keeps to no length without packing; add "
        "sample_packing: true, whose rows need no padding either, or leave padding_free out"
    )


@refuse("prepared_rows", "TRL's own preparation of the rows switched off", keys=("trainer_args",))
def _prepared(config: Config, _: Runner) -> str | None:
    passed = config.get("trainer_args")
    given = passed.get("dataset_kwargs") if isinstance(passed, Mapping) else None
    if not isinstance(given, Mapping) or given.get("skip_prepare_dataset") is not True:
        return None
    return (
        "dataset_kwargs: skip_prepare_dataset is for rows that are tokenized already, and fmtkit's are "
        "messages or text; leave it out: rows with images TRL leaves as they are by itself"
    )


_USUAL_TURNS: Mapping[str, tuple[object, ...]] = {
    "roles_to_train": (None, ["assistant"]),
    "train_on_eos": (None, "turn"),
    "train_on_eot": (None, "turn"),
    "message_field_training_detail": (None,),
}
"""Key that chooses the trained turns of sft -> the values that change nothing."""


_BY_ORIGIN = ("mask_template_tokens", "ignore_empty_think", "keep_reasoning")


@refuse(
    "mask",
    "a choice of trained turns or ends of turns for a method other than sft",
    keys=("roles_to_train", "train_on_eos", *(f"{OF_DATASET}{name}" for name in _USUAL_TURNS)),
)
def _masks(config: Config, runner: Runner) -> str | None:
    if runner.mask == "completion":
        return None
    run = {key: config.get(key) for key in _USUAL_TURNS}
    for entry in (*config.datasets, *config.test_datasets, run):
        for key, usual in _USUAL_TURNS.items():
            if entry.get(key) not in usual:
                return (
                    f"{key}: only sft can choose which turns are trained on; leave it out (the method "
                    f"is {runner.method})"
                )
    return None


@refuse(
    "origin_mask",
    "a choice of trained tokens by where they come from, for a method other than sft",
    keys=_BY_ORIGIN,
)
def _by_origin(config: Config, runner: Runner) -> str | None:
    if runner.mask == "completion":
        return None
    asked = [key for key in _BY_ORIGIN if config.get(key) not in (None, False)]
    return (
        f"{asked[0]}: only sft can choose what is trained on; leave it out (the method is {runner.method})"
        if asked
        else None
    )


@refuse(
    "two_masks",
    "keys that say opposite things of what is trained on",
    keys=("train_on_inputs",),
)
def _opposites(config: Config, runner: Runner) -> str | None:
    if runner.mask != "completion" or not config.is_true("train_on_inputs"):
        return None
    for name in ("assistant_only_loss", "completion_only_loss"):
        if config.is_true(name):
            return f"train_on_inputs: true trains on prompts, and {name}: true does not; keep one"
    return None


@refuse("two_templates", "two keys that give the chat template", keys=("chat_template_jinja",))
def _templates(config: Config, _: Runner) -> str | None:
    if config.get("chat_template_jinja") and config.get("chat_template") not in {None, "jinja"}:
        return "chat_template and chat_template_jinja both give a template; keep one"
    return None


@refuse(
    "template_variables",
    "template variables that the trainer does not pass on",
    keys=("chat_template_kwargs",),
)
def _variables(config: Config, runner: Runner) -> str | None:
    if not config.get("chat_template_kwargs"):
        return None
    if runner.row_variables or "chat_template_kwargs" in arguments_of(runner).fields:
        return None
    return (
        f"chat_template_kwargs: the trainer for {runner.method} passes no variables to the "
        "template; set them in the template itself, by chat_template_jinja"
    )


@refuse("mix_weight", "a source with a weight of 0 or less in the mix", keys=("datasets.weight",))
def _weights(config: Config, _: Runner) -> str | None:
    for entry in config.datasets:
        weight = entry.get("weight")
        if isinstance(weight, (int, float)) and weight <= 0:
            return (
                f"weight: {weight} for {entry.get('path')}: must be above 0; to leave the "
                "source out, delete its entry"
            )
    return None


@refuse(
    "overlong",
    "truncation that the trainer does not support, or supports only at the other end",
    keys=("excess_length_strategy",),
)
def _cuts(config: Config, runner: Runner) -> str | None:
    policy, applied = config.text("excess_length_strategy"), length_policy(config)
    if not applied.startswith("truncate"):
        return None
    if applied in runner.cuts and not (
        applied == "truncate-start" and config.is_true("sample_packing")
    ):
        return None
    other = sorted(runner.cuts - {applied})
    if applied in runner.cuts:
        why = "packing cuts a row at its end"
    elif other:
        why = f"{runner.method} cuts a row at its {other[0].rpartition('-')[2]}"
    else:
        why = f"{runner.method} cuts no row"
    advice = f"write {other[0]}, or drop" if other else "write drop, or raise sequence_len"
    return f"excess_length_strategy: {policy}: {why}; {advice}"


@refuse(
    "batch_size",
    "a `batch_size` that is not a multiple of the rows of one step of all processes",
    keys=("batch_size",),
)
def _batch(config: Config, _: Runner) -> str | None:
    batch_size, micro = config.get("batch_size"), config.get("micro_batch_size")
    if not isinstance(batch_size, int):
        return None
    if config.get("gradient_accumulation_steps") is not None:
        return "batch_size sets gradient_accumulation_steps; keep one"
    if not isinstance(micro, int):
        return "batch_size needs micro_batch_size too"
    step = micro * (config.processes or 1)
    if batch_size % step:
        return (
            f"batch_size: {batch_size} is not a multiple of {step}, the rows of one step of all "
            "processes"
        )
    return None


NOTHING_TO_EVALUATE = (
    "nothing_to_evaluate",
    "evaluation without data to evaluate on, or with a trainer that cannot evaluate",
)


@refuse(*NOTHING_TO_EVALUATE, keys=("val_set_size", "test_datasets"), lacking="evaluates")
def _rows_to_evaluate(config: Config, runner: Runner) -> str | None:
    rows = {"val_set_size": config.get("val_set_size"), "test_datasets": config.test_datasets}
    named = next((name for name, value in rows.items() if value), None)
    if named is None:
        return None
    return f"{named}: TRL's trainer for {runner.method} cannot evaluate; leave it out"


@refuse(
    *NOTHING_TO_EVALUATE,
    keys=("load_best_model_at_end", "early_stopping_patience", "eval_on_start"),
)
def _evaluation(config: Config, _: Runner) -> str | None:
    if has_evaluation(config):
        return None
    for name in ("load_best_model_at_end", "early_stopping_patience", "eval_on_start"):
        if config.get(name):
            return f"{name}: there is nothing to evaluate on; set val_set_size or test_datasets"
    return None


@advise("nothing_to_evaluate", "--load_best_model_at_end requires the sav")
def _best(plan: Plan) -> str | None:
    # What of the two schedules to match matters only where there is something to evaluate.
    if has_evaluation(plan.config) and not plan.runner.evaluates:
        return _rows_to_evaluate(plan.config, plan.runner)
    return _evaluation(plan.config, plan.runner)


@refuse(
    "two_schedules",
    "two keys that set the same schedule, and a schedule of no step",
    keys=("evals_per_epoch", "saves_per_epoch", "num_epochs"),
)
def _steps(config: Config, _: Runner) -> str | None:
    for name in ("eval", "save"):
        if config.get(f"{name}s_per_epoch") and config.get(f"{name}_steps"):
            return f"{name}s_per_epoch sets {name}_steps; keep one"
    if config.get("num_epochs") == 0 and config.get("max_steps") in {None, -1}:
        return "num_epochs: 0 makes no step; write 1 or more, or max_steps"
    return None
