"""What no online run can do is one line, before anything is loaded; what seems odd and works, plans."""

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import find
from fmtkit.rendering import template_sources
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.online import group_rule
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.job import Source
from fmtkit.training.planning.types import Arguments

BASE = "base_model: a/m\ndatasets: [{path: a/b, type: gsm8k}]\n"


def planned(text: str) -> planning.Plan:
    return planning.plan(parse(BASE + text, "c.yaml"), partial=True)


def refusal(text: str) -> RefusalError:
    with pytest.raises(RefusalError) as error:
        planned(text)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return error.value


# --- groups -------------------------------------------------------------------------------------

GROUPS = {
    "rl: grpo\nmicro_batch_size: 2\ntrl: {num_generations: 4}": (
        "micro_batch_size 2 · 1 step · 1 process = 2 answers does not divide into groups of 4; "
        "set gradient_accumulation_steps: 2, or micro_batch_size: 4"
    ),
    "rl: gdpo\nmicro_batch_size: 3\ngradient_accumulation_steps: 3\ntrl: {num_generations: 6}": (
        "set gradient_accumulation_steps: 4, or micro_batch_size: 6"
    ),
    "rl: grpo\nmicro_batch_size: 2\nnum_processes: 3\ntrl: {num_generations: 4}": (
        "3 processes = 6 answers"
    ),
    "rl: rloo\nmicro_batch_size: 1\n": "groups of 2",
    "rl: grpo\nmicro_batch_size: 4\ntrl: {num_generations: 1}": "set it to 2 or more",
    "rl: rloo\nmicro_batch_size: 4\ntrl: {num_generations: 1}": "set it to 2 or more",
    "rl: grpo\nmicro_batch_size: 6\ntrl: {num_generations: 4, generation_batch_size: 6}": (
        "6 answers does not divide"
    ),
    "rl: grpo\nmicro_batch_size: 6\ntrl: {num_generations: 3}\nval_set_size: 0.1": (
        "eval_batch_size: 8 · 1 process = 8 answers do not divide into groups of 3"
    ),
    "rl: grpo\nmicro_batch_size: 2\nnum_processes: 2\n"
    "trl: {num_generations: 4, replay_buffer_size: 5}": (
        "trl.replay_buffer_size needs all answers to a prompt on one device"
    ),
    "rl: grpo\nmicro_batch_size: 2\nnum_processes: 2\n"
    "trl: {num_generations: 4, reroll_start_fraction: 0.5}": "trl.reroll_start_fraction needs all",
}


@pytest.mark.parametrize("text", GROUPS)
def test_batches_that_do_not_divide_into_groups_are_refused_with_what_would(text) -> None:
    error = refusal(text)
    assert error.name == "groups"
    assert GROUPS[text] in str(error)


@pytest.mark.parametrize(
    "text",
    [
        # The documents' own quick start: a step has one group, in four parts.
        "rl: grpo\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\ntrl: {num_generations: 4}",
        "rl: grpo\nmicro_batch_size: 1\nnum_processes: 4\ntrl: {num_generations: 4}",
        "rl: grpo\nmicro_batch_size: 2\ntrl: {num_generations: 8, steps_per_generation: 4}",
        "rl: grpo\nmicro_batch_size: 2\ntrl: {num_generations: 8, generation_batch_size: 16}",
        # The devices are counted later.
        "rl: grpo\nmicro_batch_size: 1\naccelerate_config: multi_gpu\ntrl: {num_generations: 4}",
        "rl: grpo\nmicro_batch_size: 4\ntrl: {num_generations: 4, num_generations_eval: 1}\n"
        "val_set_size: 0.1",
    ],
)
def test_batches_that_divide_are_planned(text) -> None:
    assert planned(text).missing


def test_a_fragment_leaves_its_batches_to_the_rest() -> None:
    text = "rl: grpo\ntrl: {num_generations: 3}"
    assert planning.plan(parse(text, "c.yaml"), partial=True).method == "grpo"


