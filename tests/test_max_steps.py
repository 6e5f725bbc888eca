"""Runs of a few steps convert and tokenize no more than their steps draw, and train on the same rows."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("trl")

import pyarrow.parquet as pq
import tiny_training as tiny

from fmtkit.training.building import build
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.building.on_demand import RowsOnDemand
from fmtkit.training.data import datasets
from fmtkit.training.planning import plan as planning
from fmtkit.training.planning.job import Source
from fmtkit.training.planning.max_steps import few_steps
from fmtkit.training.run import process

ROWS = 60


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    process.quiet()
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def source(tmp_path):
    """Return a file of conversations; every fourth line is broken."""
    rows = [
        {"messages": [turn("user", f"{number} red"), turn("assistant", f"blue {number}")]}
        for number in range(ROWS)
    ]
    lines = [json.dumps(row) if number % 4 else "{" for number, row in enumerate(rows)]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def batches(trainer) -> list[dict]:
    """Return the values of the batches that the steps take."""
    taken = trainer.args.max_steps * trainer.args.gradient_accumulation_steps
    loader = iter(trainer.get_train_dataloader())
    return [{n: v.tolist() for n, v in next(loader).items()} for _ in range(taken)]


def job_of(folder, model, method, table, keys, **more):
    """Return a job over so many rows that those that are not drawn need not be tokenized."""
    work = tiny.make_job(folder, model, method, table, {"max_steps": 1, **keys}, **more)
    rows = tiny.ROWS[table]() * 30
    file = tiny.write_table(table, folder / "rows.parquet", rows, **more)
    assert len(rows) >= work.on_demand_from
    return replace(work, train=(Source((str(file),)),))


def both_ways(work) -> list:
    """Return the batches of a job that prepares rows on demand, and of one that prepares all."""
    found = []
    for job in (work, replace(work, on_demand_from=None)):
        trainer = build.make_trainer(job, build.parts_of(job, []))
        assert isinstance(trainer.train_dataset, RowsOnDemand) is (job is work)
        found.append((len(trainer.train_dataset), batches(trainer)))
    return found


@pytest.mark.parametrize(
    ("method", "table", "keys"),
    [
        ("sft", "Conversation", {}),
        ("sft", "Conversation", {"curriculum_sampling": True, "gradient_accumulation_steps": 2}),
        ("sft", "Completion", {"train_on_inputs": True}),
        ("dpo", "Preference", {}),
        ("reward", "Preference", {"seed": 3}),
    ],
)
@pytest.mark.parametrize("wide", [False, True], ids=["narrow", "wide"])
def test_steps_take_the_same_batches_as_if_all_rows_were_tokenized(
    method, table, keys, wide, model, tmp_path
):
    one, other = both_ways(job_of(tmp_path, model, method, table, keys, wide=wide))
    assert one == other


def test_rows_that_fmtkit_tokenizes_wait_for_their_step_too(model, tmp_path):
    unmarked = tiny.TEMPLATE.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    work = job_of(tmp_path, model, "sft", "Conversation", {})
    one, other = both_ways(replace(work, template_text=unmarked))
    assert one == other


def test_a_row_that_the_trainer_leaves_out_ends_the_run(model, tmp_path):
    work = job_of(tmp_path, model, "sft", "Conversation", {})
    trainer = build.make_trainer(work, build.parts_of(work, []))
    trainer.train_dataset.prepare = lambda part: part.select([])
    with pytest.raises(TrainingError, match="no token to train on"):
        trainer.train_dataset[0]


def plan_of(source, model, **keys):
    return planning.plan(
        {
            "base_model": model,
            "output_dir": str(source.parent / "run"),
            "datasets": [{"path": str(source), "type": "openai"}],
            "chat_template": "chatml",
            "sequence_len": 64,
            "max_steps": 2,
            "micro_batch_size": 3,
            **keys,
        }
    )


@pytest.mark.parametrize(
    ("keys", "tokenized", "converted"),
    [
        ({"curriculum_sampling": True}, None, None),
        ({}, None, "the sampler draws among all rows"),
        ({"curriculum_sampling": True, "val_set_size": 4}, None, "val_set_size counts all rows"),
        ({"curriculum_sampling": True, "save_strategy": "epoch"}, None, "follows epochs"),
        ({"sample_packing": True}, "packing joins rows", "packing joins rows"),
        ({"group_by_length": True}, "by the lengths of all rows", "by the lengths of all rows"),
        ({"num_processes": 2}, "several processes", "several processes"),
        ({"excess_length_strategy": "truncate"}, "cuts or drops rows", "cuts or drops rows"),
        ({"max_steps": 60, "curriculum_sampling": True}, "more than 50 batches", "more than 50"),
        ({"dataloader_num_workers": 1}, "would each prepare", "would each prepare"),
    ],
)
def test_the_plan_says_what_max_steps_limits_and_why_not_more(
    keys, tokenized, converted, source, model
):
    plan = plan_of(source, model, **keys)
    limits = few_steps(plan)
    assert limits.rows == (limits.steps + 1) * 3
    for said, wanted in ((limits.all_tokenized, tokenized), (limits.all_converted, converted)):
        assert (said is None) if wanted is None else (wanted in said)
    (shown,) = (line for line in plan.lines() if line[0].startswith("rows of "))
    assert (converted or "in their order") in shown[2]


def test_a_plan_without_max_steps_limits_nothing(source, model):
    assert few_steps(plan_of(source, model, max_steps=None)) is None


def converted(plan) -> list:
    (train,), _ = datasets.prepare(plan, tiny.TEMPLATE)
    return [row for file in train.files for row in pq.read_table(file).to_pylist()]


def test_rows_taken_in_their_order_are_converted_as_far_as_the_steps_reach(source, model):
    whole = converted(plan_of(source, model))
    first = converted(plan_of(source, model, curriculum_sampling=True))
    assert len(whole) == ROWS * 3 // 4
    assert 9 <= len(first) < len(whole)
    assert first == whole[: len(first)]
    again = plan_of(source, model, curriculum_sampling=True, max_steps=500)
    assert converted(again) == whole


def test_bad_rows_at_the_beginning_cost_no_step_a_row(source, model):
    good = source.read_text(encoding="utf-8")
    source.write_text("{\n" * 40 + good, encoding="utf-8")
    first = converted(plan_of(source, model, curriculum_sampling=True))
    assert len(first) >= 9
