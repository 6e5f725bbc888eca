"""Every runner trains; the model sees what the template says; nothing is added to TRL."""

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit.core.runner import find
from fmtkit.training.building import build
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.config.class_arguments import fields_of
from fmtkit.training.data import rows
from fmtkit.training.planning.job import Job
from fmtkit.training.run import process

RUNS = {
    "sft": "Conversation",
    "dpo": "Preference",
    "ipo": "Preference",
    "kto": "Unpaired",
    "orpo": "Preference",
    "cpo": "Preference",
    "simpo": "Preference",
    "alphapo": "Preference",
    "reward": "Preference",
    "prm": "Stepwise",
    "distillation": "Prompt",
    "gkd": "Conversation",
}
LORA = {"adapter": "lora", "lora_r": 4, "lora_alpha": 8, "lora_target_linear": True}
FAST_WITH_LORA = {"dpo", "orpo", "reward", "prm"}


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("teacher"), seed=1)


@pytest.fixture(scope="session")
def model_with_bos(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("bos"), bos=True)


@pytest.fixture(autouse=True)
def quiet():
    process.quiet()


def trained(work: Job) -> list[dict]:
    """Run a job in this process and return its lines of metrics."""
    assert process.train(work) == 0
    lines = (Path(work.run) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if "loss" in json.loads(line)]


def losses(work: Job) -> list[float]:
    return [line["loss"] for line in trained(work)]


def weights(folder: str | Path) -> dict:
    from safetensors.torch import load_file

    return {k: v for file in Path(folder).glob("*.safetensors") for k, v in load_file(file).items()}


def extra(method: str, teacher: str) -> dict:
    if method == "distillation":
        return {"teacher_model": teacher, "trainer_args": {"max_completion_length": 8}}
    return {"teacher_model": teacher, "max_new_tokens": 8} if method == "gkd" else {}


def check_run(method: str, model: str, teacher: str, folder: Path, adapter: dict) -> None:
    work = tiny.make_job(folder, model, method, RUNS[method], {**extra(method, teacher), **adapter})
    values = losses(work)
    assert len(values) == 3
    assert all(math.isfinite(value) for value in values)
    after = weights(folder / "model")
    if adapter:
        # An adapter starts with B = 0, so that any other value was learnt.
        assert any(v.abs().max() > 0 for k, v in after.items() if "lora_B" in k)
        return
    before = weights(model)
    shared = after.keys() & before.keys()
    assert shared
    assert any(not after[name].equal(before[name]) for name in shared)


@pytest.mark.parametrize("method", RUNS)
def test_a_runner_trains_three_steps(method, model, teacher, tmp_path):
    check_run(method, model, teacher, tmp_path, LORA if method in FAST_WITH_LORA else {})


@pytest.mark.slow
@pytest.mark.parametrize("method", RUNS)
def test_a_runner_trains_the_other_way_too(method, model, teacher, tmp_path):
    check_run(method, model, teacher, tmp_path, {} if method in FAST_WITH_LORA else LORA)


