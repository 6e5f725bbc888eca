"""What a plan approves runs: each of these configs failed only after its rows were converted, or learned nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_training as tiny

pytest.importorskip("trl")

from fmtkit.core.errors import FmtkitError
from fmtkit.rendering import template_sources
from fmtkit.training import train
from fmtkit.training.config import config as configs
from fmtkit.training.online import tool_templates
from fmtkit.training.planning import interpreter
from fmtkit.training.planning import plan as planning

KINDS = {
    "sft": ("Conversation", "openai"),
    "kto": ("Unpaired", "passthrough"),
    "grpo": ("Prompt", "passthrough"),
    "online_dpo": ("Prompt", "passthrough"),
    "gkd": ("Conversation", "openai"),
}
LORA = {"adapter": "lora", "lora_r": 4}
SCHEDULE = "trainer_args"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="module")
def rows_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")

    def write(method: str) -> dict[str, Any]:
        table, type_ = KINDS.get(method, ("Preference", "passthrough"))
        file = folder / f"{table}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in tiny.ROWS[table]()))
        return {"path": str(file), "type": type_}

    return write


@pytest.fixture
def config(model, rows_of):
    def make(method: str, entry: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
        base = {"base_model": model, **tiny.STEP, "datasets": [rows_of(method) | (entry or {})]}
        base |= {} if method == "sft" else {"rl": method}
        if method == "gkd":
            base["teacher_model"] = model
        if method in ("grpo", "online_dpo"):
            base["trl"] = {"reward_funcs": ["fmtkit.rewards.tags"]}
        if method == "grpo":
            base["trl"] |= {"num_generations": 2}
        return base | keys

    return make


def refused(config: dict[str, Any]) -> str:
    with pytest.raises(FmtkitError) as error:
        train(config, dry_run=True)
    assert len(error.value.lines) == 1, error.value.lines
    return str(error.value)


@pytest.mark.parametrize(
    ("method", "keys", "words"),
    [
        (
            "sft",
            {"lr_scheduler": "cosine_with_min_lr"},
            "lr_scheduler: cosine_with_min_lr needs min_lr_rate: write lr_scheduler: cosine with "
            "cosine_min_lr_ratio: 0.1",
        ),
        (
            "dpo",
            {"lr_scheduler": "warmup_stable_decay"},
            "lr_scheduler: warmup_stable_decay needs num_decay_steps: write trainer_args",
        ),
        (
            "sft",
            {"lr_scheduler": "polynomial", SCHEDULE: {"lr_scheduler_kwargs": {"powr": 2}}},
            "has no setting 'powr'; did you mean 'power'?",
        ),
        (
            "sft",
            {"lr_scheduler": "linear", SCHEDULE: {"lr_scheduler_kwargs": {"powr": 2}}},
            "lr_scheduler: linear has no setting 'powr'; it takes none",
        ),
        (
            "sft",
            {"attn_implementation": "flex_attention"},
            "flex_attention needs a CUDA device, and use_cpu: true trains without",
        ),
        (
            "sft",
            {**LORA, "lora_target_modules": ["q_prj"]},
            "lora_target_modules: base_model has no module 'q_prj'; did you mean 'q_proj'?",
        ),
        (
            "sft",
            {**LORA, "lora_target_modules": "q_(proj"},
            "lora_target_modules: 'q_(proj' is not a regular expression",
        ),
        (
            "dpo",
            {**LORA, "lora_target_linear": True, "lora_modules_to_save": ["embed"]},
            "lora_modules_to_save: base_model has no module 'embed'",
        ),
        (
            "sft",
            {"unfrozen_parameters": ["^lm_hed"]},
            "unfrozen_parameters: ['^lm_hed'] match no parameter of base_model",
        ),
        (
            "sft",
            {"trainer_args": {"dataset_kwargs": {"skip_prepare_dataset": True}}},
            "skip_prepare_dataset is for rows that are tokenized already",
        ),
        (
            "dpo",
            {"trainer_args": {"sync_ref_model": True}, **LORA},
            "sync_ref_model: with an adapter the reference is the base model",
        ),
        (
            "sft",
            {"dataloader_drop_last": True, "micro_batch_size": 17},
            "16 rows are fewer than one batch of 17, and dataloader_drop_last",
        ),
        (
            "sft",
            {"dataloader_drop_last": True, "micro_batch_size": 16, "val_set_size": 1},
            "15 rows are fewer than one batch of 16",
        ),
        (
            "kto",
            {"micro_batch_size": 33},
            "32 rows are fewer than one batch of 33, and kto trains on full batches only",
        ),
        (
            "sft",
            {**LORA, "lora_target_modules": r".*\.q_prj"},
            "lora_target_modules: base_model has no module '.*\\\\.q_prj'",
        ),
        (
            "sft",
            {**LORA, "lora_target_modules": ["q_proj", "norm"]},
            "lora_target_modules: model.norm is no linear layer or embedding",
        ),
        (
            "sft",
            {**LORA, "lora_target_modules": r".*mlp"},
            "lora_target_modules: model.layers.0.mlp is no linear layer or embedding",
        ),
        (
            "sft",
            {**LORA, "lora_target_parameters": ["mlp.gate"]},
            "lora_target_parameters: base_model has no parameter 'mlp.gate'",
        ),
        (
            "sft",
            {"overrides_of_model_config": {"rope_tetha": 2.0}},
            "a llama model has no setting 'rope_tetha'; did you mean 'rope_theta'?",
        ),
        (
            "sft",
            {"overrides_of_model_config": {"hidden_size": 32}},
            "overrides_of_model_config.hidden_size: the weights of base_model are for 64, not 32",
        ),
        ("sft", {"num_epochs": 0, "max_steps": -1}, "num_epochs: 0 makes no step"),
        ("sft", {"seed": 2**32}, "seed: 4294967296 is not a whole number from 0 to 4294967295"),
        (
            "grpo",
            {"micro_batch_size": 34, "gradient_accumulation_steps": 1},
            "16 prompts are fewer than one batch of 17, and grpo trains on full batches only",
        ),
        ("online_dpo", {"val_set_size": 2}, "val_set_size: TRL's trainer for online_dpo cannot"),
        ("sft", {"eval_on_start": True}, "eval_on_start: there is nothing to evaluate on"),
        (
            "dpo",
            {"dataloader_persistent_workers": True},
            "dataloader_persistent_workers option needs dataloader_num_workers > 0",
        ),
        (
            "sft",
            {"dataloader_prefetch_factor": 2},
            "dataloader_prefetch_factor",
        ),
        *(
            (
                method,
                {"trainer_args": {"router_aux_loss_coef": 0.1}},
                "`router_aux_loss_coef` is set to 0.1 but base_model is not a Mixture-of-Experts model",
            )
            for method in ("sft", "dpo", "kto", "grpo")
        ),
        ("dpo", {**LORA, "trainer_args": {"router_aux_loss_coef": 0.1}}, "Mixture-of-Experts"),
        (
            "sft",
            {"overrides_of_model_config": {"output_router_logits": True}},
            "a llama model has no setting 'output_router_logits'",
        ),
        (
            "grpo",
            {"trainer_args": {"sync_ref_model": True}},
            "`sync_ref_model=True` while `beta=0.0`",
        ),
        (
            "grpo",
            {"trainer_args": {"generation_batch_size": 3}},
            "generation_batch_size (3) must be divisible by the global batch size (2)",
        ),
        *(
            (method, {"trainer_args": {name: 0}}, f"trainer_args.{name}: 0 is not a number above 0")
            for method, name in (
                ("grpo", "temperature"),
                ("grpo", "repetition_penalty"),
                ("online_dpo", "temperature"),
                ("gkd", "temperature"),
            )
        ),
        ("gkd", {"sample_packing": True}, "sample_packing: gkd's own collator pads its rows"),
        ("gkd", {"padding_free": True}, "padding_free: gkd's own collator pads its rows"),
    ],
)
def test_what_would_fail_in_training_is_one_problem_of_the_plan(config, method, keys, words):
    assert words in refused(config(method, **keys))


@pytest.mark.parametrize("method", ["cpo", "orpo"])
def test_a_rule_of_the_trainer_about_a_package_is_a_note_of_a_dry_run_and_refuses_a_run(
    config, method, monkeypatch
):
    keys = {"val_set_size": 2, "trainer_args": {"generate_during_eval": True}}
    words = "`generate_during_eval=True` requires Weights and Biases or Comet"
    monkeypatch.setattr(interpreter, "find_spec", lambda _: None)
    assert words in " ".join(train(config(method, **keys), dry_run=True).plan.notes)
    with pytest.raises(FmtkitError, match=words):
        train(config(method, **keys))
    monkeypatch.setattr(interpreter, "find_spec", lambda _: True)
    assert words not in " ".join(train(config(method, **keys), dry_run=True).plan.notes)


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("sft", {"eval_on_start": True, "val_set_size": 2}),
        ("sft", {"dataloader_persistent_workers": True, "dataloader_num_workers": 1}),
        ("sft", {"dataloader_prefetch_factor": 2, "dataloader_num_workers": 1}),
        ("sft", {"trainer_args": {"router_aux_loss_coef": 0.0}}),
        ("grpo", {"trainer_args": {"sync_ref_model": True, "beta": 0.1}}),
    ],
)
def test_the_same_settings_pass_with_what_they_need(config, method, keys):
    train(config(method, **keys), dry_run=True)


def test_a_coefficient_of_experts_passes_for_a_model_with_experts(config, model, tmp_path):
    import shutil

    mixture = Path(shutil.copytree(model, tmp_path / "model"))
    facts = json.loads((mixture / "config.json").read_text())
    facts |= {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    (mixture / "config.json").write_text(json.dumps(facts))
    keys = {"base_model": str(mixture), "trainer_args": {"router_aux_loss_coef": 0.1}}
    train(config("sft", **keys), dry_run=True)


TOOLS = {"reward_funcs": ["fmtkit.rewards.tags"], "num_generations": 2, "tools": ["json.dumps"]}


def of_trl(name: str) -> str:
    return template_sources.find_model_template(f"trl:{name}").source


def test_tools_need_a_template_that_writes_calls(config):
    words = "trl.tools: the chat template cannot write tool calls; use a model that"
    assert words in refused(config("grpo", trl=TOOLS))
    environment = {**TOOLS, "tools": None, "environment_factory": "json.JSONDecoder"}
    assert "trl.environment_factory: the chat template" in refused(config("grpo", trl=environment))


def test_tools_need_a_template_whose_replies_trl_can_read(config, model, tmp_path):
    changed = of_trl("qwen3") + "{# changed #}"
    words = "trl.tools: TRL does not know how to read tool calls in this chat template"
    assert words in refused(config("grpo", trl=TOOLS, chat_template_jinja=changed))
    known = tiny.with_template(model, tmp_path / "known", of_trl("qwen3"))
    train(config("grpo", trl=TOOLS, base_model=known), dry_run=True)
    told = tiny.with_template(model, tmp_path / "told", changed, response_template={"fields": {}})
    train(config("grpo", trl=TOOLS, base_model=told), dry_run=True)


def test_a_template_by_its_name_is_the_plain_one_with_tools(config):
    planned = {
        name: planning.plan(configs.load(config("grpo", trl=trl, chat_template="qwen3"), ()))
        for name, trl in (("tools", TOOLS), ("none", {**TOOLS, "tools": None}))
    }
    assert planned["tools"].template_text() == of_trl("qwen3")
    assert planned["none"].template_text() == of_trl("qwen3_training")
    train(config("grpo", trl=TOOLS, chat_template="qwen3"), dry_run=True)


@pytest.mark.slow
def test_the_plan_judges_templates_for_tools_as_the_installed_trl_does(model):
    from types import SimpleNamespace

    from transformers import AutoTokenizer
    from trl.chat_template_utils import add_response_schema, supports_tool_calling

    def reads(text: str) -> bool:
        try:
            return bool(add_response_schema(SimpleNamespace(chat_template=text)))
        except ValueError:
            return False

    tokenizer = AutoTokenizer.from_pretrained(model)
    for name in template_sources.trl_names():
        text = of_trl(name)
        assert (text in tool_templates.readable()) is reads(text), name
        if name.endswith("_training"):
            continue
        tokenizer.chat_template = text
        assert tool_templates.writes_calls(text, {}) is supports_tool_calling(tokenizer), name


def rewards(*named: object) -> dict[str, Any]:
    return {"reward_funcs": list(named), "num_generations": 2}


@pytest.mark.parametrize("method", ["grpo", "online_dpo", "rloo"])
def test_a_reward_needs_its_column_in_the_rows(config, tmp_path, method):
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"prompt": "1 + 1", "topic": "sum"}\n' * 99 + '{"prompt": "1 + 1", "gold": "2"}\n'
    )
    keys = {"datasets": [{"path": str(file), "type": "passthrough"}]}
    group = {} if method == "online_dpo" else {"num_generations": 2}
    exact, gold = "fmtkit.rewards.exact_match", {"fmtkit.rewards.accuracy": {"column": "gold"}}

    def given(*named: object) -> dict[str, Any]:
        return config(method, trl={"reward_funcs": list(named), **group}, **keys)

    found = refused(given(exact))
    assert (
        "trl.reward_funcs: reward fmtkit.rewards.exact_match: the rows have no reference" in found
    )
    assert "(gold, prompt, topic)" in found
    assert "reward trl.rewards.accuracy_reward takes 'solution', which the rows do not have" in (
        refused(given("trl.rewards.accuracy_reward"))
    )
    train(given(gold, "trl.rewards.think_format_reward", "fmtkit.rewards.tags"), dry_run=True)


def test_a_column_that_one_of_the_datasets_has_is_a_column_of_the_rows(config, rows_of, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": [{"role": "user", "content": "1 + 1"}], "answer": "2"}\n' * 8)
    answered = {"path": str(file), "type": "passthrough"}
    exact, elsewhere = (
        rewards("fmtkit.rewards.exact_match"),
        {**answered, "path": "someone/prompts"},
    )
    train(config("grpo", datasets=[rows_of("grpo"), answered], trl=exact), dry_run=True)
    train(config("grpo", datasets=[rows_of("grpo"), elsewhere], trl=exact), dry_run=True)
    assert "the rows have no reference" in refused(
        config("grpo", test_datasets=[answered], trl=exact)
    )


OWN = """
import functools
from elsewhere import borrowed
def plain(completions, prompts, completion_ids, trainer_state, log_extra, missing, *, level=1): ...
async def later(completions, *, missing, **columns): ...
def takes_all(completions, *missing, answer=None, **columns): ...
def with_default(completions, missing=None): ...
@functools.cache
def decorated(completions, missing): ...
def twice(completions, missing): ...
if functools: twice = takes_all
class Scored:
    def __call__(self, completions, missing): ...
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "elsewhere.py").write_text("def borrowed(missing): ...\n")
    (tmp_path / "scores_of_mine.py").write_text(OWN)
    return f"{tmp_path}/scores_of_mine.py:"


