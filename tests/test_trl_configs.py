"""TRL's own config files run unchanged: their keys are read as TRL's scripts read them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fmtkit.core import runner as runners
from fmtkit.core.errors import FmtkitError
from fmtkit.training.config import config
from fmtkit.training.config.class_arguments import UNKNOWN, fields_of
from fmtkit.training.online.rewards import entries
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning import visible_gpus

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))
from pages import from_trl

DOCUMENTS = Path(__file__).parents[1] / "fixtures" / "trl" / "documents"
"""The configs of TRL's documents, each named METHOD-WHAT.yaml."""
RECIPES = DOCUMENTS.with_name("recipes")
"""Configs in the shape of public recipes, named in the same way."""
REQUIRED = ("output_dir", "reward_funcs")
METHODS = ("sft", "dpo", "reward", "kto", "grpo", "rloo", "distillation")
MODEL = "model_name_or_path: Qwen/Qwen2.5-0.5B\n"
PAIRS = MODEL + "dataset_name: trl-lib/ultrafeedback_binarized\n"
NOTE = "the file is TRL's by its keys"


def load(text: str, *overrides: str) -> config.Config:
    return config.load(yaml.safe_load(text), overrides)


def test_a_file_of_trl_is_recognised_and_the_plan_says_so():
    assert any(note.startswith(NOTE) for note in load(PAIRS).notes)
    ours = load("base_model: a/b\ndatasets: [{path: c/d}]\n")
    assert not any(note.startswith(NOTE) for note in ours.notes)


def test_an_adapter_has_trls_defaults_unless_the_file_says_otherwise():
    read = load(PAIRS + "use_peft: true\nlora_r: 8\nlora_task_type: CAUSAL_LM\n")
    assert read.get("adapter") == "lora"
    assert (read.get("lora_r"), read.get("lora_alpha"), read.get("lora_dropout")) == (8, 32, 0.05)
    assert load(PAIRS + "use_peft: false\n").get("adapter") is None


def test_four_bits_are_qlora_without_nested_scales_as_in_trl():
    read = load(PAIRS + "use_peft: true\nload_in_4bit: true\n")
    assert read.get("adapter") == "qlora"
    assert read.get("bnb_4bit_use_double_quant") is False
    nested = load(PAIRS + "use_peft: true\nload_in_4bit: true\nuse_bnb_nested_quant: true\n")
    assert nested.get("bnb_4bit_use_double_quant") is True


def test_kinds_of_lora_are_arguments_of_peft():
    plan = planning.plan(
        yaml.safe_load(PAIRS + "use_peft: true\nuse_dora: true\nuse_rslora: true\n"), partial=True
    )
    assert {"use_dora", "use_rslora"} <= plan.arguments.peft.keys()


def test_an_adapter_that_is_both_asked_for_and_not_is_refused_naming_both():
    with pytest.raises(FmtkitError, match=r"use_peft: false and adapter: lora contradict"):
        load("base_model: a/b\ndatasets: [{path: c/d}]\nuse_peft: false\nadapter: lora\n")


def test_config_and_split_of_the_dataset_are_those_of_the_entry():
    read = load(PAIRS + "dataset_config: main\ndataset_train_split: train[:5]\n")
    [entry] = read.datasets
    assert entry == {
        "path": "trl-lib/ultrafeedback_binarized",
        "name": "main",
        "split": "train[:5]",
    }
    assert read.test_datasets == ()


def test_evaluation_is_on_the_test_split_where_it_is_asked_for():
    read = load(PAIRS + "eval_strategy: steps\ndataset_test_split: validation\n")
    assert [entry["split"] for entry in read.test_datasets] == ["validation"]
    assert [e["split"] for e in load(PAIRS + "eval_strategy: steps\n").test_datasets] == ["test"]
    shared = load(PAIRS + "eval_strategy: steps\ntest_split_size: 0.1\n")
    assert shared.test_datasets == ()
    assert shared.get("val_set_size") == 0.1


def test_flat_arguments_of_online_methods_are_read_in_a_file_of_trl():
    flat = "num_generations: 4\nuse_vllm: false\nreward_funcs: [accuracy_reward]\n"
    read = load("rl: grpo\n" + PAIRS + flat)
    assert (read.get("trl.num_generations"), read.get("trl.use_vllm")) == (4, False)
    assert read.get("trl.reward_funcs") == ["trl.rewards.accuracy_reward"]
    # In other files those alone that other methods have too; two values for one thing are refused.
    other = "rl: grpo\nbase_model: a/b\n"
    assert load(other + "num_generations: 4\n").get("trl.num_generations") == 4
    with pytest.raises(FmtkitError, match=r"did you mean 'trl.scale_rewards'"):
        load(other + "scale_rewards: none\n")
    with pytest.raises(FmtkitError, match=r"num_generations and trl.num_generations differ"):
        load(other + "num_generations: 4\ntrl: {num_generations: 2}\n")


