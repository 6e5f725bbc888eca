"""Every kind of configuration that users have plans, or ends in the refusal that is its due."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("trl")

from fmtkit.core.errors import DependencyError, OptionError
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.config.yaml_file import parse
from fmtkit.training.planning import plan as planning

# Our own words for every YAML block of the documents: name -> (YAML, method that is planned).
BLOCKS = {
    "dpo, two sources": (
        "rl: dpo\ndatasets:\n  - {path: a/pairs, split: train, type: chatml.intel}\n"
        "  - {path: a/feedback, split: train, type: chatml}\n",
        "dpo",
    ),
    "chat_template.default": (
        "rl: dpo\ndatasets:\n  - path: a/b\n    type: chat_template.default\n"
        "    field_messages: messages\n    field_chosen: chosen\n    field_rejected: rejected\n"
        "    message_property_mappings: {role: role, content: content}\n"
        "    roles: {user: [user], assistant: [assistant], system: [system]}\n",
        "dpo",
    ),
    "user_defined pairs": (
        "rl: dpo\ndatasets:\n  - path: a/b\n    type:\n      field_prompt: prompt\n"
        "      field_system: system\n      field_chosen: chosen\n      field_rejected: rejected\n"
        '      prompt_format: "{prompt}"\n      chosen_format: "{chosen}"\n'
        '      rejected_format: "{rejected}"\n',
        "dpo",
    ),
    "ipo": ("rl: ipo\n", "ipo"),
    "orpo": (
        "rl: orpo\norpo_alpha: 0.1\nremove_unused_columns: false\nchat_template: chatml\n"
        "datasets: [{path: a/b, type: chat_template.argilla}]\n",
        "orpo",
    ),
    "kto": (
        "rl: kto\nrl_beta: 0.1\nkto_desirable_weight: 1.0\nkto_undesirable_weight: 1.0\n"
        "remove_unused_columns: false\ndatasets: [{path: a/b, type: llama3.ultra, split: train}]\n"
        "gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: true}\n",
        "kto",
    ),
    "user_defined labels": (
        "rl: kto\ndatasets:\n  - path: a/b\n    type:\n      field_prompt: prompt\n"
        "      field_completion: completion\n      field_label: label\n"
        '      prompt_format: "{prompt}"\n      completion_format: "{completion}"\n',
        "kto",
    ),
    "grpo with a server": (
        "base_model: a/m\nrl: grpo\nvllm: {host: 0.0.0.0, port: 8000, tensor_parallel_size: 2,"
        " gpu_memory_utilization: 0.85, dtype: auto}\n"
        "trl: {use_vllm: true, vllm_server_host: 0.0.0.0, vllm_server_port: 8000,"
        " vllm_server_timeout: 300}\n",
        "grpo",
    ),
    "grpo with rewards": (
        "rl: grpo\ntrl: {beta: 0.001, max_completion_length: 256, use_vllm: True,"
        " num_generations: 4, reward_funcs: [rewards.random], reward_weights: [1.0]}\n"
        "datasets: [{path: openai/gsm8k, name: main, type: rewards.transform}]\n",
        "grpo",
    ),
    "grpo with a rollout": (
        "rl: grpo\ntrl: {rollout_func: env.rollout, reward_funcs: [env.reward]}\n"
        "datasets: [{path: a/b, type: env.transform}]\n",
        "grpo",
    ),
    "loss of grpo": ("trl:\n  loss_type: dr_grpo\n  max_completion_length:\n", "grpo"),
    "prefetch": (
        "trl: {use_data_producer: true, use_vllm: true, async_prefetch: true, prefetch_depth: 1,"
        " vllm_sync_interval: 2}\n",
        "grpo",
    ),
    "adapter to the server": (
        "adapter: lora\nlora_r: 32\nlora_alpha: 64\nlora_target_linear: true\n"
        "trl: {vllm_lora_sync: true}\n",
        "grpo",
    ),
    "streaming": ("trl: {streaming_partial_batch: true}\n", "grpo"),
    "importance sampling": (
        "trl: {vllm_importance_sampling_correction: true, importance_sampling_level: token,"
        " off_policy_mask_threshold: 0.5}\n",
        "grpo",
    ),
    "replay": ("trl: {replay_buffer_size: 100, replay_recompute_logps: true}\n", "grpo"),
    "reroll": ("trl: {reroll_start_fraction: 0.5, reroll_max_groups: 1}\n", "grpo"),
    "zero advantage": ("trl: {skip_zero_advantage_batches: true}\n", "grpo"),
    "reward workers": ("trl: {reward_num_workers: 4}\n", "grpo"),
    "everything of grpo": (
        "base_model: a/m\nvllm: {gpu_memory_utilization: 0.35}\nadapter: lora\nlora_r: 32\n"
        "rl: grpo\ntrl: {use_data_producer: true, use_vllm: true, async_prefetch: true,"
        " vllm_lora_sync: true, streaming_partial_batch: true, off_policy_mask_threshold: 0.5,"
        " num_generations: 8, reward_funcs: [rewards.accuracy], reroll_start_fraction: 0.5,"
        " replay_buffer_size: 100, reward_num_workers: 4}\n"
        "datasets: [{path: a/b, type: rewards.transform, split: train}]\n"
        "gradient_accumulation_steps: 4\nmicro_batch_size: 2\nmax_steps: 500\n"
        "learning_rate: 1e-5\nbf16: true\ngradient_checkpointing: true\n",
        "grpo",
    ),
    "fsdp": (
        "fsdp: [full_shard, auto_wrap]\n"
        "fsdp_config: {fsdp_transformer_layer_cls_to_wrap: Qwen2DecoderLayer}\n"
        "gradient_checkpointing_kwargs: {use_reentrant: false}\n",
        "sft",
    ),
    "deepspeed": (
        "deepspeed: deepspeed_configs/zero3_bf16.json\n"
        "gradient_checkpointing_kwargs: {use_reentrant: true}\n",
        "sft",
    ),
    "gdpo": (
        "base_model: a/m\nrl: gdpo\ntrl: {beta: 0.001, num_generations: 4,"
        " reward_funcs: [rewards.format, rewards.right], reward_weights: [1.0, 2.0]}\n"
        "datasets: [{path: openai/gsm8k, name: main, type: rewards.transform}]\n",
        "gdpo",
    ),
    "aggregation": (
        "rl: grpo\ntrl: {multi_objective_aggregation: normalize_then_sum}\n",
        "grpo",
    ),
    "simpo": ("rl: simpo\nrl_beta: 0.1\ncpo_alpha: 1.0\nsimpo_gamma: 0.5\n", "simpo"),
    "nemo gym, one turn": (
        "base_model: a/m\nrl: grpo\nchat_template: tokenizer_default\n"
        "trl: {use_vllm: false, num_generations: 4, max_completion_length: 128,"
        " reward_funcs: [axolotl.integrations.nemo_gym.rewards.reward_nemo_gym_verify]}\n"
        "plugins: [axolotl.integrations.nemo_gym.NemoGymPlugin]\nnemo_gym_enabled: true\n"
        "nemo_gym_dir: ~/Gym\nnemo_gym_auto_start: false\nnemo_gym_head_port: 11000\n"
        "nemo_gym_datasets: [{path: a.jsonl, server_name: reasoning_gym}]\n"
        "datasets: [{path: ~/Gym/a.jsonl, type: chat_template,"
        " field_messages: responses_create_params.input, message_field_content: content,"
        " message_field_role: role}]\n",
        "grpo",
    ),
    "local file": (
        "datasets: [{ds_type: json, data_files: [a.jsonl], split: train, type: chatml.intel}]\n",
        "dpo",
    ),
    "reference of an adapter": ("rl_adapter_ref_model: true\n", "dpo"),
    "outcome rewards": (
        "base_model: a/m\nmodel_type: AutoModelForSequenceClassification\nnum_labels: 1\n"
        "reward_model: true\nchat_template: gemma\n"
        "datasets: [{path: a/b, type: bradley_terry.chat_template}]\n",
        "reward",
    ),
    "process rewards": (
        "base_model: a/m\nmodel_type: AutoModelForTokenClassification\nnum_labels: 2\n"
        "process_reward_model: true\ndatasets: [{path: a/b, type: stepwise_supervised}]\n",
        "prm",
    ),
    "TRL's own names": (
        "model_name_or_path: a/m\ndataset_name: a/b\nrl: dpo\nnum_processes: 4\n",
        "dpo",
    ),
    "a profile": ("model_name_or_path: a/m\ndataset_name: a/b\naccelerate_config: zero2\n", "sft"),
    "a mixture": ("model_name_or_path: a/m\ndatasets: [{path: a/b}, {path: c/d}]\n", "sft"),
}

# What cannot be honoured: YAML -> the name of the refusal.
REFUSED = {
    "rl: gdpo\ncontext_parallel_size: 2": "context_parallel",
    "rl: dpo\ncontext_parallel_size: 2": "context_parallel",
    "context_parallel_size: 2\nsample_packing: true": "context_parallel",
    "rl: grpo\nrl_adapter_ref_model: true": "reference",
    "rl: orpo\nrl_adapter_ref_model: true": "reference",
    "rl: simpo\nref_model: a/b": "reference",
    "rl: dpo\nadapter: lora\nsync_ref_model: true": "sync_ref_model",
    "load_in_4bit: true": "quantized_weights",
    "adapter: qlora\nload_in_8bit: true": "quantized_weights",
    "bf16: true\nfp16: true": "trainer_rule",
    "adapter: lora\nlora_target_modules: [q_proj, lm_head]": "head_target",
    "rl: dpo\nloss_type: sigmiod": "loss_type",
    "rl: dpo\nloss_type: exo_pair": "loss_type",
    "rl: kto\nloss_type: [kto, apo_zero_unpaired]": "loss_type",
    "rl: dpo\nloss_type: [sigmoid, sft]\nloss_weights: [1.0]": "trainer_rule",
    "rl: kto\nmicro_batch_size: 1": "kto_batch",
    "rl: kto\ngroup_by_length: true": "kto_order",
    "rl: dpo\ntrain_on_eos: last": "mask",
    "rl: dpo\nroles_to_train: [user]": "mask",
    "rl: dpo\nmodel_type: AutoModelForSequenceClassification": "model_head",
    "reward_model: true\nnum_labels: 2": "model_head",
    "batch_size: 8\nmicro_batch_size: 3": "batch_size",
    "early_stopping_patience: 3": "nothing_to_evaluate",
    "chat_template: chatml\ndatasets: [{path: a/b, chat_template: zephyr}]": "template",
    "unfrozen_parameters: [lm_head]\nadapter: lora": "frozen",
    "tokens: ['<x>']\nadapter: lora": "new_tokens",
    "plugins: [axolotl.integrations.spectrum.SpectrumPlugin]": "plugin",
    "datasets: [{path: a/b, weight: 0}]": "mix_weight",
    "rl: gkd\nchat_template_kwargs: {enable_thinking: false}": "template_variables",
    "warmup_ratio: 0.1\nwarmup_steps: 10": "argument",
}


def planned(text: str, **options) -> planning.Plan:
    return planning.plan(parse(text, "block"), partial=True, **options)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_documents_plans(name):
    text, method = BLOCKS[name]
    plan = planned(text)
    assert plan.method == method
    assert json.loads(plan.dumps())["method"] == method
    assert str(plan)


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_honoured_ends_in_its_named_refusal(text):
    with pytest.raises(RefusalError) as error:
        planning.plan(parse(text, "block"), partial=True)
    assert error.value.name == REFUSED[text]
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", ["bco", "ppo", "nash_md", "xpo"])
def test_a_method_that_trl_has_removed_names_the_version_to_install(method):
    from fmtkit.core.runner import find
    from fmtkit.training.config.class_arguments import has_class

    if has_class(find(method).trainer):
        pytest.skip("this TRL still has it")
    with pytest.raises(DependencyError, match=rf"{method}: .* pip install 'trl>=.*<=1\.1[23]\.0'"):
        planned(f"rl: {method}")


def test_a_fragment_is_refused_unless_it_is_asked_for():
    with pytest.raises(OptionError, match="base_model, datasets: needed to train"):
        planning.plan(parse("rl: dpo", "block"))


def test_every_argument_knows_where_it_came_from():
    plan = planned(
        "rl: dpo\nrl_beta: 0.2\ntrainer_args: {ld_alpha: 0.5}\nadapter: lora\nlora_r: 8\n"
    )
    found = plan.to_json()["arguments"]
    assert found["trainer"]["beta"] == {"value": 0.2, "origin": "key rl_beta"}
    assert found["trainer"]["ld_alpha"] == {"value": 0.5, "origin": "key trainer_args.ld_alpha"}
    assert found["peft"]["r"] == {"value": 8, "origin": "key lora_r"}
    assert found["model"]["dtype"] == {"value": "float32", "origin": "default of fmtkit"}


def test_two_keys_that_set_one_argument_differently_are_refused():
    with pytest.raises(OptionError, match=r"sets beta to 0\.2, but .* sets it to 0.1"):
        planned("rl: grpo\nrl_beta: 0.1\ntrl: {beta: 0.2}\n")


def test_a_key_of_another_method_is_refused_with_the_class_that_lacks_it():
    with pytest.raises(OptionError, match=r"key cpo_alpha: DPOConfig of trl .* has no argument"):
        planned("rl: dpo\ncpo_alpha: 1.0")


def test_a_misspelled_passed_through_argument_is_refused():
    with pytest.raises(OptionError, match="did you mean 'ld_alpha'"):
        planned("rl: dpo\ntrainer_args: {ld_alhpa: 0.5}")
    with pytest.raises(OptionError, match="did you mean 'attn_implementation'"):
        planned("model_init_kwargs: {atn_implementation: sdpa}")


def test_keys_that_change_nothing_are_said_to():
    plan = planned("rl: dpo\ntokenizer_legacy: true\nlora_r: 8\n")
    assert any("tokenizer_legacy changes nothing" in note for note in plan.notes)
    assert any("lora_r change nothing" in note for note in plan.notes)


def test_a_type_that_the_method_cannot_take_is_refused():
    with pytest.raises(OptionError, match=r"type intel makes .*, but prm takes Stepwise"):
        planned("process_reward_model: true\ndatasets: [{path: a, type: chatml.intel}]")


@pytest.mark.parametrize(
    "text",
    [
        "rl: dpo\ndatasets: [{path: a, type: chatml.intel}, {path: b, type: llama3.intel}]",
        "rl: dpo\nchat_template: zephyr\ndatasets: [{path: a, type: chatml.intel}]",
    ],
)
def test_two_templates_are_refused(text):
    with pytest.raises(OptionError, match="a model has one chat template, but these differ"):
        planned(text)


def test_a_template_of_a_test_dataset_is_named_with_its_key_and_file():
    text = "chat_template: chatml\ndatasets: [{path: x, type: chat_template}]\n"
    text += "test_datasets: [{path: y.jsonl, type: chat_template, chat_template: llama3}]"
    words = (
        r"llama3 \(key test_datasets.chat_template of y.jsonl\) and chatml \(key chat_template\)"
    )
    with pytest.raises(OptionError, match=words):
        planned(text)


def test_the_batch_of_a_step_sets_the_accumulation():
    plan = planned("batch_size: 32\nmicro_batch_size: 4\nnum_processes: 2")
    assert plan.arguments.trainer["gradient_accumulation_steps"].value == 4


def test_evaluations_per_epoch_become_shares_of_the_run():
    plan = planned("evals_per_epoch: 4\nnum_epochs: 2\nval_set_size: 0.1")
    assert plan.arguments.trainer["eval_steps"].value == pytest.approx(1 / 8)
    assert plan.arguments.trainer["eval_strategy"].value == "steps"


def test_dora_and_qlora_set_what_they_stand_for():
    assert planned("adapter: dora").arguments.peft["use_dora"].value is True
    qlora = planned("adapter: qlora").arguments.quantization
    assert qlora["load_in_4bit"].value is True
    assert qlora["bnb_4bit_quant_type"].value == "nf4"


def test_planning_loads_neither_torch_nor_transformers(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(
        "base_model: a/m\nrl: dpo\ndatasets: [{path: a/b, type: chatml.intel}]\n", encoding="utf-8"
    )
    code = (
        "import sys; from fmtkit.training import train;"
        f"print(train({str(file)!r}, dry_run=True).plan);"
        "assert not {'torch', 'transformers', 'trl', 'datasets'} & set(sys.modules), 'imported'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "trl:DPOTrainer" in done.stdout


def test_of_sections_of_other_methods_the_same_one_is_named_whatever_their_hashes():
    program = (
        "from fmtkit.training.planning import plan\n"
        "keys = {'trl': {'num_generations': 2}, 'ebft': {'ce_coef': 0.1}}\n"
        "try:\n    plan.plan({'rl': None, **keys}, partial=False)\n"
        "except Exception as error:\n    print(error)\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in "123"
    }
    assert len(said) == 1
    assert "ebft.ce_coef: the keys of ebft are for a method other than sft" in said.pop()


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({}, ("a/m", None, False, False)),
        (
            {
                "tokenizer_config": "a/t",
                "adapter": "lora",
                "use_cpu": True,
                "train_on_inputs": True,
            },
            ("a/t", "lora", True, True),
        ),
        ({"trainer_args": {"use_cpu": True}}, ("a/m", None, True, False)),
    ],
)
def test_a_plan_says_what_several_parts_of_a_run_ask(keys, facts):
    datasets = [{"path": "a/b", "type": "chatml.intel", "shards": 3}]
    plan = planning.plan(
        {"base_model": "a/m", "rl": "dpo", "seed": 7, "datasets": datasets, **keys}
    )
    assert (plan.tokenizer, plan.adapter, plan.uses_cpu, plan.trains_on_inputs) == facts
    shard = plan.slice_of(plan.datasets[0]).shard
    assert shard is not None
    assert (shard.count, shard.seed) == (3, 7)
