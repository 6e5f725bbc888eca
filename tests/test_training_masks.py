"""What `fmtkit inspect` shows of a row is what the trainer's batch holds: ids, masks and labels."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("trl")

import tiny_training as tiny

from fmtkit import tokens
from fmtkit.rendering import row_templates
from fmtkit.surveying import masks
from fmtkit.surveying.masks import Masking
from fmtkit.tables import TABLES
from fmtkit.training import build, process
from fmtkit.training.job import Job, Source

TABLE = {
    "sft": "Conversation",
    "dpo": "Preference",
    "kto": "Unpaired",
    "orpo": "Preference",
    "reward": "Preference",
}


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "bos"])
def model(request, tmp_path_factory):
    process._quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"), bos=request.param)


def batch_of(work: Job) -> dict:
    """Return all rows of a run as one batch of its trainer."""
    parts = build.parts_of(work, [])
    trainer = build.load_class(parts.runner.build)(work, parts)
    return next(iter(trainer.get_train_dataloader()))


def shown(model: str, table: str, rows: list[dict], method: str) -> list[tuple]:
    """Return ids and trained marks of every sequence, as the survey shows them."""
    tokenizer = tokens.load(model)
    template = row_templates.compile_template(tiny.TEMPLATE, tokenizer)
    found = [
        one
        for row in rows
        for one in masks.mask_row(row, table, tokenizer, template, Masking(method))
    ]
    return [(tuple(one.ids.tolist()), tuple(one.trained.tolist())) for one in found]


def sequences(ids, mask, trained) -> list[tuple]:
    """Return ids and marks of a padded batch without its padding."""
    out = []
    for row, keep, marks in zip(ids.tolist(), mask.tolist(), trained.tolist(), strict=True):
        kept = [(i, bool(t)) for i, k, t in zip(row, keep, marks, strict=True) if k]
        out.append((tuple(i for i, _ in kept), tuple(t for _, t in kept)))
    return out


def seen(method: str, batch: dict) -> list[tuple]:
    """Return ids and trained marks of every sequence of a batch."""
    if method == "orpo":
        sides = [f"{side}_" for side in ("chosen", "rejected")]
        return [
            sequence
            for s in sides
            for sequence in sequences(
                batch[f"{s}input_ids"], batch[f"{s}attention_mask"], batch[f"{s}labels"] != -100
            )
        ]
    if method == "sft":
        return sequences(batch["input_ids"], batch["attention_mask"], batch["labels"] != -100)
    return sequences(batch["input_ids"], batch["attention_mask"], batch["completion_mask"])


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "orpo"])
def test_a_batch_is_what_inspect_shows(method, model, tmp_path):
    rows = tiny.ROWS[TABLE[method]]()
    work = tiny.make_job(
        tmp_path, model, method, TABLE[method], {"micro_batch_size": len(rows), "max_steps": 1}
    )
    assert sorted(seen(method, batch_of(work))) == sorted(shown(model, TABLE[method], rows, method))


def test_a_reward_model_scores_the_ids_that_inspect_shows(model, tmp_path):
    rows = tiny.preference_rows()
    work = tiny.make_job(tmp_path, model, "reward", "Preference", {"micro_batch_size": len(rows)})
    batch = batch_of(work)
    pairs = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
    ids = [tuple(i for i, k in zip(row, keep, strict=True) if k) for row, keep in pairs]
    assert sorted(ids) == sorted(i for i, _ in shown(model, "Preference", rows, "reward"))


CHAT = [
    {"role": "user", "content": "red"},
    {"role": "assistant", "content": "big apple", "train": False},
    {"role": "user", "content": "blue"},
    {"role": "assistant", "content": "warm river", "train": True},
]


def chat_job(folder: Path, model: str, dialogs: list[list[dict]], **keys) -> Job:
    schema = TABLES["Conversation"].schema(frozenset({"messages"}), wide=True, text=False)
    rows = [{"messages": dialog} for dialog in dialogs]
    path = folder / "wide.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    work = tiny.make_job(folder, model, "sft", "Conversation", {"max_steps": 1, **keys})
    return Job(**{**work.__dict__, "train": (Source((str(path),)),)})


def learnt(model: str, batch: dict) -> list[str]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return sorted(
        tokenizer.decode([i for i in row if i != -100]) for row in batch["labels"].tolist()
    )


def test_a_message_that_is_not_to_be_learnt_has_no_labels(model, tmp_path):
    both = [{**message, "train": None} for message in CHAT]
    batch = batch_of(chat_job(tmp_path, model, [CHAT, both]))
    assert learnt(model, batch) == [
        "big apple<|im_end|>warm river<|im_end|>",
        "warm river<|im_end|>",
    ]
    # What the model reads is the same for both.
    assert batch["input_ids"][0].tolist() == batch["input_ids"][1].tolist()


def test_a_message_that_is_not_to_be_learnt_is_none_among_all_inputs(model, tmp_path):
    keys = {"train_on_inputs": True, "micro_batch_size": 1}
    (text,) = learnt(model, batch_of(chat_job(tmp_path, model, [CHAT], **keys)))
    assert "big apple" not in text
    assert "red<|im_end|>" in text


def test_rows_without_such_a_message_are_left_to_the_trainer(model, tmp_path):
    both = [{**message, "train": None} for message in CHAT]
    parts = build.parts_of(chat_job(tmp_path, model, [both]), [])
    assert parts.train.column_names == ["messages"]


@pytest.mark.parametrize("method", ["sft", "dpo", "kto", "orpo", "reward"])
def test_variables_reach_the_template(method, model, tmp_path):
    template = "{{ mood }}" + tiny.TEMPLATE
    keys = {"chat_template_kwargs": {"mood": "warm"}, "micro_batch_size": 2}
    work = tiny.make_job(tmp_path, model, method, TABLE[method], keys)
    batch = batch_of(Job(**{**work.__dict__, "template_text": template}))
    name = "chosen_input_ids" if method == "orpo" else "input_ids"
    first = tokens.load(model).encode("warm").ids
    for row, keep in zip(
        batch[name].tolist(), batch[name.replace("input_ids", "attention_mask")], strict=True
    ):
        assert [i for i, k in zip(row, keep, strict=True) if k][: len(first)] == first