@pytest.mark.parametrize("name", ["plain", "later", "borrowed"])
def test_a_function_needs_the_columns_that_its_source_says(config, own, name):
    found = refused(config("grpo", trl=rewards(own + name)))
    assert f"reward {own}{name} takes 'missing', which the rows do not have" in found
    train(config("grpo", trl=rewards({own + name: {"missing": 1}})), dry_run=True)


@pytest.mark.parametrize("name", ["takes_all", "with_default", "decorated", "twice", "Scored"])
def test_a_function_whose_source_does_not_say_what_it_needs_is_left_to_the_run(config, own, name):
    train(config("grpo", trl=rewards(own + name)), dry_run=True)


@pytest.mark.parametrize("roles", [[], ["tool"]])
def test_roles_that_no_message_has_are_refused_by_the_plan(config, roles):
    assert "no message of any row is trained on: see roles_to_train" in refused(
        config("sft", {"roles_to_train": roles})
    )
    train(config("sft", {"roles_to_train": roles, "train_on_eos": "all"}), dry_run=True)
    train(config("sft", {"roles_to_train": ["user"]}), dry_run=True)


def test_rows_of_text_have_no_assistant_turns(config, tmp_path):
    file = tmp_path / "text.jsonl"
    file.write_text('{"text": "red"}\n' * 8)
    entry = {"path": str(file), "type": "completion"}
    words = "assistant_only_loss: the rows of"
    assert words in refused(config("sft", datasets=[entry], assistant_only_loss=True))
    assert words in refused(config("sft", test_datasets=[entry], assistant_only_loss=True))