def test_sft_learns_completions(model, tmp_path):
    assert len(losses(tiny.make_job(tmp_path, model, "sft", "Completion"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("loss", fields_of("trl:DPOConfig").fields["loss_type"].choices)
def test_dpo_computes_every_loss(loss, model, tmp_path):
    more = {"loss_type": loss} | ({"label_smoothing": 0.1} if loss == "exo_pair" else {})
    values = losses(tiny.make_job(tmp_path, model, "dpo", "Preference", more))
    assert all(math.isfinite(value) for value in values)


def test_dpo_takes_several_losses_label_smoothing_and_a_moving_reference(model, tmp_path):
    more = {
        "loss_type": ["sigmoid", "sft"],
        "loss_weights": [1.0, 0.5],
        "label_smoothing": 0.1,
        "sync_ref_model": True,
        "ref_model_sync_steps": 1,
    }
    values = losses(tiny.make_job(tmp_path, model, "dpo", "Preference", more))
    assert all(math.isfinite(value) for value in values)


def test_an_adapter_may_have_a_reference_model_of_its_own(model, tmp_path):
    work = tiny.make_job(
        tmp_path, model, "dpo", "Preference", {**LORA, "rl_adapter_ref_model": True}
    )
    trainer = build.build_trainer(work, build.parts_of(work, []))
    assert trainer.ref_model is not None
    first = losses(work)[0]
    assert first == pytest.approx(math.log(2), abs=1e-6)


def batch_of(work: Job) -> dict:
    parts = build.parts_of(work, [])
    trainer = build.make_trainer(work, parts)
    trainer.args.train_sampling_strategy = "sequential"
    return {"trainer": trainer, "batch": next(iter(trainer.get_train_dataloader())), "parts": parts}


def rendered(prompt: list[dict], reply: list[dict], bos: str = "") -> tuple[str, str]:
    """Write ChatML by hand: the prompt with its generation prompt, and the reply."""
    turns = "\n".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>" for m in prompt)
    return f"{bos}{turns}\n<|im_start|>assistant\n", f"{reply[0]['content']}<|im_end|>"


def ids_of(tokenizer, prompt: str, reply: str) -> tuple[list[int], list[int]]:
    """Return ids, and labels that are -100 on the prompt."""
    ids = tokenizer(prompt + reply, add_special_tokens=False)["input_ids"]
    start = len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
    return ids, [-100] * start + ids[start:]


def unpadded(ids, mask) -> list[int]:
    return [int(i) for i, m in zip(ids.tolist(), mask.tolist(), strict=True) if m]


def where(labels, mask) -> list[int]:
    return [int(x) for x, m in zip(labels.tolist(), mask.tolist(), strict=True) if m]


@pytest.mark.parametrize("which", ["model", "model_with_bos"])
def test_dpo_sees_one_bos_one_end_of_turn_and_the_reply_as_its_mask(which, request, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, request.getfixturevalue(which), "dpo", "Preference"))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    bos = tokenizer.bos_token or ""
    sides = [(row, side) for side in ("chosen", "rejected") for row in tiny.preference_rows()[:2]]
    for index, (row, side) in enumerate(sides):
        expected, labels = ids_of(tokenizer, *rendered(row["prompt"], row[side], bos))
        mask = batch["attention_mask"][index]
        assert unpadded(batch["input_ids"][index], mask) == expected
        trained = where(batch["completion_mask"][index], mask)
        assert trained == [int(label != -100) for label in labels]
        assert expected.count(tokenizer.eos_token_id) == 2
        assert expected.count(tokenizer.bos_token_id) == (1 if bos else 0)


@pytest.mark.parametrize("method", ["orpo", "cpo", "simpo"])
@pytest.mark.parametrize("which", ["model", "model_with_bos"])
def test_cpo_and_orpo_add_no_token_to_the_rendered_text(method, which, request, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, request.getfixturevalue(which), method, "Preference"))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    for index, row in enumerate(tiny.preference_rows()[:2]):
        for side in ("chosen", "rejected"):
            prompt, reply = rendered(row["prompt"], row[side], tokenizer.bos_token or "")
            expected, labels = ids_of(tokenizer, prompt, reply)
            mask = batch[f"{side}_attention_mask"][index]
            assert unpadded(batch[f"{side}_input_ids"][index], mask) == expected
            assert where(batch[f"{side}_labels"][index], mask) == labels


def test_orpo_ends_a_reply_once_where_the_end_of_text_is_another_token(model, tmp_path):
    more = {"special_tokens": {"eos_token": "<|im_start|>"}}
    found = batch_of(tiny.make_job(tmp_path, model, "orpo", "Preference", more))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    row = tiny.preference_rows()[0]
    expected, _ = ids_of(tokenizer, *rendered(row["prompt"], row["chosen"]))
    mask = batch["chosen_attention_mask"][0]
    assert unpadded(batch["chosen_input_ids"][0], mask) == expected


@pytest.mark.parametrize("table", ["Conversation", "Completion"])
def test_sft_learns_the_reply_with_its_end_and_nothing_else(table, model_with_bos, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, model_with_bos, "sft", table))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    expected = {
        tuple(ids_of(tokenizer, *rendered(r["prompt"], r["chosen"], tokenizer.bos_token))[0]): r
        for r in tiny.preference_rows()
    }
    for index in range(2):
        mask = batch["attention_mask"][index]
        row = expected[tuple(unpadded(batch["input_ids"][index], mask))]
        _, labels = ids_of(tokenizer, *rendered(row["prompt"], row["chosen"], tokenizer.bos_token))
        assert where(batch["labels"][index], mask) == labels


def test_kto_sees_both_labels_in_every_batch(model, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, model, "kto", "Unpaired"))
    for batch in found["trainer"].get_train_dataloader():
        assert sorted(bool(label) for label in batch["label"]) == [False, True]


def test_reward_scores_the_rendered_conversations(model_with_bos, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, model_with_bos, "reward", "Preference"))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    row = tiny.preference_rows()[0]
    texts = [
        "".join(rendered(row["prompt"], row[side], tokenizer.bos_token))
        for side in ("chosen", "rejected")
    ]
    expected = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    seen = [
        unpadded(ids, mask)
        for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
    ]
    assert expected[0] in seen
    assert expected[1] in seen