@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_the_defaults_of_trl_are_those_that_the_rule_reckons_with(method) -> None:
    import trl

    config = {"grpo": trl.GRPOConfig, "rloo": trl.RLOOConfig}[method]
    fields = config.__dataclass_fields__
    assert fields["num_generations"].default == find(method).group
    unset = group_rule.batches_of(find(method), Arguments(), 1)
    assert fields["per_device_train_batch_size"].default == unset.batch == unset.eval_batch
    assert fields["gradient_accumulation_steps"].default == unset.steps


# --- what a method has no use for ---------------------------------------------------------------


@pytest.mark.parametrize("method", ["rloo", "online_dpo"])
@pytest.mark.parametrize(
    "key",
    [
        "tools: [a.b]",
        "rollout_func: a.b",
        "environment_factory: a.B",
        "replay_buffer_size: 10",
        "reroll_start_fraction: 0.5",
    ],
)
def test_a_feature_of_another_trainer_is_refused_and_never_dropped(method, key) -> None:
    error = refusal(f"rl: {method}\ntrl: {{{key}}}")
    assert f"TRL's trainer for {method} has no such feature" in str(error)


def test_a_feature_that_is_off_is_let_through() -> None:
    text = "rl: rloo\ntrl: {replay_buffer_size: 0, reroll_start_fraction: 1.0, tools: null}"
    assert planned(text).method == "rloo"


def test_replay_and_a_moving_reference_are_refused() -> None:
    error = refusal("rl: grpo\ntrl: {beta: 0.1, sync_ref_model: true, replay_buffer_size: 5}")
    assert error.name == "replay_reference"


def test_a_server_is_the_mode_unless_another_is_asked_for() -> None:
    found = planned("rl: grpo\ntrl: {use_vllm: true}").arguments.trainer["vllm_mode"]
    assert (found.value, found.origin) == ("server", "default of fmtkit")
    text = "rl: grpo\ntrl: {use_vllm: true, vllm_mode: colocate}"
    assert planned(text).arguments.trainer["vllm_mode"].value == "colocate"
    assert "vllm_mode" not in planned("rl: grpo\n").arguments.trainer


# --- what is named ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"reward_funcs": ["nowhere.reward"]}, "trl.reward_funcs: nowhere.reward: no nowhere.py"),
        ({"reward_funcs": ["rewards.lenght"]}, "did you mean 'length'?"),
        ({"reward_funcs": ["rewards.length"], "reward_weights": [1.0, 2.0]}, "has 2 numbers for 1"),
        ({"tools": ["tools.add"]}, "trl.tools: tools.add: no tools.py"),
        ({"rollout_func": "env.play"}, "trl.rollout_func: env.play: no env.py"),
        ({"environment_factory": {"a": "env.A"}}, "trl.environment_factory: env.A: no env.py"),
        ({"reward_num_workers": 0}, "trl.reward_num_workers"),
    ],
)
def test_a_name_of_the_users_that_is_not_there_is_one_line(keys, words, model, tmp_path) -> None:
    (tmp_path / "rewards.py").write_text("def length(completions, **_):\n    return [1.0]\n")
    file = tmp_path / "c.yaml"
    import yaml

    trl = {"reward_funcs": ["rewards.length"], **keys}
    called = template_sources.find_model_template("trl:qwen3").source
    model = tiny.with_template(model, tmp_path, called)
    text = {"base_model": model, "rl": "grpo", "trl": trl}
    file.write_text(yaml.safe_dump(text), encoding="utf-8")
    with pytest.raises(OptionError) as error:
        tiny.check(planning.plan(file, partial=True))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_prompts_that_end_with_an_answer_are_counted_and_refused(tmp_path) -> None:
    rows = tiny.prompt_rows()
    for row in rows[3:5]:
        row["prompt"].append({"role": "assistant", "content": "yes"})
    source = Source((str(tiny.write_table("Prompt", tmp_path / "p.parquet", rows)),))
    plan = planned("rl: grpo\n")
    with pytest.raises(OptionError, match=r"2 prompts end with the assistant's turn.*first: row 3"):
        tiny.check_rows(plan, (source,), ())
    fine = Source((str(tiny.write_table("Prompt", tmp_path / "q.parquet")),))
    with pytest.raises(OptionError, match="2 prompts end"):
        tiny.check_rows(plan, (fine,), (source,))


