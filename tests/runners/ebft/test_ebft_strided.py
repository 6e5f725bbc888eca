"""The trainer of strided EBFT: batches, losses, gradients, what it refuses, and short runs."""

import copy
import math
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from ebft_toys import lora, tiny_model, word_tokenizer
from torch import Tensor, tensor
from transformers import MistralConfig, MistralForCausalLM, TrainingArguments
from versions import logits_of_each_row

from fmtkit.core.errors import ColumnMismatchError, FmtkitError, OptionError
from fmtkit.counting.anchors import AnchorRule
from fmtkit.runners.ebft.feature_network import adapter_network, copied_network
from fmtkit.runners.ebft.settings import EbftSettings, read_settings
from fmtkit.runners.ebft.strided import StridedTrainer
from fmtkit.runners.ebft.strided_batch import StridedCollator, survey_rows
from fmtkit.runners.ebft.strided_rollout import roll_out

pytestmark = logits_of_each_row
SMALL = {
    "mode": "strided",
    "stride": 4,
    "context_length": 4,
    "generate_max_len": 3,
    "n_samples_per_prompt": 3,
    "feature_layers": [0.5, 1.0],
}


def settings(**values: object) -> EbftSettings:
    return read_settings({**SMALL, **values})


def documents(count: int = 8, length: int = 16, seed: int = 0) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(3, 48, (count, length), generator=generator).tolist()
    return [{"input_ids": row, "labels": row, "prompt_length": 0} for row in rows]


def arguments(path: Path, **values: object) -> TrainingArguments:
    defaults = {
        "output_dir": str(path),
        "use_cpu": True,
        "report_to": [],
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "max_steps": 3,
        "remove_unused_columns": False,
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return TrainingArguments(**(defaults | values))


def make_trainer(
    path: Path, model=None, rows=None, chosen=None, **values: object
) -> StridedTrainer:
    model = tiny_model() if model is None else model
    make_network = adapter_network if hasattr(model, "peft_config") else copied_network
    return StridedTrainer(
        model=model,
        args=arguments(path, **values),
        train_dataset=Dataset.from_list(documents() if rows is None else rows),
        processing_class=word_tokenizer(),
        settings=chosen or settings(),
        network=make_network(model),
    )


# --- batches ------------------------------------------------------------------------------------


def test_a_batch_is_as_wide_as_its_longest_real_row() -> None:
    rows = [
        {"input_ids": [5, 6, 7, 8, 9, 0, 0, 0], "attention_mask": [1, 1, 1, 1, 1, 0, 0, 0]},
        {"input_ids": [5, 6, 7, 0, 0, 0, 0, 0], "attention_mask": [1, 1, 1, 0, 0, 0, 0, 0]},
    ]
    batch = StridedCollator(AnchorRule(2, 2, 2))(rows)
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["labels"].eq(-100).all()
    assert batch["anchors"].tolist() == [[2], [1]]
    assert batch["valid"].tolist() == [[True], [False]]


def test_rows_are_padded_on_the_right() -> None:
    batch = StridedCollator(AnchorRule(2, 2, 2))([{"input_ids": [5]}, {"input_ids": [5, 6]}])
    assert batch["input_ids"].tolist() == [[5, 0], [5, 6]]


@pytest.mark.parametrize(
    ("row", "anchors"),
    [
        ({"prompt_length": 5}, [5, 7]),
        ({"labels": [-100] * 6 + [1] * 4}, [6, 8]),
        ({"labels": [-100] * 10}, [1]),
        ({}, [2, 4, 6, 8]),
        ({"prompt_length": 2, "anchor_mask": [0, 0, 1, 1, 0, 0, 1, 1, 1, 1]}, [2, 6, 8]),
        ({"prompt_length": 3, "labels": [-100] * 9 + [1]}, [3, 5, 7]),
    ],
)
def test_anchors_follow_the_columns_that_are_there(row, anchors) -> None:
    batch = StridedCollator(AnchorRule(2, 2, 2))([{"input_ids": list(range(10)), **row}])
    assert batch["anchors"].tolist() == [anchors]


def test_padding_on_the_left_is_refused_with_the_row() -> None:
    rows = [{"input_ids": [1, 2]}, {"input_ids": [0, 1], "attention_mask": [0, 1]}]
    with pytest.raises(ColumnMismatchError, match="row 1: attention_mask has padding before"):
        StridedCollator(AnchorRule())(rows)


def test_rows_that_hold_no_block_are_counted() -> None:
    rows = documents(1, 7) + documents(1, 6) + documents(1, 9)
    assert survey_rows(AnchorRule(4, 4, 3), rows) == (9, [1])


def test_data_without_a_single_block_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"the longest has 6 tokens.*generate_max_len \(3\)"):
        make_trainer(tmp_path, rows=documents(2, 6))


def test_some_rows_without_a_block_are_named(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"1 of 2 rows are too short.*the first is row 1"):
        make_trainer(tmp_path, rows=documents(1, 7) + documents(1, 6))


# --- losses and gradients -----------------------------------------------------------------------


