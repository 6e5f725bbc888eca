"""A key that is set changes something, or the plan says that it does not; a misspelt one is an error."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("trl")

import fmtkit.training
from fmtkit.core.errors import FmtkitError
from fmtkit.core.runner import find, shipped
from fmtkit.training.config.class_arguments import fields_of, near_spelling
from fmtkit.training.config.keys import arguments_of
from fmtkit.training.config.trainer_source import find_class
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.idle import OURS
from fmtkit.training.vllm.plan import COLOCATED


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
            "only loss_type: discopop uses it, and loss_type is sigmoid",
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


BASE = fields_of("transformers:TrainingArguments").fields


def of_trl(runner) -> dict:
    """Return the arguments that TRL adds to those of transformers, which its trainers read alone."""
    fields = arguments_of(runner).fields
    return {name: entry for name, entry in fields.items() if name not in BASE}


def attributes(source: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each attribute that is read as `self.X` or `args.X`, with the tests around it."""

    def walk(node: ast.AST, tests: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node.attr, tests
        test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
        for child in ast.iter_child_nodes(node):
            is_taken = isinstance(node, ast.If) and child in node.body
            is_else = isinstance(node, ast.If) and child in node.orelse
            inner = (test,) if is_taken else (f"not {test}",) if is_else else ()
            yield from walk(child, (*tests, *inner))

    yield from walk(ast.parse(source), ())


UNDECIDED = {
    "vllm_importance_sampling_correction": "a function of fmtkit's reads it as an attribute of its "
    "parameter; as a key of trl it is named beside trl.use_vllm",
    "teacher_model_kind": "sdft and sdpo read it by a local name, under no switch, too",
    "vllm_sync_frequency": "gold and iw_opd read it behind an early return of the method",
}
"""Argument that the plan does not judge -> why."""


@pytest.mark.parametrize("runner", shipped(), ids=lambda one: one.method)
def test_an_argument_that_the_trainer_reads_only_beside_another_value_is_a_note(runner):
    """Compare with a plainer reading: an argument all of whose reads are below a test on a switch."""
    switches = {name for name, entry in of_trl(runner).items() if entry.default is False}
    trainer = find_class(runner.trainer)
    own = [c for c in trainer.lineage() if c.module.package == "trl"] if trainer else []
    reads: dict[str, list[tuple[str, ...]]] = {}
    for source in {c.module.file: ast.unparse(c.module.tree) for c in own}.values():
        for name, tests in attributes(source):
            reads.setdefault(name, []).append(tests)
    for name, entry in of_trl(runner).items():
        # The first read passes it on to an attribute of the same name.
        used = [tests for tests in reads.get(name, []) if tests]
        common = set.intersection(*map(set, used)) if used else set()
        guards = {s for s in switches for test in common if test in {f"self.{s}", f"args.{s}"}}
        if not guards or name in OURS or name in guards or name in UNDECIDED:
            continue
        value = entry.default if isinstance(entry.default, int | float | str) else 1
        off = dict.fromkeys(guards, False)
        keys = {"rl": runner.method, "trainer_args": {name: value, **off}}
        notes, refusal = noted_or_refused(keys)
        start = f"trainer_args.{name} changes nothing"
        assert name in refusal or any(note.startswith(start) for note in notes), keys


CONDITIONS = (
    ("dpo", "loss_type", "discopop", "discopop_tau"),
    ("dpo", "loss_type", "robust", "label_smoothing"),
    ("dpo", "f_divergence_type", "alpha_divergence", "f_alpha_divergence_coef"),
    ("dpo", "precompute_ref_log_probs", True, "precompute_ref_batch_size"),
    ("kto", "precompute_ref_log_probs", True, "precompute_ref_batch_size"),
    *((m, "sync_ref_model", True, "ref_model_sync_steps") for m in ("dpo", "kto", "rloo")),
    *((m, "sync_ref_model", True, "ref_model_mixup_alpha") for m in ("dpo", "kto", "rloo")),
    ("cpo", "loss_type", "simpo", "simpo_gamma"),
    ("grpo", "loss_type", "sapo", "sapo_temperature_pos"),
    ("grpo", "loss_type", "sapo", "sapo_temperature_neg"),
    ("grpo", "loss_type", "vespo", "vespo_k_pos"),
    ("grpo", "loss_type", "vespo", "vespo_lambda_neg"),
    ("grpo", "beta", 0.1, "use_bias_correction_kl"),
    ("grpo", "use_adaptive_entropy", True, "entropy_target"),
    ("grpo", "use_adaptive_entropy", True, "entropy_coef_max"),
    ("grpo", "log_completions", True, "log_unique_prompts"),
    ("grpo", "log_completions", True, "num_completions_to_print"),
    ("rloo", "log_completions", True, "num_completions_to_print"),
    ("sft", "packing", True, "packing_strategy"),
)
"""Method, the argument that decides, its value, and the argument that acts only then."""


@pytest.mark.parametrize("case", CONDITIONS, ids=str)
def test_an_argument_acts_beside_the_value_that_it_needs_and_is_a_note_beside_others(case):
    method, other, value, name = case
    entry = of_trl(find(method))[name]
    given = entry.default if isinstance(entry.default, int | float | str) else 1
    given = True if entry.default is False else given
    start = f"trainer_args.{name} changes nothing"
    idle, _ = noted_or_refused({"rl": method, "trainer_args": {name: given}})
    assert any(note.startswith(start) for note in idle), idle
    acting, refusal = noted_or_refused({"rl": method, "trainer_args": {name: given, other: value}})
    assert not refusal
    assert not any(note.startswith(start) for note in acting), acting


@pytest.mark.parametrize(
    ("method", "loss", "names"),
    [
        ("grpo", "sapo", ["epsilon", "epsilon_high", "delta"]),
        ("grpo", "cispo", ["delta"]),
        ("cpo", "hinge", ["label_smoothing"]),
    ],
)
def test_an_argument_that_a_loss_does_not_use_is_a_note(method, loss, names):
    keys = {"loss_type": loss, **dict.fromkeys(names, 0.1)}
    notes = said({"rl": method, "trainer_args": keys})
    assert [any(f"trainer_args.{name} " in note for note in notes) for name in names] == [
        True for _ in names
    ]


@pytest.mark.parametrize("runner", shipped(), ids=lambda one: one.method)
def test_a_switch_that_a_user_sets_is_read(runner):
    """No argument of TRL's is idle that decides whether others are: it is read itself."""
    for name, entry in of_trl(runner).items():
        if not name.startswith(("use_", "log_completions", "sync_")) or entry.default is not False:
            continue
        notes, _ = noted_or_refused({"rl": runner.method, "trainer_args": {name: True}})
        unread = [note for note in notes if note.startswith(f"trainer_args.{name} changes")]
        assert not unread or name == "use_bias_correction_kl", unread


OTHERWISE = {
    "scale_rewards": "ebft only asks whether it is set",
    "delta": "a field of a streamed reply",
    "max_tool_calling_iterations": "an attribute of TRL's trainer, which prefetched conversations read",
    "callbacks": "a key of fmtkit; GOLDConfig has a field of that name for TRL's own command",
    "activation_checkpointing": "an argument of transformers, which TRL declares for older ones",
    **dict.fromkeys(
        COLOCATED.values(), "the trainer's names of keys of vllm, which it reads itself"
    ),
}
"""Name that fmtkit's source has for something else -> for what."""


def test_what_fmtkit_itself_acts_on_is_never_noted():
    every = {name for runner in shipped() for name in of_trl(runner)}
    folder = Path(fmtkit.training.__file__).parent
    acting = ("building", "data", "online", "run", "trained", "vllm")
    files = [file for part in acting for file in (folder / part).rglob("*.py")]
    declaring = {"keys.py", "runner.py", "section.py"}
    own = (folder.parents[1] / "runners").glob("*/*.py")
    files += [file for file in own if file.name not in declaring]
    # How processes are launched is planned, and sets arguments of the trainer.
    files.append(folder / "planning" / "launch.py")
    texts = {t for file in files for t in re.findall(r'"(\w+)"', file.read_text(encoding="utf-8"))}
    assert texts & every - set(OTHERWISE) == OURS


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"context_parapllel_size": 2}, "did you mean 'context_parallel_size'?"),
        ({"eta_min": 0.1}, "the floor of a cosine is cosine_min_lr_ratio"),
        ({"adam_eps": 0.1}, "it is adam_epsilon"),
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


def test_a_key_that_other_methods_have_is_answered_with_what_became_of_it():
    with pytest.raises(FmtkitError, match="no argument 'max_prompt_length'; prompts are no longer"):
        planned({"max_prompt_length": 3})


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


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"lora_r": 8, "lora_alpha": 16}, "lora_alpha, lora_r"),
        (
            {"lora_r": 8, "lora_target_linear": True, "lora_target_modules": ["q_proj"]},
            "lora_r, lora_target_linear and lora_target_modules",
        ),
        ({"peft": {"loftq_config": {"loftq_bits": 4}}}, "peft.loftq_config"),
    ],
)
def test_keys_of_an_adapter_without_one_are_named_once(keys, named):
    notes = [note for note in planned(keys).notes if note.startswith("without `adapter`")]
    assert notes == [f"without `adapter` all weights train: {named} change nothing"]
