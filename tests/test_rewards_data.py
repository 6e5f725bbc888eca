"""Rows of the online methods: transforms of the user, every other column, texts and conversations as prompts."""

import json
from pathlib import Path

import pytest

pytest.importorskip("datasets")

import tiny_training as tiny

from fmtkit.core.errors import OptionError
from fmtkit.core.runner import find
from fmtkit.training.config import config
from fmtkit.training.data import datasets, rows
from fmtkit.training.data.data_report import data_remarks
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import run

TRANSFORMS = """
def oai_gsm8k_transform(cfg, *args, **kwargs):
    def transform_fn(example, tokenizer=None):
        label = example["answer"].split("####")[-1].strip().replace(",", "")
        return {"prompt": [{"role": "user", "content": example["question"]}], "answer": label}

    return transform_fn, {"remove_columns": ["question"]}


def with_tests(cfg):
    return lambda row: {
        "prompt": [{"role": "user", "content": row["question"]}],
        "tests": [{"in": 1, "out": ["02139", 1.0]}],
        "level": 3,
        "hard": True,
    }


def as_text(cfg):
    return lambda row: {"prompt": f"Q: {row['question']}"}


def answered(cfg):
    def transform(row):
        reply = [{"role": "assistant", "content": "Sure."}] if "1" in row["question"] else []
        return {"prompt": [{"role": "user", "content": row["question"]}, *reply]}

    return transform


def level_as_text(cfg):
    return lambda row: {"prompt": [{"role": "user", "content": "q"}], "level": "three"}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rewards.py").write_text(TRANSFORMS)
    lines = [{"question": f"What is {n}?", "answer": f"It is so.\n#### {n},000"} for n in range(4)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def prepared(folder: Path, *types: str, method: str = "grpo", **more: object):
    """Convert datasets as a run does, and return the plan and the job over them."""
    keys = {
        "rl": method,
        "datasets": [{"path": str(folder / "gsm8k.jsonl"), "type": one} for one in types],
        "output_dir": str(folder / "run"),
        "trl": {"reward_funcs": ["rewards.score"]},
        **more,
    }
    (folder / "run.yaml").write_text(json.dumps(keys))
    plan = planning.plan(config.load(folder / "run.yaml"), partial=True)
    train, evaluation = datasets.prepare(plan, tiny.TEMPLATE)
    return plan, run.job_of(plan, train, evaluation, tiny.TEMPLATE)


def loaded(work, method: str = "grpo"):
    return rows.load_rows(work, find(method))[0]


@pytest.mark.parametrize("method", ["grpo", "gdpo", "rloo", "online_dpo"])
def test_the_documented_transform_makes_prompts_and_keeps_the_label(folder, method):
    found = loaded(prepared(folder, "rewards.oai_gsm8k_transform", method=method)[1], method)
    assert set(found.column_names) - {"tools"} == {"prompt", "answer"}
    assert found[1]["prompt"] == [{"role": "user", "content": "What is 1?"}]
    assert found[1]["answer"] == "1000"


def test_our_own_gsm8k_keeps_every_other_column(folder):
    lines = [{"question": "Q", "answer": "#### 7", "split": "x", "meta": {"a": [1]}}]
    (folder / "gsm8k.jsonl").write_text(json.dumps(lines[0]) + "\n")
    row = loaded(prepared(folder, "gsm8k")[1])[0]
    assert (row["answer"], row["split"], row["meta"]) == ("7", "x", {"a": [1]})


def test_columns_reach_rewards_as_the_values_that_they_were(folder):
    row = loaded(prepared(folder, "rewards.with_tests")[1])[0]
    assert row["tests"] == [{"in": 1, "out": ["02139", 1.0]}]
    assert (row["level"], row["hard"]) == (3, True)


def test_a_prompt_of_text_stays_text(folder):
    assert loaded(prepared(folder, "rewards.as_text")[1])[0]["prompt"] == "Q: What is 0?"


def test_a_prompt_that_ends_with_an_assistant_turn_is_named_and_not_trained(folder):
    plan, work = prepared(folder, "rewards.answered")
    assert len(loaded(work)) == 3
    assert (
        "1 of 4 rows are not valid and are not trained on (role_order 1)" in data_remarks(plan)[0]
    )
    quarantined = (folder / "run/data/00/quarantine.jsonl").read_text().splitlines()
    bad = json.loads(quarantined[0])
    assert (len(quarantined), bad["line"], bad["code"]) == (1, 2, "role_order")


def test_where_all_prompts_end_so_the_reason_is_told(folder):
    lines = [{"question": "1", "answer": "#### 1"}]
    (folder / "gsm8k.jsonl").write_text(json.dumps(lines[0]) + "\n")
    with pytest.raises(OptionError, match="role_order 1"):
        prepared(folder, "rewards.answered")


@pytest.mark.parametrize("made", ["gsm8k", "rewards.as_text"])
def test_prompts_over_the_limit_are_left_out_and_counted(folder, model, made):
    words = " ".join(["river"] * 40)
    lines = [{"question": q, "answer": "#### 1"} for q in ("red", words, "blue")]
    (folder / "gsm8k.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    plan, work = prepared(folder, made, base_model=model, chat_template="chatml", sequence_len=32)
    assert len(loaded(work)) == 2
    report = json.loads((plan.run / "data/00/report.json").read_text())
    assert report["overlong_dropped"] == 1
    (said,) = data_remarks(plan)
    assert "1 of 3 prompts have more than 32 tokens" in said


@pytest.mark.parametrize(
    ("made", "kind"),
    [("gsm8k", list), ("rewards.oai_gsm8k_transform", list), ("rewards.as_text", str)],
)
def test_a_limit_measures_prompts_and_leaves_them_as_they_are(folder, model, made, kind):
    limits = {"base_model": model, "chat_template": "chatml", "sequence_len": 64}
    _, work = prepared(folder, made, **limits)
    assert {type(row["prompt"]) for row in loaded(work)} == {kind}


def test_canonical_prompts_stay_what_they_are_under_a_limit(folder, model):
    (folder / "gsm8k.jsonl").write_text('{"prompt": [{"role": "user", "content": "red"}]}\n')
    limits = {"base_model": model, "chat_template": "chatml", "sequence_len": 64}
    assert loaded(prepared(folder, "passthrough", **limits)[1])[0]["prompt"][0]["content"] == "red"


def test_a_column_of_two_kinds_is_named(folder):
    _, work = prepared(folder, "rewards.with_tests", "rewards.level_as_text")
    with pytest.raises(OptionError, match="column 'level' holds different kinds of value"):
        loaded(work)


class Tokenizer:
    """A tokenizer that puts its BOS before every text."""

    bos_token, bos_token_id = "<s>", 1

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [1, *text.encode()]}

    def apply_chat_template(self, messages, **_) -> str:
        return "<s>" + "".join(f"{m['role']}: {m['content']}\n" for m in messages)


def test_conversations_are_rendered_beside_texts(folder):
    _, work = prepared(folder, "rewards.as_text", "rewards.answered")
    found = rows.load_rows(work, find("grpo"), tokenizer=Tokenizer())[0]
    prompts = [row["prompt"] for row in found]
    texts = [row["prompt"] for row in loaded(prepared(folder, "rewards.as_text")[1])]
    conversations = [row["prompt"] for row in loaded(prepared(folder, "rewards.answered")[1])]
    rendered = [
        "".join(f"{m['role']}: {m['content']}\n" for m in conversation)
        for conversation in conversations
    ]
    assert sorted(prompts) == sorted([*texts, *rendered])


def test_a_changed_transform_is_run_again_and_an_unchanged_one_is_not(folder):
    before = prepared(folder, "rewards.as_text")[1].train[0].files[0]
    first = Path(before).stat().st_mtime_ns
    assert (
        Path(prepared(folder, "rewards.as_text")[1].train[0].files[0]).stat().st_mtime_ns == first
    )
    (folder / "rewards.py").write_text(TRANSFORMS.replace("Q: ", "Question: "))
    row = loaded(prepared(folder, "rewards.as_text")[1])[0]
    assert row["prompt"] == "Question: What is 0?"


def test_a_transform_is_called_with_the_configuration(folder):
    (folder / "rewards.py").write_text(
        "def of(cfg, *args, **kwargs):\n"
        '    return lambda row: {\'prompt\': f\'{cfg["rl"]} {cfg["datasets"][0]["type"]}\'}\n'
    )
    assert loaded(prepared(folder, "rewards.of")[1])[0]["prompt"] == "grpo rewards.of"


def test_a_reward_model_that_is_not_there_is_told_before_anything_is_loaded(
    folder, model, monkeypatch
):
    monkeypatch.chdir(folder)
    (folder / "models").mkdir()
    keys = {"base_model": model, "chat_template": "chatml", "trl": {"reward_funcs": "models/judge"}}
    named, _ = prepared(folder, "gsm8k", **keys)
    with pytest.raises(OptionError, match=r"trl\.reward_funcs: models/judge: no such folder"):
        tiny.check(named)
