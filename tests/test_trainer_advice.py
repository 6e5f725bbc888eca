"""A rule of TRL's is found in its source alone; what fmtkit advises is said in place of TRL's words."""

import pyarrow as pa
import pytest

pytest.importorskip("trl")

from fmtkit.core.errors import FmtkitError
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning import trl_refusals
from fmtkit.training.planning.check import Run, advice
from fmtkit.training.planning.types import FirstRows

WHOLE = "base_model: a/m\ndatasets: [{path: a/b}]\nuse_cpu: true\n"
GRPO = "rl: grpo\ntrl: {reward_funcs: [fmtkit.rewards.accuracy], "
# Words of TRL's message -> a config that breaks its rule, and what fmtkit says instead.
CASES = {
    "when using 'exo_pair' loss": (
        "rl: dpo\nloss_type: exo_pair",
        "loss_type: exo_pair needs label_smoothing above 0; its paper takes 0.001 [loss_type]",
    ),
    "`sync_ref_model=True` together with `precompute_ref_log_probs=True`": (
        "rl: dpo\nsync_ref_model: true\nprecompute_ref_log_probs: true",
        "sync_ref_model: precomputed log-probabilities do not follow an updated reference",
    ),
    "You passed `sync_ref_model=True` while `beta=0.0`": (
        f"{GRPO}sync_ref_model: true}}\nadapter: lora",
        "sync_ref_model: with an adapter the reference is the base model",
    ),
    "--load_best_model_at_end requires the sav": (
        "load_best_model_at_end: true",
        "load_best_model_at_end: there is nothing to evaluate on; set val_set_size",
    ),
    "requires at least 2 generations per prompt": (
        f"{GRPO}num_generations: 1}}",
        "trl.num_generations: 1: an answer is compared with the others to the same prompt",
    ),
    "must be divisible by num_generations": (
        f"{GRPO}num_generations: 3}}\nmicro_batch_size: 4",
        "trl.num_generations: 3: a generation batch of micro_batch_size 4 · 1 step · 1 process = 4",
    ),
    "must be divisible by the number of generations used for eval": (
        f"{GRPO}num_generations: 4}}\nmicro_batch_size: 4\neval_batch_size: 2\nval_set_size: 4",
        "eval_batch_size: 2 · 1 process = 2 answers do not divide into groups of 4",
    ),
    "Actual (not effective) batch size must be > 1": (
        "rl: kto\nmicro_batch_size: 1",
        "micro_batch_size: kto needs at least 2: its KL term takes a reply from another row",
    ),
    "requires `train_sampling_strategy='sequential'`": (
        "rl: kto\ngroup_by_length: true",
        "group_by_length: kto reads its rows in order, which fmtkit has shuffled",
    ),
}
PADDING = "`padding_free=True` without packing"
PADDED = {
    "rl: sft": "padding_free: TRL's trainer for sft keeps to no length without packing",
    "rl: gkd\nteacher_model: a/t": "padding_free: gkd's own collator pads its rows",
}


def refusal(text: str) -> FmtkitError:
    with pytest.raises(FmtkitError) as error:
        planning.plan(parse(WHOLE + text, "x"))
    return error.value


@pytest.mark.parametrize("words", CASES)
def test_an_error_of_the_trainer_is_said_once_in_words_that_advise(words):
    text, said = CASES[words]
    (line,) = refusal(text).lines
    assert said in line
    assert " of trl " not in line


@pytest.mark.parametrize("keys", PADDED)
def test_the_advice_of_a_method_comes_before_that_of_all(keys):
    (line,) = refusal(f"{keys}\npadding_free: true").lines
    assert PADDED[keys] in line


OF_IMAGES = {
    "Packing is not supported for vision datasets": (
        "sample_packing: true",
        "sample_packing: rows with images cannot be packed",
    ),
    "Padding-free training is yet not supported for vision datasets": (
        "padding_free: true\nsample_packing: true",
        "padding_free: rows with images need padding",
    ),
    "`precompute_ref_log_probs=True` is not supported for vision datasets": (
        "rl: dpo\nprecompute_ref_log_probs: true",
        "precompute_ref_log_probs: TRL's trainer does not compute them before the run",
    ),
}


@pytest.mark.parametrize("words", OF_IMAGES)
def test_an_error_of_the_trainer_for_rows_with_images_is_said_in_words_that_advise(words):
    text, said = OF_IMAGES[words]
    plan = planning.plan(parse(WHOLE + text, "x"))
    images = pa.array([[{"bytes": b"x", "path": None}]])
    seen = FirstRows(tables=(pa.table({"images": images}),))
    problems = list(trl_refusals.find_with_images(Run(plan, first_rows={"datasets.0": seen})))
    assert any(problem.message.startswith(said) for problem in problems)
    assert not list(trl_refusals.find_with_images(Run(plan)))


def test_every_advice_is_on_an_error_that_the_installed_trl_raises():
    assert {one.words for one in advice()} == {*CASES, *OF_IMAGES, PADDING}


def test_without_advice_the_words_are_those_of_the_trainer():
    text = "val_set_size: 0.1\nload_best_model_at_end: true\nsave_strategy: steps"
    (line,) = refusal(text).lines
    assert "SFTConfig of trl" in line
    assert line.endswith("[trainer_rule]")
