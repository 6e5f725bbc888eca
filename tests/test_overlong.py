"""Rows that are too long: what `truncate` does for every table and every method, and where it is refused."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("trl")

import runs
import tiny_training as tiny

from fmtkit.core import runner
from fmtkit.core.errors import OptionError
from fmtkit.tokenizers import tokens
from fmtkit.training.building import build
from fmtkit.training.config.problems import RefusalError
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process
from fmtkit.training.run import run as training_run

LONG = " ".join(["red blue green apple"] * 10)
LIMIT = 16
CHAT = [
    [{"role": "user", "content": "red"}, {"role": "assistant", "content": LONG}],
    [{"role": "user", "content": LONG}, {"role": "assistant", "content": "red"}],
    [{"role": "user", "content": "red"}, {"role": "assistant", "content": "blue"}],
]
ROWS = {
    "openai": [{"messages": conversation} for conversation in CHAT],
    "intel": [
        {"question": "red", "chosen": "a " + LONG, "rejected": "big " + LONG},
        {"question": "red", "chosen": LONG + " a", "rejected": LONG + " big"},
        {"question": LONG, "chosen": "a", "rejected": "big"},
        {"question": "red", "chosen": "a", "rejected": "big"},
    ],
    "icr": [],
    "stepwise_supervised": [
        {"prompt": "red", "completions": ["blue", LONG], "labels": [True, False]},
        {"prompt": "red", "completions": [LONG, "blue"], "labels": [True, False]},
        {"prompt": "red", "completions": ["blue", "a"], "labels": [True, False]},
    ],
    "gsm8k": [{"question": LONG, "answer": "1 #### 1"}, {"question": "red", "answer": "2 #### 2"}],
    "passthrough": [
        {"prompt": conversation[:1], "completion": conversation[1:], "label": bool(n % 2)}
        for n, conversation in enumerate([*CHAT, CHAT[2], CHAT[0]])
    ],
}


def convert(folder: Path, model: str, type: str, form: str | None, way: str) -> runs.Outcome:
    keys = {"as_": form, "tokenizer": model, "chat_template": "chatml"}
    return runs.convert(folder, ROWS[type], type, max_length=LIMIT, on_overlong=way, **keys)


def lengths(rows: list[dict], model: str) -> list[int]:
    tokenizer = tokens.load(model)
    if "input_ids" in rows[0]:
        return [len(row["input_ids"]) for row in rows]
    sides = [name for name in ("text", "completion", "chosen", "rejected") if name in rows[0]]
    texts = [row.get("prompt", "") + row[side] for row in rows for side in sides]
    return [len(tokenizer.encode(text)) for text in texts or [row["prompt"] for row in rows]]


@pytest.mark.parametrize("way", ["truncate-end", "truncate-start"])
@pytest.mark.parametrize(
    ("type", "form"),
    [("openai", "text"), ("openai", "tokens"), ("intel", "text"), ("passthrough", "text")],
)
def test_no_converted_row_is_longer_than_the_limit(type, form, way, tmp_path, model):
    done = convert(tmp_path, model, type, form, way)
    assert done.error is None
    assert max(lengths(done.rows, model)) <= LIMIT
    assert done.report["warnings"]["truncated"]
    assert len(done.rows) + len(done.quarantine) == len(ROWS[type])
    assert {bad["code"] for bad in done.quarantine} <= {"too_long"}
    if "labels" in done.rows[0]:
        assert all(any(label != -100 for label in row["labels"]) for row in done.rows)
    if "chosen" in done.rows[0]:
        assert all(row["chosen"] != row["rejected"] for row in done.rows)


@pytest.mark.parametrize("way", ["truncate-end", "truncate-start"])
@pytest.mark.parametrize("type", ["openai", "intel", "passthrough"])
def test_messages_are_not_cut_and_it_is_said_where_they_are(type, way, tmp_path, model):
    done = convert(tmp_path, model, type, "messages", way)
    assert "it goes with --as text and --as tokens" in str(done.error)
    assert done.rows == []


@pytest.mark.parametrize("form", [None, "messages"])
@pytest.mark.parametrize("way", ["truncate-end", "truncate-start"])
def test_steps_are_not_cut(form, way, tmp_path, model):
    done = convert(tmp_path, model, "stepwise_supervised", form, way)
    assert f"--on-overlong {way}: steps stay whole; use drop or fail" in str(done.error)


def test_a_prompt_loses_its_beginning_and_never_its_end(tmp_path, model):
    refused = convert(tmp_path, model, "gsm8k", "text", "truncate-end")
    assert "truncate-start cuts what came before" in str(refused.error)
    done = convert(tmp_path, model, "gsm8k", "text", "truncate-start")
    assert max(lengths(done.rows, model)) <= LIMIT
    assert all(row["prompt"].endswith("<|im_start|>assistant\n") for row in done.rows)


SOURCES = {
    "sft": "openai",
    "dpo": "intel",
    "ipo": "intel",
    "orpo": "intel",
    "cpo": "intel",
    "simpo": "intel",
    "alphapo": "intel",
    "kto": "passthrough",
    "prm": "stepwise_supervised",
}
CUTTING = [(method, way) for method in runner.names() for way in sorted(runner.find(method).cuts)]


def keys_of(folder: Path, model: str, method: str, way: str) -> dict[str, object]:
    source = SOURCES.get(method, "intel")
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS[source]), encoding="utf-8")
    named = {"sft": {}, "reward": {"reward_model": True}, "prm": {"process_reward_model": True}}
    return {
        **tiny.STEP,
        **named.get(method, {"rl": method}),
        "base_model": model,
        "chat_template": "chatml",
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(data), "type": source}],
        "sequence_len": LIMIT,
        "excess_length_strategy": way,
        "max_steps": 1,
    }


def test_every_method_that_cuts_has_a_source_here():
    assert {method for method, _ in CUTTING} == set(SOURCES)


@pytest.mark.parametrize(("method", "way"), CUTTING)
def test_a_trainer_cuts_what_is_too_long_and_loses_no_row_in_silence(method, way, tmp_path, model):
    plan = planning.plan(keys_of(tmp_path, model, method, way))
    remarks = training_run.prepare(plan, resume=False, rebuild=False)
    assert any("the trainer cuts them" in remark for remark in remarks)
    (report,) = (tmp_path / "run" / "data").glob("*/report.json")
    said = json.loads(report.read_text())
    assert said["rows_read"] == said["converted"] + said["quarantined"]
    assert said["quarantined"] == said["reasons"].get("too_long", 0)
    rows = sum(pq.read_metadata(file).num_rows for file in (tmp_path / "run").rglob("*.parquet"))
    assert rows == said["converted"]
    from fmtkit.training.planning import job

    process.quiet()
    work = job.read(tmp_path / "run")
    parts = build.parts_of(work, [])
    trainer = build.make_trainer(work, parts)
    assert len(trainer.train_dataset) == rows
    for batch in trainer.get_train_dataloader():
        widths = {v.shape[1] for k, v in batch.items() if k.endswith("input_ids")}
        assert max(widths) <= LIMIT
        for name in (name for name in batch if name.endswith("labels")):
            assert (batch[name] != -100).any(dim=1).all()


@pytest.mark.parametrize("method", sorted(set(runner.names()) - {"ppo", "bco", "xpo", "nash_md"}))
@pytest.mark.parametrize("way", ["truncate", "truncate-end", "truncate-start"])
def test_a_plan_refuses_a_cut_that_its_trainer_does_not_make(method, way, tmp_path, model):
    keys = keys_of(tmp_path, model, method, way)
    meant = "truncate-end" if way == "truncate" else way
    if meant in runner.find(method).cuts:
        planning.plan(keys, partial=True)
        return
    with pytest.raises(RefusalError, match=rf"excess_length_strategy: {way}: {method} cuts"):
        planning.plan(keys, partial=True)


def test_packing_cuts_the_end(tmp_path, model):
    keys = {**keys_of(tmp_path, model, "sft", "truncate-start"), "sample_packing": True}
    with pytest.raises(RefusalError, match=r"packing cuts a row at its end; write truncate-end"):
        planning.plan(keys)


@pytest.mark.parametrize(("method", "advised"), [("dpo", True), ("reward", False)])
def test_truncate_is_advised_where_it_works(method, advised, tmp_path, model):
    keys = {**keys_of(tmp_path, model, method, "drop"), "sequence_len": 2}
    with pytest.raises(OptionError, match="all 4 rows are longer than 2 tokens") as caught:
        training_run.prepare(planning.plan(keys), resume=False, rebuild=False)
    assert ("excess_length_strategy: truncate-end" in str(caught.value)) is advised