def test_prm_labels_the_separator_after_each_step(model, tmp_path):
    found = batch_of(tiny.make_job(tmp_path, model, "prm", "Stepwise"))
    tokenizer, batch = found["parts"].tokenizer, found["batch"]
    row = tiny.stepwise_rows()[0]
    ids = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
    labels = [-100] * len(ids)
    for step, label in zip(row["completions"], row["labels"], strict=True):
        inside = tokenizer(step, add_special_tokens=False)["input_ids"]
        line = tokenizer("\n", add_special_tokens=False)["input_ids"]
        ids, labels = ids + inside + line, labels + [-100] * len(inside) + [int(label)]
    mask = batch["attention_mask"][0]
    assert unpadded(batch["input_ids"][0], mask) == ids
    assert where(batch["labels"][0], mask) == labels


def by_hand(method: str, model: str, folder: Path):
    """Make the trainer that a user would write for the same run."""
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = tiny.TEMPLATE
    data = Dataset.from_list(tiny.ROWS[RUNS[method]]())
    classes = {
        "sft": (trl.SFTTrainer, trl.SFTConfig, {"assistant_only_loss": True}),
        "dpo": (trl.DPOTrainer, trl.DPOConfig, {}),
        "kto": (trl.KTOTrainer, trl.KTOConfig, {}),
        "orpo": (ORPOTrainer, ORPOConfig, {"remove_unused_columns": False}),
        "reward": (trl.RewardTrainer, trl.RewardConfig, {}),
    }
    trainer_class, config_class, more = classes[method]
    arguments = config_class(
        output_dir=str(folder / "by_hand"),
        max_steps=3,
        per_device_train_batch_size=2,
        logging_steps=1,
        learning_rate=1e-3,
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        max_length=128,
        **tiny.ALL_ACTIVATIONS,
        model_init_kwargs={"dtype": "float32"},
        report_to="none",
        disable_tqdm=True,
        **more,
    )
    if method == "kto":
        data = rows.interleaved(data, 42)
    return trainer_class(
        model=model, args=arguments, train_dataset=data, processing_class=tokenizer
    )


@pytest.mark.parametrize("method", ["dpo", "kto", "orpo", "sft", "reward"])
def test_losses_equal_those_of_a_script_by_hand(method, model, tmp_path):
    ours = losses(tiny.make_job(tmp_path, model, method, RUNS[method]))
    trainer = by_hand(method, model, tmp_path)
    trainer.train()
    theirs = [log["loss"] for log in trainer.state.log_history if "loss" in log]
    assert len(theirs) == 3
    assert ours == pytest.approx(theirs, abs=1e-6, rel=0)


def test_a_step_has_no_forward_pass_and_no_synchronisation_more_than_by_hand(
    model, tmp_path, monkeypatch
):
    import torch

    counts = {"forward": 0, "item": 0}
    item, embed = torch.Tensor.item, torch.nn.Embedding.forward

    def counted_item(self):
        counts["item"] += 1
        return item(self)

    def counted_embed(self, ids):
        counts["forward"] += 1
        return embed(self, ids)

    monkeypatch.setattr(torch.Tensor, "item", counted_item)
    monkeypatch.setattr(torch.nn.Embedding, "forward", counted_embed)
    by_hand("dpo", model, tmp_path).train()
    theirs = dict(counts)
    counts.update(forward=0, item=0)
    trained(tiny.make_job(tmp_path, model, "dpo", "Preference"))
    assert counts["forward"] == theirs["forward"] > 0
    assert counts["item"] <= theirs["item"]


def test_the_saved_folder_loads_and_carries_the_template_and_a_card(model, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    trained(tiny.make_job(tmp_path, model, "dpo", "Preference"))
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "model").config.vocab_size
    assert AutoTokenizer.from_pretrained(tmp_path / "model").chat_template == tiny.TEMPLATE
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "rows.parquet" in card
    assert "trl" in card


def test_an_adapter_is_merged_where_that_is_asked_for(model, tmp_path):
    from peft import AutoPeftModelForCausalLM
    from transformers import AutoModelForCausalLM

    trained(tiny.make_job(tmp_path, model, "dpo", "Preference", {**LORA, "merge_lora": True}))
    assert AutoPeftModelForCausalLM.from_pretrained(tmp_path / "model").peft_config
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert any(not v.equal(weights(model)[k]) for k, v in merged.state_dict().items())


def test_a_run_without_a_step_is_an_error_and_saves_no_model(model, tmp_path):
    keys = {"micro_batch_size": 64, "trainer_args": {"dataloader_drop_last": True}}
    with pytest.raises(TrainingError, match="no step was made: 16 rows are fewer than one step"):
        process.train(tiny.make_job(tmp_path, model, "dpo", "Preference", keys))
    assert not (tmp_path / "model").exists()


def test_every_runner_file_names_itself():
    folder = Path(__file__).parent.parent / "runners"
    for file in sorted(folder.glob("[!_]*.py")):
        assert find(file.stem).method in {file.stem, "ebft"}