def test_a_file_is_read_back_as_a_run_saves_it(tmp_path):
    from fmtkit.training.config import config

    saved = tmp_path / "config.yaml"
    saved.write_text(config.dumps(load(PAIRS)), encoding="utf-8")
    again = config.load(saved)
    assert again.datasets == load(PAIRS).datasets
    assert config.dumps(again) == saved.read_text(encoding="utf-8")


def test_a_reward_model_is_a_reward_of_grpo_and_the_model_of_other_methods():
    text = PAIRS + "reward_model_name_or_path: a/rm\nreward_funcs: accuracy_reward\n"
    rewards = ["a/rm", "trl.rewards.accuracy_reward"]
    assert load(text, "rl=grpo").get("trl.reward_funcs") == rewards
    alone = PAIRS + "reward_model_name_or_path: a/rm\n"
    assert load(alone, "rl=online_dpo").get("trl.reward_funcs") == ["a/rm"]
    for runner in runners.shipped():
        if "reward_model" in runner.needs:
            read = load(alone, f"rl={runner.method}")
            assert read.get("reward_model_path") == "a/rm", runner.method


def test_a_template_file_is_the_template_and_a_tokenizer_that_is_not_here_is_one_line():
    assert load(PAIRS + "chat_template_path: t.jinja\n").get("chat_template") == "t.jinja"
    wanted = r"chat_template_path: no tokenizer 'a/b': .*; name a \.jinja file, a folder"
    with pytest.raises(FmtkitError, match=wanted):
        load(PAIRS + "chat_template_path: a/b\n")


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("rloo_k", "num_generations"),
        ("kl_coef", "beta"),
        ("cliprange", "epsilon"),
        ("log_with", "report_to"),
        ("optimize_cuda_cache", "torch_empty_cache_steps"),
        ("use_liger", "use_liger_kernel"),
        ("response_length", "max_completion_length"),
        ("num_ppo_epochs", "num_iterations"),
    ],
)
def test_a_former_name_is_answered_with_the_present_one(former, present):
    with pytest.raises(FmtkitError, match=f"{former}.*its present name is {present}"):
        load(PAIRS + f"{former}: 1\n")


def test_the_line_of_a_translated_key_is_that_of_the_key_in_the_file(tmp_path):
    file = tmp_path / "grpo.yaml"
    file.write_text("rl: grpo\n" + PAIRS + "num_generations: nonsense\n")
    with pytest.raises(FmtkitError, match=r"grpo\.yaml:4: "):
        config.load(file)


def test_a_single_gpu_is_accelerates_single_profile():
    assert load(PAIRS + "accelerate_config: single_gpu\n").get("accelerate_config") == "single"


HERE = {
    "chatml.jinja": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    "stories.jsonl": '{"text": "x"}\n',
    "more.jsonl": '{"text": "y"}\n',
    "pairs.jsonl": '{"prompt": "p", "chosen": "a", "rejected": "b"}\n',
    "rewards.py": "def code_reward(completions, **_): ...\ndef code_format_reward(completions, **_): ...\n",
}
"""What the recipes name beside the hub."""


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_recipe_plans(file, tmp_path, monkeypatch):
    for name, text in HERE.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    method = file.stem.partition("-")[0]
    plan = planning.plan(config.load(file, [f"rl={method}"]))
    assert (plan.missing, plan.method) == ((), method)
    assert not any("needed to train" in note for note in plan.notes)


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_recipe_is_one_that_trls_parser_takes(file):
    """A recipe that TRL refuses would prove nothing; what is left over are words of accelerate."""
    import importlib

    from trl import DatasetMixtureConfig, ModelConfig, ScriptArguments, TrlParser

    method = file.stem.partition("-")[0]
    module, _, name = runners.find(method).config.partition(":")
    own = getattr(importlib.import_module(module), name)
    script = ScriptArguments
    if method in ("grpo", "rloo"):
        script = importlib.import_module(f"trl.scripts.{method}").__dict__[
            f"{method.upper()}ScriptArguments"
        ]
    parser = TrlParser([script, own, ModelConfig, DatasetMixtureConfig])
    command = ["--config", str(file), "--use_cpu", "--bf16", "false"]
    *_, left = parser.parse_args_and_config(command, return_remaining_strings=True)
    names = {word.removeprefix("--") for word in left if word.startswith("--")}
    assert names <= {"accelerate_config", "num_processes", "main_process_port"}


