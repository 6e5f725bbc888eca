"""A key that is set changes something, or the plan says that it does not; a misspelt one is an error."""

import pytest

pytest.importorskip("trl")

from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import shipped
from fmtkit.training.config.arguments import near_spelling
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.idle import CONDITIONS


def planned(keys: dict) -> planning.Plan:
    return planning.plan(keys, partial=True)


def said(keys: dict) -> list[str]:
    return [note for note in planned(keys).notes if "changes nothing" in note]


def noted_or_refused(keys: dict) -> tuple[list[str], str]:
    try:
        return said(keys), ""
    except FmtkitError as error:
        return [], str(error)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"teacher_model": "a/b"}, "teacher_model changes nothing: sft has no teacher"),
        ({"rl": "dpo", "reward_model_path": "a/b"}, "reward_model_path changes nothing: dpo"),
        ({"rl": "dpo", "train_on_inputs": True}, "train_on_inputs changes nothing: dpo never"),
        (
            {"rl": "dpo", "ref_model_sync_steps": 3},
            "ref_model_sync_steps changes nothing: only sync_ref",
        ),
        (
            {"rl": "dpo", "discopop_tau": 0.1},
            "only loss_type: discopop uses it, and loss_type is unset",
        ),
        (
            {"rl": "dpo", "label_smoothing": 0.1},
            "only loss_type: aot, aot_unpaired, exo_pair or robust",
        ),
        (
            {"rl": "grpo", "trl": {"sapo_temperature_neg": 1.0}},
            "trl.sapo_temperature_neg changes nothing",
        ),
        (
            {"rl": "dpo", "dpo_padding_free": True},
            "dpo_padding_free changes nothing: TRL's DPO trainer",
        ),
        (
            {"rl": "ipo", "padding_free": True},
            "padding_free changes nothing: TRL's DPO trainer turns it",
        ),
        ({"loss_watchdog_patience": 3}, "loss_watchdog_patience changes nothing without"),
        ({"split_by": "prompts"}, "split_by changes nothing without val_set_size"),
    ],
)
def test_a_key_without_effect_is_one_note(keys, words):
    (note,) = said(keys)
    assert words in note


@pytest.mark.parametrize(
    "keys",
    [
        {"rl": "gkd", "teacher_model": "a/b"},
        {"rl": "dpo", "train_on_inputs": False, "dpo_padding_free": False},
        {"rl": "dpo", "ref_model_sync_steps": 3, "sync_ref_model": True},
        {"rl": "dpo", "loss_type": ["discopop", "sft"], "discopop_tau": 0.1},
        {"rl": "dpo", "loss_type": "robust", "label_smoothing": 0.1},
        {"rl": "cpo", "label_smoothing": 0.1},
        {"rl": "simpo", "trainer_args": {"simpo_gamma": 0.5}},
        {"rl": "grpo", "trl": {"loss_type": "sapo", "sapo_temperature_neg": 1.0}},
    ],
)
def test_a_key_that_acts_is_no_note(keys):
    assert said(keys) == []


@pytest.mark.parametrize("runner", shipped(), ids=lambda one: one.method)
def test_every_argument_that_waits_for_another_says_so_for_every_method(runner):
    fields = arguments_of(runner)
    for one in CONDITIONS:
        known = fields.fields
        if not {one.argument, one.other} <= set(known) or (one.beside and one.beside not in known):
            continue
        default = known[one.argument].default
        value = default if isinstance(default, int | float | str) else 1
        off = {one.other: False} if one.values == (True,) else {}
        keys = {"rl": runner.method, "trainer_args": {one.argument: value, **off}}
        if one.other in runner.arguments:
            continue
        notes, refusal = noted_or_refused(keys)
        start = f"trainer_args.{one.argument} changes nothing"
        assert one.argument in refusal or any(note.startswith(start) for note in notes), keys


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"context_parapllel_size": 2}, "did you mean 'context_parallel_size'?"),
        ({"eta_min": 0.1}, "the floor of a cosine is cosine_min_lr_ratio"),
        ({"adam_eps": 0.1}, "it is adam_epsilon"),
        ({"max_prompt_length": 3}, "prompts are no longer truncated"),
        ({"use_peft": True}, "write adapter: lora"),
        ({"use_dora": True}, "write adapter: dora"),
        ({"lora_task_type": "CAUSAL_LM"}, "the method determines the task"),
        ({"step_separator": "x"}, "it is a key of an entry of datasets"),
        ({"frobnicate": 1}, "docs/config.md lists all keys"),
        ({"learning_rat": 1}, "did you mean 'learning_rate'?"),
        ({"micro_bacth_size": 1}, "did you mean 'micro_batch_size'?"),
    ],
)
def test_an_unknown_key_is_answered_with_what_was_meant_or_no_guess(keys, words):
    with pytest.raises(FmtkitError) as error:
        planned(keys)
    assert f"no key named {next(iter(keys))!r}; {words}" in str(error.value)


@pytest.mark.parametrize("name", ["use_peft", "use_dora", "lora_task_type", "step_separator"])
def test_a_name_that_shares_a_word_is_not_near(name):
    assert near_spelling(name, ["use_eaft", "use_ray", "loss_type", "temperature"]) is None


FAULTS = [
    {"rl": "dpo", "sync_ref_model": True, "precompute_ref_log_probs": True},
    {"rl": "dpo", "sync_ref_model": True, "adapter": "lora"},
    {"rl": "dpo", "loss_type": "exo_pair"},
    {"rl": "dpo", "loss_type": ["sigmoid", "sft"], "loss_weights": [1.0]},
    {"rl": "dpo", "loss_type": "nonsense"},
    {"rl": "kto", "micro_batch_size": 1},
    {"padding_free": True},
    {"load_in_4bit": True, "load_in_8bit": True, "adapter": "lora"},
    {"load_in_4bit": True},
    {"bf16": True, "fp16": True},
    {"batch_size": 3, "micro_batch_size": 2},
    {"batch_size": 4, "micro_batch_size": 2, "gradient_accumulation_steps": 2},
    {"warmup_ratio": 0.1, "warmup_steps": 3},
    {"evals_per_epoch": 1, "eval_steps": 3, "val_set_size": 0.1},
    {"load_best_model_at_end": True},
    {"context_parallel_size": 2, "rl": "gdpo"},
    {"unfrozen_parameters": ["a"], "adapter": "lora"},
    {"chat_template": "chatml", "datasets": [{"path": "a/b", "chat_template": "llama3"}]},
    {"report_to": "wandbb"},
    {"lr_scheduler": "cosin"},
    {"rl": "grpo", "micro_batch_size": 3, "base_model": "a/b", "datasets": [{"path": "a/b"}]},
    {"rl": "sft", "ref_model": "a/b"},
    {"group_by_length": True, "rl": "dpo"},
]


@pytest.mark.parametrize("keys", FAULTS, ids=str)
def test_a_fault_is_one_problem(keys):
    with pytest.raises(FmtkitError) as error:
        planned(keys)
    assert len(error.value.lines) == 1, error.value.lines