def gradients(model) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def loss_of(trainer: StridedTrainer, rows: list[dict], seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return trainer.compute_loss(trainer.model, trainer.data_collator(rows))


def test_the_loss_equals_one_computed_block_by_block(tmp_path: Path) -> None:
    chosen = settings(ce_coef=0.3, rl_coef=0.7)
    trainer = make_trainer(tmp_path, chosen=chosen)
    rows = documents(2)
    rows[1]["labels"] = [-100] * 9 + rows[1]["labels"][9:]
    batch = trainer.data_collator(rows)
    torch.manual_seed(0)
    rollout = roll_out(trainer.model, trainer.network, batch, chosen)
    total, count = 0.0, 0
    for row in range(2):
        for block in range(rollout.layout.blocks):
            anchor = int(rollout.layout.anchors[row, block])
            tokens = rollout.blocks[row, :, block]
            logits = trainer.model(
                torch.cat([batch["input_ids"][row, :anchor], tokens])[None]
            ).logits
            scores = torch.log_softmax(logits[0, anchor - 1 : -1] / 0.6, -1)
            picked = scores.gather(-1, tokens[:, None]).sum()
            total = total - picked * rollout.advantages[row, block]
            count += len(tokens)
    logits = trainer.model(batch["input_ids"]).logits[:, :-1]
    ce = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), ignore_index=-100
    )
    expected = 0.7 * total / count + 0.3 * ce
    torch.testing.assert_close(loss_of(trainer, rows), expected, atol=1e-5, rtol=0)


def test_a_padded_batch_has_the_gradients_of_an_unpadded_one(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, chosen=settings(ce_coef=0.1, temperature=0.0))
    rows = documents(2)
    padded = [
        {
            "input_ids": row["input_ids"] + [0] * 5,
            "attention_mask": [1] * 16 + [0] * 5,
            "labels": row["labels"] + [-100] * 5,
            "prompt_length": 0,
        }
        for row in rows
    ]
    mixed = [*rows, {**padded[0], "input_ids": rows[0]["input_ids"] * 2}]
    mixed[2] = {"input_ids": rows[0]["input_ids"] * 2, "labels": [-100] * 32, "prompt_length": 32}
    loss_of(trainer, rows).backward()
    expected = gradients(trainer.model)
    for batch in (padded, mixed):
        trainer.model.zero_grad()
        loss_of(trainer, batch).backward()
        for name, grad in gradients(trainer.model).items():
            torch.testing.assert_close(grad, expected[name], atol=1e-5, rtol=1e-4)


def test_accumulation_leaves_the_gradients_equal(tmp_path: Path) -> None:
    def trained(batch: int, accumulation: int) -> dict[str, Tensor]:
        model = tiny_model()
        trainer = make_trainer(
            tmp_path,
            model,
            rows=documents(4),
            chosen=settings(ce_coef=0.2, temperature=0.0, n_samples_per_prompt=2),
            per_device_train_batch_size=batch,
            gradient_accumulation_steps=accumulation,
            max_steps=1,
            optim="sgd",
            learning_rate=0.5,
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
        )
        trainer.train()
        return dict(model.named_parameters())

    whole, parts = trained(4, 1), trained(1, 4)
    start = dict(tiny_model().named_parameters())
    assert any(not torch.equal(start[name], whole[name]) for name in start)
    for name in whole:
        torch.testing.assert_close(whole[name], parts[name], atol=1e-5, rtol=0)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_leaves_the_gradients_equal(tmp_path: Path, reentrant: bool) -> None:
    rows = documents(2)
    plain = make_trainer(tmp_path)
    plain.model.train()
    loss_of(plain, rows).backward()
    saving = make_trainer(tmp_path)
    saving.model.train()
    saving.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    saving.model.enable_input_require_grads()
    loss_of(saving, rows).backward()
    expected = gradients(plain.model)
    for name, grad in gradients(saving.model).items():
        torch.testing.assert_close(grad, expected[name], atol=1e-6, rtol=0)


def test_dropout_is_off_while_sampling_and_on_again_after(tmp_path: Path) -> None:
    model = tiny_model(attention_dropout=0.5)
    trainer = make_trainer(tmp_path, model, chosen=settings(temperature=0.0))
    model.train()
    batch = trainer.data_collator(documents(2))
    first = roll_out(model, trainer.network, batch, trainer.settings)
    second = roll_out(model, trainer.network, batch, trainer.settings)
    assert torch.equal(first.blocks, second.blocks)
    assert model.training


def test_a_batch_without_an_anchor_teaches_by_cross_entropy_alone(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, chosen=settings(ce_coef=0.5))
    short = documents(2, 5)
    ids = tensor([row["input_ids"] for row in short])
    logits = trainer.model(ids).logits[:, :-1]
    expected = 0.5 * torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(loss_of(trainer, short), expected)
    silent = make_trainer(tmp_path)
    loss = loss_of(silent, short)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in silent.model.parameters())