def test_every_default_of_trl_may_be_written_out():
    """What a file says that TRL does anyway changes nothing, so that it is never refused."""
    for method in METHODS:
        fields = fields_of(runners.find(method).config).fields
        known = {
            name: field.default
            for name, field in fields.items()
            if field.default is not UNKNOWN and not (name == "do_train" or name in REQUIRED)
        }
        assert len(known) > 100
        values = yaml.safe_load(PAIRS) | known
        planning.plan(config.load(values, [f"rl={method}"]), partial=True)


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("hub_token", "HF_TOKEN"),
        ("parallelism_config", "context_parallel_size"),
        ("teacher_model_revision", "teacher_model_init_kwargs"),
    ],
)
def test_arguments_that_are_said_elsewhere_are_answered(key, answer):
    with pytest.raises(FmtkitError, match=f"no key named '{key}'; .*{answer}"):
        load(PAIRS + f"{key}: x\n")


@pytest.mark.parametrize("file", sorted(DOCUMENTS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_config_of_trls_documents_plans(file):
    method = file.stem.partition("-")[0]
    plan = planning.plan(config.load(file, [f"rl={method}"]))
    assert (plan.missing, plan.method) == ((), method)
    assert plan.datasets


def fmtkit(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fmtkit", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_folder_of_configs_is_planned_with_a_line_each(tmp_path):
    (tmp_path / "good.yaml").write_text(PAIRS)
    done = fmtkit("train", str(tmp_path), "--method", "dpo", "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path / 'good.yaml'}: plans: dpo\n1 of 1 plan\n"
    (tmp_path / "bad.yml").write_text(PAIRS + "rloo_k: 2\n")
    done = fmtkit("train", str(tmp_path), "--method", "dpo", "--dry-run")
    assert done.returncode == 2
    first, _, last = done.stdout.splitlines()
    assert first.startswith(f"{tmp_path / 'bad.yml'}: does not plan: ")
    assert "its present name is num_generations" in first
    assert last == "1 of 2 plan"


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("sft --config x.yaml", "run: fmtkit train x.yaml --method sft\n"),
        ("trl dpo --config x.yaml", "run: fmtkit train x.yaml --method dpo\n"),
        (
            "kto --config x.yaml --learning-rate 1e-6 --no_bf16 --use_peft --report_to a b",
            "run: fmtkit train x.yaml --method kto --set learning_rate=1e-6 --set bf16=false "
            "--set use_peft=true --set report_to='[a, b]'\n",
        ),
        (
            "sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name=stanfordnlp/imdb --num_processes 4",
            "write its options as lines of a file (model_name_or_path: Qwen/Qwen2.5-0.5B; dataset_name: "
            "stanfordnlp/imdb; num_processes: 4), then run: fmtkit train FILE --method sft\n",
        ),
        ("grpo", "run: fmtkit train FILE --method grpo\n"),
    ],
)
def test_a_command_of_trl_is_answered_with_that_of_fmtkit(command, answer):
    done = fmtkit(*command.split())
    assert done.returncode == 2
    assert answer in " ".join(done.stderr.replace("\u2502", "").split()) + "\n"


def test_a_command_of_trl_that_is_answered_shows_no_token():
    done = fmtkit(
        "sft", "--model_name_or_path", "a/b", "--hub_token", "hf_abcdefghijklmnopqrstuvwxyz01"
    )
    assert "hf_abc" not in done.stderr


def test_the_column_of_text_is_renamed_unless_it_has_that_name_already():
    assert load(PAIRS + "dataset_text_field: text\n").datasets[0].keys() == {"path"}
    [entry] = load(PAIRS + "dataset_text_field: story\n").datasets
    assert entry["columns"] == {"text": "story"}


@pytest.mark.parametrize("method", ["dpo", "grpo"])
def test_a_key_that_trl_has_removed_is_named_as_it_was_written(method):
    with pytest.raises(FmtkitError, match=r"'max_prompt_length'; prompts are no longer truncated"):
        planning.plan(load(PAIRS + "max_prompt_length: 512\n", f"rl={method}"), partial=True)


def test_the_end_of_turn_and_the_padding_are_tokens_of_the_tokenizer():
    read = load(PAIRS + "eos_token: <|im_end|>\npad_token: <pad>\n")
    assert read.get("special_tokens") == {"eos_token": "<|im_end|>", "pad_token": "<pad>"}
    with pytest.raises(FmtkitError, match=r"eos_token and special_tokens\.eos_token differ"):
        load(PAIRS + "eos_token: a\nspecial_tokens: {eos_token: b}\n")


def plan_of(text: str, method: str):
    return planning.plan(yaml.safe_load(f"rl: {method}\n{text}"), partial=True)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "more",
    [
        "",
        "bf16: true\n",
        "use_peft: true\nload_in_4bit: true\n",
        "hub_model_id: a/b\neval_steps: 5\n",
    ],
    ids=["minimal", "bf16", "qlora", "hub"],
)
def test_the_plan_is_what_trls_own_parser_makes_of_the_file(method, more, tmp_path):
    import importlib

    from trl import get_quantization_config

    text = PAIRS + f"output_dir: {tmp_path / 'out'}\n" + more
    file = tmp_path / "config.yaml"
    file.write_text(text)
    script = importlib.import_module(f"trl.scripts.{method}")
    # Without a GPU TRL refuses its own default, bf16, unless it is told to use the CPU.
    command = ["--config", str(file), "--use_cpu"]
    _, theirs, model, _ = script.make_parser().parse_args_and_config(command)
    plan = plan_of(text, method)
    differs = {
        name: (argument.value, getattr(theirs, name))
        for name, argument in plan.arguments.trainer.items()
        if argument.value != getattr(theirs, name)
    }
    expected = {"report_to": ("none", [])}
    if more != "bf16: true\n":
        # By device: TRL's default is an error on a device without bfloat16.
        expected["bf16"] = ("auto", True)
    if method == "sft":
        expected["completion_only_loss"] = (True, None)
        assert any("assistant_only_loss: false does as TRL" in note for note in plan.notes)
    assert differs == expected
    assert plan.arguments.model["dtype"].value == model.dtype
    quantization = get_quantization_config(model)
    for name, argument in plan.arguments.quantization.items():
        value = getattr(quantization, name)
        assert argument.value == (str(value).removeprefix("torch.") if "dtype" in name else value)
    unset = plan.arguments.trainer.keys()
    assert "push_to_hub" in unset if "hub_model_id" in more else "push_to_hub" not in unset


@pytest.mark.parametrize("method", ["sft", "dpo", "kto"])
def test_longer_rows_are_cut_as_in_trl_unless_the_file_says_otherwise(method):
    read = load(PAIRS, f"rl={method}")
    assert read.get("excess_length_strategy") == "truncate-end"
    asked = load(PAIRS + "excess_length_strategy: drop\n", f"rl={method}")
    assert asked.get("excess_length_strategy") == "drop"
    assert load("base_model: a/b\n").get("excess_length_strategy") is None
    assert load(PAIRS, "rl=reward").get("excess_length_strategy") is None


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "reward"])
def test_a_length_that_is_null_is_no_limit(method):
    plan = plan_of(PAIRS + "max_length: null\n", method)
    assert plan.arguments.trainer["max_length"].value is None
    assert plan.arguments.max_length is None
    assert plan.config.get("excess_length_strategy") is None
    assert not any("rows longer than" in note for note in plan.notes)


