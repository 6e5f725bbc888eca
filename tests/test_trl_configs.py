"""TRL's own config files run unchanged: their keys are read as TRL's scripts read them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fmtkit.core.errors import FmtkitError
from fmtkit.training.config import config
from fmtkit.training.planning import plan as planning

DOCUMENTS = Path(__file__).parents[1] / "fixtures" / "trl" / "documents"
"""The configs of TRL's documents, each named METHOD-WHAT.yaml."""
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


def test_flat_arguments_of_online_methods_are_read_in_a_file_of_trl_only():
    flat = "num_generations: 4\nuse_vllm: false\nreward_funcs: [accuracy_reward]\n"
    read = load("rl: grpo\n" + PAIRS + flat)
    assert (read.get("trl.num_generations"), read.get("trl.use_vllm")) == (4, False)
    assert read.get("trl.reward_funcs") == ["accuracy_reward"]
    with pytest.raises(FmtkitError, match=r"did you mean 'trl.num_generations'"):
        load("rl: grpo\nbase_model: a/b\nnum_generations: 4\n")


def test_a_reward_model_is_a_reward_of_grpo_and_the_model_of_other_methods():
    text = PAIRS + "reward_model_name_or_path: a/rm\nreward_funcs: accuracy_reward\n"
    assert load(text, "rl=grpo").get("trl.reward_funcs") == ["a/rm", "accuracy_reward"]
    alone = PAIRS + "reward_model_name_or_path: a/rm\n"
    assert load(alone, "rl=xpo").get("reward_model_path") == "a/rm"


def test_a_template_file_is_the_template_and_a_tokenizer_is_refused_by_its_key():
    assert load(PAIRS + "chat_template_path: t.jinja\n").get("chat_template") == "t.jinja"
    with pytest.raises(FmtkitError, match=r"chat_template_path: 'a/b' is no \.jinja file"):
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


def test_a_command_of_trl_is_answered_with_that_of_fmtkit():
    done = fmtkit("sft", "--config", "x.yaml")
    assert done.returncode == 2
    assert "fmtkit train FILE --method sft" in done.stderr


def test_the_column_of_text_is_renamed_unless_it_has_that_name_already():
    assert load(PAIRS + "dataset_text_field: text\n").datasets[0].keys() == {"path"}
    [entry] = load(PAIRS + "dataset_text_field: story\n").datasets
    assert entry["columns"] == {"text": "story"}


@pytest.mark.parametrize("method", ["dpo", "grpo"])
def test_a_key_that_trl_has_removed_is_named_as_it_was_written(method):
    with pytest.raises(FmtkitError, match=r"'max_prompt_length'; prompts are no longer truncated"):
        load(PAIRS + "max_prompt_length: 512\n", f"rl={method}")


def test_the_end_of_turn_and_the_padding_are_tokens_of_the_tokenizer():
    read = load(PAIRS + "eos_token: <|im_end|>\npad_token: <pad>\n")
    assert read.get("special_tokens") == {"eos_token": "<|im_end|>", "pad_token": "<pad>"}
    with pytest.raises(FmtkitError, match=r"eos_token and special_tokens\.eos_token differ"):
        load(PAIRS + "eos_token: a\nspecial_tokens: {eos_token: b}\n")
