"""The online methods train from configuration keys, and without features they are TRL's own."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("trl")

import online_runs as online
import tiny_training as tiny

from fmtkit.core.errors import OptionError
from fmtkit.training.planning import plan as planning

METHODS = ["grpo", "gdpo", "rloo", "online_dpo"]
GRPO_LOSSES = ["grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo"]


def check(folder: Path, logs: list[dict], adapter: dict) -> None:
    assert len(logs) == 3
    assert all(math.isfinite(log["loss"]) for log in logs)
    saved = "adapter_model.safetensors" if adapter else "model.safetensors"
    assert (folder / "model" / saved).exists()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_three_steps(method, model, tmp_path):
    check(tmp_path, online.steps(online.make_job(tmp_path, model, method)), {})


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains_an_adapter(method, model, tmp_path):
    check(
        tmp_path, online.steps(online.make_job(tmp_path, model, method, online.LORA)), online.LORA
    )


@pytest.mark.slow
@pytest.mark.parametrize("loss", GRPO_LOSSES)
def test_grpo_computes_every_loss(loss, model, tmp_path):
    level = "sequence" if loss == "luspo" else "token"
    work = online.make_job(
        tmp_path, model, loss_type=loss, importance_sampling_level=level, num_iterations=2
    )
    check(tmp_path, online.steps(work), {})


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"importance_sampling_level": "sequence", "loss_type": "grpo"},
        {"scale_rewards": "batch"},
        {"scale_rewards": False},
        {"off_policy_mask_threshold": 0.5, "num_iterations": 2},
        {"beta": 0.04},
        {"beta": 0.04, "sync_ref_model": True, "ref_model_sync_steps": 1},
        {"mask_truncated_completions": True},
        {"reward_funcs": ["rewards.length", "rewards.slow_length"], "reward_weights": [1.0, 0.5]},
    ],
    ids=str,
)
def test_grpo_takes_the_keys_of_trl(keys, model, tmp_path):
    check(tmp_path, online.steps(online.make_job(tmp_path, model, **keys)), {})


def with_template(work, text: str):
    return replace(work, template_text=text)


def known_template() -> str:
    import trl

    folder = Path(trl.__file__).parent / "chat_templates"
    return (folder / "qwen3.jinja").read_text(encoding="utf-8")


@pytest.mark.slow
def test_grpo_trains_with_tools(model, tmp_path):
    keys = {"rl": "grpo", "chat_template": "qwen3", "trl": {"tools": ["rewards.add"]}}
    named = planning.plan(keys, partial=True).template_text()
    work = online.make_job(tmp_path, model, tools=["rewards.add"])
    logs = online.steps(with_template(work, named))
    check(tmp_path, logs, {})
    assert "tools/call_frequency" in logs[0]


def test_a_template_without_tool_calls_is_refused_before_the_model_is_loaded(model, tmp_path):
    work = online.make_job(tmp_path, model, tools=["rewards.add"])
    with pytest.raises(OptionError, match=r"trl.tools: the chat template cannot write tool calls"):
        online.trainer_of(work)
    unknown = with_template(work, known_template() + "{# changed #}")
    with pytest.raises(OptionError, match="TRL does not know how to read tool calls"):
        online.trainer_of(unknown)


def by_hand(method: str, model: str, folder: Path, **values):
    """Make the trainer that a user would write for the same run, with TRL alone."""
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = tiny.TEMPLATE
    names = {"rloo": (trl.RLOOTrainer, trl.RLOOConfig)}
    trainer_class, config_class = names.get(method, (trl.GRPOTrainer, trl.GRPOConfig))
    arguments = config_class(
        output_dir=str(folder / "by_hand"),
        max_steps=3,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=8,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        **tiny.ALL_ACTIVATIONS,
        model_init_kwargs={"dtype": "float32"},
        report_to="none",
        disable_tqdm=True,
        **values,
    )
    return trainer_class(
        model=model,
        args=arguments,
        reward_funcs=[lambda completions, **_: [len(c[-1]["content"]) / 100 for c in completions]],
        train_dataset=Dataset.from_list(tiny.prompt_rows()),
        processing_class=tokenizer,
    )


@pytest.mark.parametrize(
    ("method", "keys"),
    [
        ("grpo", {"num_iterations": 2, "beta": 0.04}),
        ("gdpo", {"multi_objective_aggregation": "normalize_then_sum"}),
        ("rloo", {}),
    ],
)
def test_losses_and_rewards_equal_those_of_trl_by_hand(method, keys, model, tmp_path):
    ours = online.steps(online.make_job(tmp_path, model, method, **keys))
    trainer = by_hand(method, model, tmp_path, **keys)
    trainer.train()
    theirs = [log for log in trainer.state.log_history if "loss" in log]
    assert len(theirs) == 3
    for mine, log in zip(ours, theirs, strict=True):
        compared = {k: v for k, v in log.items() if "lambda" not in k and k != "step_time"}
        assert {k: mine[k] for k in compared} == pytest.approx(compared, abs=1e-7, rel=0)