def test_the_weights_are_float32_where_the_file_asks_for_bf16_alone():
    assert plan_of(PAIRS + "bf16: true\n", "sft").arguments.model["dtype"].value == "float32"
    named = plan_of(PAIRS + "bf16: true\ndtype: bfloat16\n", "sft")
    assert named.arguments.model["dtype"].value == "bfloat16"
    ours = plan_of("base_model: a/b\ndatasets: [{path: c/d}]\nbf16: true\n", "sft")
    assert ours.arguments.model["dtype"].value == "bfloat16"


def test_nothing_is_evaluated_before_eval_strategy_asks_for_it():
    text = MODEL + "datasets: [{path: a/b}, {path: c/d}]\ntest_split_size: 0.1\n"
    plan = plan_of(text, "dpo")
    assert plan.arguments.trainer["eval_strategy"].value == "no"
    assert any("nothing is evaluated, as in TRL" in note for note in plan.notes)
    assert plan.config.get("shuffle_merged_datasets") is False
    asked = plan_of(text + "eval_strategy: epoch\n", "dpo")
    assert asked.arguments.trainer["eval_strategy"].value == "epoch"
    assert not any("nothing is evaluated" in note for note in asked.notes)


def test_vllm_is_where_trl_has_it_by_default():
    read = load(PAIRS + "use_vllm: true\n", "rl=grpo")
    assert read.get("trl.vllm_mode") == "colocate"
    served = load(PAIRS + "use_vllm: true\nvllm_mode: server\n", "rl=grpo")
    assert served.get("trl.vllm_mode") == "server"


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "reward"])
def test_a_reward_model_is_refused_where_nothing_reads_it(method):
    with pytest.raises(
        FmtkitError, match=f"reward_model_name_or_path: {method} has no reward model"
    ):
        load(PAIRS + "reward_model_name_or_path: a/rm\n", f"rl={method}")