@pytest.mark.parametrize("estimator", ["rloo", "group_norm"])
def test_the_advantages_of_an_anchor_sum_to_nothing(tmp_path: Path, estimator: str) -> None:
    chosen = settings(advantage_estimator=estimator)
    trainer = make_trainer(tmp_path, chosen=chosen)
    batch = trainer.data_collator([*documents(1), *documents(1, 9)])
    rollout = roll_out(trainer.model, trainer.network, batch, chosen)
    by_anchor = rollout.advantages.view(2, 3, -1)
    torch.testing.assert_close(by_anchor.sum(1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    assert not rollout.advantages[~rollout.valid].any()
    assert rollout.valid.sum() == 3 * (3 + 1)


@pytest.mark.parametrize("method", ["last_token", "mean_pooling", "completion_mean", "concat"])
@pytest.mark.parametrize("whitening", [False, True])
def test_blocks_equal_to_the_document_align_perfectly(tmp_path, method, whitening) -> None:
    from fmtkit.runners.ebft.block_layout import BlockLayout
    from fmtkit.runners.ebft.strided_rollout import score_blocks

    chosen = settings(embed_method=method, use_whitening=whitening, n_samples_per_prompt=2)
    trainer = make_trainer(tmp_path, chosen=chosen)
    batch = trainer.data_collator(documents(2))
    layout = BlockLayout(batch["anchors"].repeat(1, 2), 16, 3)
    windows = batch["input_ids"].gather(1, layout.windows().flatten(1)).view(2, -1, 3)
    blocks = windows.transpose(1, 2).clone()
    out = score_blocks(trainer.network, batch["input_ids"], blocks, layout, chosen)
    one = torch.ones_like(out.alignment)
    torch.testing.assert_close(out.alignment, one, atol=1e-4, rtol=0)
    likeness = one / 2 if whitening else one
    torch.testing.assert_close(out.diversity, likeness, atol=1e-4, rtol=0)


# --- refusals -----------------------------------------------------------------------------------


def test_features_that_are_no_number_stop_the_run(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    broken = tiny_model()
    broken.model.layers[0].mlp.down_proj.weight.data.fill_(math.nan)
    trainer.network = copied_network(broken)
    with pytest.raises(FmtkitError, match="row 0 of the batch: the features hold NaN"):
        loss_of(trainer, documents(2))


def test_dropping_unused_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="remove_unused_columns: false"):
        make_trainer(tmp_path, remove_unused_columns=True)


def test_a_window_shorter_than_the_rows_is_refused(tmp_path: Path) -> None:
    config = MistralConfig(
        vocab_size=48,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        sliding_window=16,
    )
    with pytest.raises(OptionError, match="sliding window"):
        make_trainer(tmp_path, MistralForCausalLM(config))


# --- runs ---------------------------------------------------------------------------------------

LOGGED = {
    "loss",
    "ebft/rl_loss",
    "ebft/cfm_loss",
    "ebft/mean_reward",
    "ebft/alignment",
    "ebft/diversity",
    "ebft/num_blocks",
    "ebft/advantages_std",
}


@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_three_steps_train_and_log(tmp_path: Path, adapter: bool, accumulation: int) -> None:
    model = lora(tiny_model()) if adapter else tiny_model()
    before = copy.deepcopy(model.state_dict())
    trainer = make_trainer(
        tmp_path,
        model,
        chosen=settings(ce_coef=0.03, use_whitening=True),
        gradient_accumulation_steps=accumulation,
        gradient_checkpointing=accumulation == 2,
    )
    trainer.train()
    steps = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert len(steps) == 3
    assert set(steps[0]) >= LOGGED | {"ebft/ce_loss"}
    assert all(math.isfinite(entry["loss"]) for entry in steps)
    assert steps[0]["ebft/num_blocks"] == 2 * 3 * 3
    changed = {n for n, p in model.state_dict().items() if not torch.equal(p, before[n])}
    assert changed
    assert not adapter or all("lora" in name for name in changed)


def test_evaluation_samples_nothing_and_reports_cross_entropy(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    rows = documents(3, seed=4)
    result = trainer.evaluate(Dataset.from_list(rows))
    state = torch.random.get_rng_state()
    trainer.prediction_step(trainer.model, trainer.data_collator(rows), prediction_loss_only=True)
    assert torch.equal(torch.random.get_rng_state(), state)
    ids = tensor([row["input_ids"] for row in rows])
    logits = trainer.model(ids).logits[:, :-1]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    assert result["eval_loss"] == pytest.approx(expected.item(), abs=1e-4)
    assert not any(name.startswith("ebft/") for name in result)


@pytest.mark.parametrize("adapter", [False, True])
def test_features_stay_bit_identical_while_the_policy_trains(tmp_path: Path, adapter: bool) -> None:
    model = lora(tiny_model()) if adapter else tiny_model()
    trainer = make_trainer(tmp_path, model, learning_rate=0.1)
    ids = tensor([row["input_ids"] for row in documents(2)])

    def features() -> Tensor:
        with trainer.network() as body:
            return body(input_ids=ids, use_cache=False).last_hidden_state.clone()

    before, policy = features(), model(ids).logits.detach().clone()
    trainer.train()
    model.eval()
    assert torch.equal(features(), before)
    assert not torch.allclose(model(ids).logits, policy)