def test_a_rollout_function_may_take_prompts_as_they_are(tmp_path) -> None:
    rows = tiny.prompt_rows()
    rows[0]["prompt"].append({"role": "assistant", "content": "yes"})
    source = Source((str(tiny.write_table("Prompt", tmp_path / "p.parquet", rows)),))
    tiny.check_rows(planned("rl: grpo\ntrl: {rollout_func: a.b}"), (source,), ())


# --- trl.backend: async -------------------------------------------------------------------------

ASYNC = "rl: grpo\nmicro_batch_size: 8\n"


def test_the_asynchronous_trainer_is_planned_with_its_own_names() -> None:
    plan = planned(
        ASYNC + "trl: {backend: async, use_vllm: true, vllm_server_host: 0.0.0.0,"
        " vllm_server_port: 8001, vllm_sync_interval: 2, async_prefetch: true,"
        " max_completion_length: 64, reward_funcs: [a.b]}"
    )
    assert plan.runner.trainer == "trl.experimental.async_grpo:AsyncGRPOTrainer"
    trainer = {name: argument.value for name, argument in plan.arguments.trainer.items()}
    assert trainer["vllm_server_base_url"] == "http://localhost:8001"
    assert trainer["weight_sync_steps"] == 2
    assert trainer["max_completion_length"] == 64
    assert "use_vllm" not in trainer
    assert "vllm_mode" not in trainer


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("replay_buffer_size: 5", "it is for trl.backend: sync"),
        ("prefetch_depth: 2", "max_staleness"),
        ("rollout_func: a.b", "environment_factory"),
        ("vllm_mode: colocate", "uses its own server"),
    ],
)
def test_what_the_asynchronous_trainer_lacks_is_refused(key, words) -> None:
    assert words in str(refusal(ASYNC + f"trl: {{backend: async, {key}}}"))


def test_an_argument_that_its_config_lacks_is_refused() -> None:
    with pytest.raises(OptionError, match=r"AsyncGRPOConfig of trl .* has no argument 'beta'"):
        planned(ASYNC + "trl: {backend: async, beta: 0.1}")


@pytest.mark.parametrize("method", ["gdpo", "rloo"])
def test_it_is_for_grpo_alone(method) -> None:
    error = refusal(f"rl: {method}\nmicro_batch_size: 8\ntrl: {{backend: async}}")
    assert f"TRL has it only for grpo, not for {method}" in str(error)


def test_without_a_gpu_it_is_refused_before_anything_is_loaded(monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(OptionError, match=r"async needs a CUDA device.*nothing was loaded"):
        tiny.check(planned(ASYNC + "trl: {backend: async, reward_funcs: [a.b]}"))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("[length]", "no reward named 'length'; there are accuracy, fmtkit.rewards.accuracy"),
        ("[acuracy]", "did you mean 'accuracy'?"),
    ],
)
def test_a_metric_of_dynamic_sampling_is_a_reward_of_the_run(keys, said):
    text = "rl: grpo\nmicro_batch_size: 8\ntrl: {reward_funcs: [fmtkit.rewards.accuracy], "
    assert said in str(refusal(f"{text}dynamic_sampling_metric: {keys}, dynamic_sampling: true}}"))


@pytest.mark.parametrize("name", ["accuracy", "fmtkit.rewards.accuracy"])
def test_a_metric_is_named_as_in_the_metrics_or_as_in_the_configuration(name):
    text = "rl: rloo\nmicro_batch_size: 2\ntrl: {reward_funcs: [fmtkit.rewards.accuracy], "
    plan = planned(f"{text}dynamic_sampling_metric: [{name}], dynamic_sampling: true}}")
    assert plan.arguments.of("rl")["dynamic_sampling_metric"].value == [name]


def test_dynamic_sampling_is_not_for_trainers_that_have_no_groups():
    said = str(refusal("rl: online_dpo\nmicro_batch_size: 2\ntrl: {dynamic_sampling: true}"))
    assert "trl.dynamic_sampling" in said
    assert "it is for ebft, gdpo, grpo and rloo" in said