def test_keys_of_trl_may_be_set_on_the_command_line():
    read = load(PAIRS, "use_peft=true", "eos_token=<end>", "dataset_train_split=train[:9]")
    assert (read.get("adapter"), read.get("lora_r")) == ("lora", 16)
    assert read.get("special_tokens") == {"eos_token": "<end>"}
    assert read.datasets[0]["split"] == "train[:9]"
    named = load(PAIRS + "dataset_config: main\n", "dataset_name=other/rows")
    assert named.datasets == ({"path": "other/rows", "name": "main"},)
    online = load(PAIRS, "rl=grpo", "num_generations=4", "reward_funcs=[think_format_reward]")
    assert online.get("trl.num_generations") == 4
    assert online.get("trl.reward_funcs") == ["trl.rewards.think_format_reward"]
    assert load(PAIRS, "max_length=null").get("trainer_args") == {"max_length": None}
    assert (
        load(PAIRS, "bf16=false", "gradient_checkpointing=false")
        .settings["gradient_checkpointing"]
        .value
        is False
    )


@pytest.mark.parametrize("key", ["dataset_config", "dataset_train_split", "dataset_test_split"])
def test_keys_of_a_dataset_are_refused_by_name_without_one(key):
    with pytest.raises(
        FmtkitError, match=rf"{key}: 'main' belongs to dataset_name.*of an entry of"
    ):
        load(MODEL + f"{key}: main\n")


@pytest.mark.parametrize("key", ["dataset_train_split", "dataset_test_split"])
def test_a_split_that_a_mixture_does_not_have_is_refused_by_its_name(key):
    text = MODEL + "datasets: [{path: a/b}]\n"
    with pytest.raises(FmtkitError, match=rf"{key}: 'main' belongs to dataset_name"):
        load(text + f"{key}: main\n")
    # TRL names the splits of a mixture so.
    only = {"dataset_train_split": "train", "dataset_test_split": "test"}[key]
    assert load(text + f"{key}: {only}\n").datasets == ({"path": "a/b"},)


def test_a_mixture_is_read_and_a_name_beside_it_is_not_as_in_trl():
    text = MODEL + "dataset_name: a/b\ndataset_config: main\ndatasets: [{path: c/d}]\n"
    read = load(text)
    assert read.datasets == ({"path": "c/d"},)
    for said in ("dataset_name: a/b is not read", "dataset_config: main is not read"):
        assert any(note.startswith(said) for note in read.notes)
    # In other files neither is known to win.
    with pytest.raises(FmtkitError, match="dataset_name and datasets are the same"):
        load("base_model: a/b\ndataset_name: a/b\ndatasets: [{path: c/d}]\n")


def test_columns_and_shares_of_a_mixture_are_those_of_trl():
    text = MODEL + "datasets: [{path: a/b, columns: [prompt], fraction: 3}, {path: c/d}]\n"
    assert load(text).datasets[0] == {"path": "a/b", "select": ["prompt"], "mixture_share": 3}
    with pytest.raises(FmtkitError, match="mixture_share: all entries of datasets have one"):
        plan_of(text, "sft")
    # In other files `fraction` is one of the rows of its source, and `columns` gives new names.
    ours = "base_model: a/b\ndatasets: [{path: a/b, fraction: 0.5, columns: {text: story}}]\n"
    assert load(ours).datasets[0].keys() == {"path", "fraction", "columns"}
    renamed = MODEL + "datasets: [{path: a/b, columns: {text: story}}]\n"
    assert load(renamed).datasets[0]["columns"] == {"text": "story"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("{path: a/b, fraction: 0.5, weight: 2}", "weight: the size of a mixture"),
        ("{path: a/b, fraction: 0}", "0 of every entry leaves no row"),
        ("{path: a/b, fraction: -1}", "is not a number from 0"),
        ("{path: a/b, fraction: 1, mixture_share: 2}", "fraction and mixture_share differ"),
        ("{path: a/b, columns: [a, 1]}", "datasets.0.select: "),
    ],
)
def test_a_mixture_that_cannot_be_is_refused(more, said):
    with pytest.raises(FmtkitError, match=re.escape(said)):
        plan_of(MODEL + f"datasets: [{more}]\n", "sft")


@pytest.mark.parametrize(
    ("written", "key", "value"),
    [
        ("lr_scheduler_kwargs: '{\"min_lr\": 1e-6}'", "lr_scheduler_kwargs", {"min_lr": 1e-6}),
        ("model_init_kwargs: '{\"use_cache\": false}'", "model_init_kwargs", {"use_cache": False}),
        (
            "gradient_checkpointing_kwargs: '{\"use_reentrant\": false}'",
            "gradient_checkpointing_kwargs",
            {"use_reentrant": False},
        ),
        ("packing: 'yes'", "sample_packing", True),
        ("bf16: 'false'", "bf16", False),
        ("num_train_epochs: '3'", "num_epochs", 3),
        ("learning_rate: '2e-5'", "learning_rate", 2e-5),
        ("dataset_kwargs: '{\"skip_prepare_dataset\": true}'", "skip_prepare_dataset", True),
        ("use_peft: 'true'", "adapter", "lora"),
        ("max_length: 'null'", "trainer_args", {"max_length": None}),
        ("report_to: none", "report_to", "none"),
    ],
)
def test_text_in_quotes_is_read_as_trls_parser_reads_it(written, key, value):
    assert load(PAIRS + written + "\n").get(key) == value