@pytest.mark.parametrize("label", [True, False])
def test_labels_that_are_all_the_same_are_refused_where_the_plan_has_read_all_rows(
    config, tmp_path, label
):
    file = tmp_path / "rows.jsonl"
    rows = [{**row, "label": label} for row in tiny.unpaired_rows()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = refused(config("kto", {"path": str(file)}))
    assert f"kto: every label is {str(label).lower()}; it learns from the difference" in said


def test_names_of_modules_that_only_some_models_have_are_a_note(config):
    keys = {**LORA, "lora_target_modules": ["q_proj", "c_attn"]}
    notes = train(config("sft", **keys), dry_run=True).plan.notes
    said = "lora_target_modules: c_attn change nothing: base_model has no such module"
    assert said in notes


@pytest.mark.parametrize(
    "keys",
    [
        {"lora_target_modules": ["q_proj", "v_proj"]},
        {"lora_target_modules": ["self_attn.q_proj"]},
        {"lora_target_modules": r".*\.layers\.0\..*_proj"},
        {"lora_target_modules": "all-linear"},
        {"lora_target_linear": True, "lora_modules_to_save": ["embed_tokens", "lm_head"]},
    ],
)
def test_names_that_a_model_has_pass(config, keys):
    overrides = {"rope_theta": 2.0, "rms_norm_eps": 1e-5, "hidden_size": 64, "use_cache": False}
    train(config("sft", **LORA, **keys, overrides_of_model_config=overrides), dry_run=True)


def test_names_are_not_judged_where_weights_are_renamed_when_they_are_loaded(
    config, model, tmp_path
):
    import shutil

    import safetensors.numpy

    mixture = Path(shutil.copytree(model, tmp_path / "model"))
    tensors = safetensors.numpy.load_file(mixture / "model.safetensors")
    renamed = {name.replace("mlp.", "mlp.experts.0."): array for name, array in tensors.items()}
    safetensors.numpy.save_file(renamed, mixture / "model.safetensors")
    keys = {**LORA, "base_model": str(mixture), "lora_target_modules": ["gate_up_proj"]}
    train(config("sft", **keys), dry_run=True)


@pytest.mark.parametrize(
    ("keys", "name", "value"),
    [
        ({"trainer_args": {"packing": True}}, "sample_packing", True),
        ({"trainer_args": {"max_length": 99}}, "sequence_len", 99),
        ({"trainer_args": {"loss_type": ["ipo"]}}, "loss_type", ["ipo"]),
        ({"trainer_args": {"warmup_steps": 3}}, "warmup_steps", 3),
        ({"trainer_args": {"warmup_steps": 3}}, "warmup_ratio", None),
        ({"trainer_args": {"r": 3}}, "lora_r", None),
        ({"trainer_args": {"seed": 3}, "seed": 4}, "seed", 4),
    ],
)
def test_a_rule_about_a_key_sees_what_trainer_args_set(keys, name, value):
    assert planning.load(keys).get(name) == value