def test_text_that_is_no_value_of_its_key_is_refused_at_it():
    with pytest.raises(FmtkitError, match=r"lr_scheduler_kwargs: '\{\"a\": ' is not JSON"):
        load(PAIRS + "lr_scheduler_kwargs: '{\"a\": '\n")
    with pytest.raises(FmtkitError, match="learning_rate: 'fast' is not a number"):
        load(PAIRS + "learning_rate: fast\n")
    with pytest.raises(FmtkitError, match="sample_packing: 'true' is not true or false"):
        load("base_model: a/b\nsample_packing: 'true'\n")


@pytest.mark.parametrize("key", ["eval_strategy", "save_strategy", "logging_strategy", "report_to"])
def test_an_unquoted_no_is_answered_with_the_quotes_that_trl_needs(key):
    word = "none" if key == "report_to" else "no"
    with pytest.raises(FmtkitError, match=f'TRL refuses false; write {key}: "{word}"'):
        load(PAIRS + f"{key}: no\n")
    assert load(PAIRS + f'{key}: "{word}"\n').get(key) == word


def test_former_names_are_errors_where_they_are_other_names_and_noted_where_they_are_keys():
    for former, present in (
        ("max_seq_length", "max_length"),
        ("evaluation_strategy", "eval_strategy"),
    ):
        with pytest.raises(FmtkitError, match=f"no key named '{former}'; it is {present} now"):
            load(PAIRS + f"{former}: 1\n")
    read = load(PAIRS + "warmup_ratio: 0.1\ntorch_dtype: bfloat16\n")
    assert (read.get("warmup_ratio"), read.get("torch_dtype")) == (0.1, "bfloat16")
    assert any(
        "torch_dtype is a former name, which TRL refuses (it is dtype now)" in n for n in read.notes
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("dtype: bf16", "dtype: 'bf16' is not one of auto"),
        ("per_device_train_batch_size: auto", "per_device_train_batch_size: 'auto' is not"),
        ("num_train_epochs: many", "num_train_epochs: 'many' is not"),
        ("model_init_kwargs: '{\"a\": '", "is not JSON"),
        ("accelerate_config: nope", "no profile (accelerate_config) named 'nope'"),
        ("reward_funcs: [accuracy_reward]", "trl.reward_funcs: the keys of trl are for a method"),
        ("lora_target: all", "no key named 'lora_target'"),
        ("dataset_mixer: {a: 1}", "write datasets: [{path"),
    ],
)
def test_what_is_wrong_is_told_once_at_its_line_by_the_name_in_the_file(written, said, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(f"use_peft: true\n{PAIRS}{written}\n")
    with pytest.raises(FmtkitError) as caught:
        planning.plan(config.load(file, collect=True))
    (line,) = caught.value.lines
    assert line.startswith(f"{file}:4: ")
    assert said in line


def test_a_column_of_text_is_that_of_every_dataset_of_a_mixture():
    text = MODEL + "datasets: [{path: a/b}, {path: c/d}]\ndataset_text_field: "
    assert [one.get("columns") for one in load(text + "story\n").datasets] == [
        {"text": "story"}
    ] * 2
    assert [one.keys() for one in load(text + "text\n").datasets] == [{"path"}] * 2


def test_switches_that_trl_never_reads_may_differ():
    read = load(PAIRS + "do_eval: true\ndo_predict: false\n")
    assert (read.get("do_eval"), read.get("do_predict")) == (True, False)


def test_one_key_under_two_names_may_have_one_value():
    read = load(PAIRS + "max_length: 512\ncutoff_len: 512\n")
    assert read.get("sequence_len") == 512
    assert any("cutoff_len and max_length are the same key" in note for note in read.notes)
    with pytest.raises(
        FmtkitError, match="cutoff_len and max_length are the same key, with two values: 9 and 8"
    ):
        load(PAIRS + "max_length: 8\ncutoff_len: 9\n")


def test_rewards_of_trls_scripts_are_found_by_their_names():
    text = (
        PAIRS
        + "reward_funcs: [get_soft_overlong_punishment, my_lib.rewards.f, reasoning_accuracy_reward]\n"
    )
    assert load(text, "rl=grpo").get("trl.reward_funcs") == [
        {"fmtkit.rewards.length_cap": {"cap": 1280, "buffer": 256}},
        "my_lib.rewards.f",
        "trl.rewards.reasoning_accuracy_reward",
    ]


@pytest.mark.parametrize("name", ["acuracy_reward", "my_reward", "get_cosine_scaled_reward"])
def test_a_bare_name_that_is_no_reward_of_trls_scripts_is_refused(name):
    with pytest.raises(
        FmtkitError, match=f"reward_funcs: {name}: TRL's scripts know accuracy_reward"
    ):
        load(PAIRS + f"reward_funcs: [accuracy_reward, {name}]\n", "rl=grpo")


def test_a_reward_of_trl_that_lacks_its_package_is_named_by_the_plan(monkeypatch):
    text = PAIRS + "per_device_train_batch_size: 8\nreward_funcs: [accuracy_reward]\n"
    assert not any("math-verify" in note for note in plan_of(text, "grpo").notes)
    monkeypatch.setattr(entries, "find_spec", lambda name: None)
    said = (
        "trl.rewards.accuracy_reward needs math-verify: pip install math-verify (needed to train)"
    )
    assert any(said in note for note in plan_of(text, "grpo").notes)


def test_the_punishment_of_trls_scripts_is_that_of_fmtkits_reward():
    from trl.rewards import get_soft_overlong_punishment

    from fmtkit.rewards import length_cap

    theirs = get_soft_overlong_punishment(max_completion_len=1280, soft_punish_cache=256)
    ids = [[1] * count for count in (1, 1023, 1024, 1025, 1100, 1279, 1280, 1281, 5000)]
    ours = length_cap(cap=1280, buffer=256)
    assert ours(completions=ids, completion_ids=ids) == theirs(completion_ids=ids)


def test_a_template_may_be_that_of_a_folder(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    read = load(PAIRS + f"chat_template_path: {tmp_path}\n")
    assert read.get("chat_template") == str(tmp_path / "chat_template.jinja")


@pytest.mark.parametrize("name", ["single_gpu", "multi_gpu", "fsdp2", "zero1", "zero2", "zero3"])
def test_profiles_of_trl_are_those_of_fmtkit(name):
    plan = plan_of(PAIRS + f"accelerate_config: {name}\n", "sft")
    assert (
        plan.launch.profile
        == f"accelerate, {name.removesuffix('_gpu') if name[0] == 's' else name}"
    )


def test_the_first_version_of_fsdp_is_run_as_the_second_and_that_is_said():
    plan = plan_of(PAIRS + "accelerate_config: fsdp1\n", "sft")
    assert plan.launch.profile == "accelerate, fsdp2"
    assert any("FSDP version 1 is deprecated; this runs version 2" in note for note in plan.notes)


def test_files_by_split_are_those_of_the_split_of_the_entry():
    files = "data_files: {train: a.jsonl, held: [b.jsonl, c.jsonl]}"
    read = load(
        MODEL + f"datasets: [{{path: json, {files}, split: 'held[:5]'}}, {{path: json, {files}}}]\n"
    )
    assert read.datasets == (
        {"path": "json", "data_files": ["b.jsonl", "c.jsonl"], "split": "train[:5]"},
        {"path": "json", "data_files": "a.jsonl", "split": "train"},
    )
    with pytest.raises(FmtkitError, match="no files of split 'test'; it has those of train, held"):
        load(MODEL + f"datasets: [{{path: json, {files}, split: test}}]\n")


def test_what_trls_scripts_never_read_is_a_note_or_refused():
    plan = plan_of(PAIRS + "do_train: true\ndo_eval: true\n", "dpo")
    assert any(note.startswith("do_eval changes nothing") for note in plan.notes)
    with pytest.raises(
        FmtkitError, match="do_train: False cannot be honoured: a run always trains"
    ):
        load(PAIRS + "do_train: false\n")


def test_arguments_of_the_preparation_are_read_or_refused_by_name():
    read = load(PAIRS + "dataset_kwargs: {skip_prepare_dataset: true}\n")
    assert read.get("skip_prepare_dataset") is True
    with pytest.raises(FmtkitError, match=r"dataset_kwargs: .*read skip_prepare_dataset alone"):
        load(PAIRS + "dataset_kwargs: {add_special_tokens: false}\n")


def test_a_flat_online_key_of_a_file_of_both_kinds_is_answered_with_both_readings():
    text = "rl: grpo\n" + PAIRS + "micro_batch_size: 2\nnum_generations: 4\n"
    with pytest.raises(FmtkitError, match="num_generations: the file has keys of TRL's") as caught:
        load(text)
    for part in ("model_name_or_path", "micro_batch_size", "'trl.num_generations'"):
        assert part in str(caught.value)


def test_every_key_of_trls_scripts_has_an_answer_on_the_page():
    """The page is made of the installed TRL: a field of its classes without an answer fails here."""
    text = from_trl.text()
    for named in from_trl.CLASSES:
        for field in fields_of(named).fields:
            assert f"| `{field}` |" in text
    note = next(note for note in load(PAIRS).notes if note.startswith(NOTE))
    page = re.search(r"docs/\S+\.md", note)
    assert page
    assert (Path(__file__).parents[1] / page[0]).read_text(encoding="utf-8") == text


def test_variables_of_a_file_are_those_of_the_training_processes():
    plan = plan_of(PAIRS + "env: {NCCL_DEBUG: INFO, TOKENIZERS_PARALLELISM: false, A: 1}\n", "sft")
    expected = {"NCCL_DEBUG": "INFO", "TOKENIZERS_PARALLELISM": False, "A": 1}
    assert plan.arguments.values("environment") == expected
    hidden = plan_of(PAIRS + "env: {CUDA_VISIBLE_DEVICES: ''}\naccelerate_config: zero2\n", "sft")
    assert visible_gpus.visible(visible_gpus.of_run(hidden.arguments)) == []


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("HF_TOKEN: abc", "env.HF_TOKEN looks like a secret"),
        ("WANDB_API_KEY: abc", "env.WANDB_API_KEY looks like a secret"),
        ("A: 'https://me:secret1@host/x'", "env.A looks like a secret"),
        ("PYTHONPATH: x", "env.PYTHONPATH is set by fmtkit"),
        ("LOCAL_RANK: 1", "env.LOCAL_RANK is set by torchrun"),
        ("ACCELERATE_MIXED_PRECISION: bf16", "env.ACCELERATE_MIXED_PRECISION is set by torchrun"),
        ("A: [1]", "env.A takes a string"),
        ("A: null", "env.A takes a string"),
        ("A B: x", "env.A B is no name"),
    ],
)
def test_variables_that_a_file_may_not_set_are_refused_by_name(written, said):
    with pytest.raises(FmtkitError, match=re.escape(said)) as caught:
        plan_of(PAIRS + f"env: {{{written}}}\n", "sft")
    assert "secret1" not in str(caught.value)


def test_workarounds_of_trls_files_are_refused_with_what_to_do():
    with pytest.raises(FmtkitError, match=r"ignore_bias_buffers: True cannot be honoured"):
        load(PAIRS + "ignore_bias_buffers: true\n")
    assert load(PAIRS + "ignore_bias_buffers: false\nenv: {}\n")


@pytest.mark.parametrize(
    ("more", "part"),
    [
        ("num_processes: 2\n", "--master-port=29501"),
        ("deepspeed: {zero_optimization: {stage: 2}}\n", "--master-port=29501"),
    ],
)
def test_processes_meet_at_the_port_of_the_file(more, part):
    plan = plan_of(PAIRS + "main_process_port: 29501\n" + more, "sft")
    assert part in plan.launch.command
    assert "--standalone" not in plan.launch.command


def test_a_profile_and_a_file_of_accelerate_get_the_port(tmp_path):
    profile = plan_of(PAIRS + "main_process_port: 29501\naccelerate_config: zero3\n", "sft")
    assert profile.launch.accelerate["main_process_port"] == 29501
    (tmp_path / "mine.yaml").write_text("num_processes: 2\n")
    named = f"main_process_port: 29501\naccelerate_config: {tmp_path / 'mine.yaml'}\n"
    assert "--main_process_port=29501" in plan_of(PAIRS + named, "sft").launch.command
    alone = plan_of(PAIRS + "main_process_port: 29501\n", "sft")
    assert any("one process meets no other" in note for note in alone.launch.notes)
    with pytest.raises(FmtkitError, match="main_process_port: 70000: takes a number"):
        plan_of(PAIRS + "main_process_port: 70000\n", "sft")


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("mixed_precision", "write bf16: true"),
        ("num_machines", "accelerate file of your own"),
        ("config_file", "accelerate_config"),
        ("gpu_ids", "CUDA_VISIBLE_DEVICES"),
    ],
)
def test_words_of_accelerates_command_are_answered_with_keys(key, answer):
    with pytest.raises(FmtkitError, match=f"no key named '{key}'; .*{answer}"):
        load(PAIRS + f"{key}: 1\n")


def test_the_masks_of_trl_are_asked_for_and_the_plan_says_what_inspect_shows():
    plan = plan_of(PAIRS + "assistant_only_loss: false\n", "sft")
    assert "completion_only_loss" not in plan.arguments.trainer
    assert any("trained on with all their tokens, as in TRL" in note for note in plan.notes)
    assert not any("does as TRL" in note for note in plan.notes)
    assert not any("all their tokens" in note for note in plan_of("base_model: a/b\n", "sft").notes)
