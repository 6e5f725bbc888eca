"""`generate_samples`: prompts of the run's rows are answered at each evaluation, into the run's page."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("trl")

import pyarrow.parquet as pq
import tiny_training as tiny

import fmtkit
from fmtkit.core.errors import FmtkitError
from fmtkit.training.planning import plan as planning


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    return tiny.make_model(tmp_path_factory.mktemp("bare"))


def text_of(row: dict) -> dict:
    """Return a row of messages as one of text."""
    return {n: v if isinstance(v, bool) else f"{v[0]['content']} " for n, v in row.items()}


ROWS = {
    "dpo": tiny.preference_rows(),
    "kto": tiny.unpaired_rows(),
    "sft": tiny.conversation_rows(),
    "orpo": tiny.preference_rows(),
    "text dpo": [text_of(row) for row in tiny.preference_rows()],
    "text sft": [{"text": row["prompt"][0]["content"]} for row in tiny.preference_rows()],
}


def config(folder: Path, model: str, name: str, **keys) -> dict:
    method = name.rpartition(" ")[2]
    for file, rows in (("train", ROWS[name]), ("test", ROWS[name][3:5])):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{file}.jsonl").write_text(lines)
    return {
        "base_model": model,
        "output_dir": str(folder / "run"),
        "datasets": [{"path": str(folder / "train.jsonl")}],
        "test_datasets": [{"path": str(folder / "test.jsonl")}],
        **tiny.STEP,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "generate_samples": 2,
        "generation_max_new_tokens": 4,
        **({} if method == "sft" else {"rl": method}),
        **keys,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_prompts_to_evaluate_on_are_answered_at_each_evaluation_and_at_the_end(
    tmp_path, model, bare, name
):
    chosen = bare if name.startswith("text") else model
    run = fmtkit.train(config(tmp_path, chosen, name)).plan.run
    rows = pq.read_table(run / "completions.parquet").to_pylist()
    assert [row["step"] for row in rows] == [2, 2, 3, 3]
    assert {row["prompt"] for row in rows[:2]} == {row["prompt"] for row in rows[2:]}
    assert all(0 < row["tokens"] <= 4 for row in rows)
    asked = ROWS[name][3]
    said = asked.get("prompt", asked.get("messages", asked.get("text")))
    first = rows[0]["prompt"]
    if name == "text sft":
        # Of a text without a prompt the first half is one.
        assert said.startswith(first)
        assert 0 < len(first) < len(said)
    elif name.startswith("text"):
        # Its end may belong to a token of the reply.
        assert first == said.rstrip()
        assert asked["chosen"] in rows[0]["extra/reference"]
    else:
        assert said[0]["content"] in first
        assert first.endswith("<|im_start|>assistant\n")
    page = (run / "report.html").read_text()
    assert "are in completions.parquet" in page
    assert '{"step":2,' in page
    assert (run / "answers.html").is_file()


@pytest.mark.slow
def test_samples_do_not_change_what_is_trained(tmp_path, model):
    from safetensors.torch import load_file

    weights = []
    for number, keys in enumerate(RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        run = fmtkit.train(config(folder, model, "dpo", **keys)).plan.run
        weights.append(load_file(run / "model" / "model.safetensors"))
        assert (run / "completions.parquet").is_file() == (number != 1)
    for other in weights[1:]:
        assert all(weights[0][name].equal(other[name]) for name in other)


@pytest.mark.slow
def test_several_processes_share_the_prompts_and_one_writes_the_answers(tmp_path, model):
    """Three prompts of two processes: the one of less to do waits, and each answer is there once."""
    made = {}
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        keys = config(folder, model, "dpo", num_processes=processes, generation_temperature=1.0)
        (folder / "test.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in ROWS["dpo"][3:7])
        )
        keys |= {"learning_rate": 0.0, "generate_samples": 3, "max_steps": 4}
        run = fmtkit.train(keys).plan.run
        made[processes] = pq.read_table(run / "completions.parquet").to_pylist()
        assert [row["step"] for row in made[processes]] == [2, 2, 2, 4, 4, 4]
    assert made[1] == made[2]


@pytest.mark.slow
def test_without_rows_to_evaluate_on_the_first_rows_are_answered_at_the_end(tmp_path, model):
    keys = config(tmp_path, model, "sft", generate_samples=True, num_generation_samples=1)
    for name in ("test_datasets", "eval_strategy", "eval_steps"):
        del keys[name]
    run = fmtkit.train(keys).plan.run
    (row,) = pq.read_table(run / "completions.parquet").to_pylist()
    assert row["step"] == 3


RUNS = ({}, {"generate_samples": False}, {"generation_temperature": 1.0})
GRPO = {"rl": "grpo", "trl": {"reward_funcs": ["a.b"], "num_generations": 2}}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (GRPO, r"grpo samples answers as it trains.*\(it is for .*dpo.*sft"),
        ({"rl": None, "reward_model": True}, "reward trains a head that scores"),
        ({"generate_samples": 2, "num_generation_samples": 3}, "two numbers for one thing"),
        ({"accelerate_config": "fsdp2", "use_cpu": None}, "fsdp2 splits the weights"),
        ({"accelerate_config": "zero3", "use_cpu": None}, "zero3 splits the weights"),
        ({"generate_samples": 0}, "generate_samples"),
        ({"generate_samples": "two"}, "generate_samples"),
    ],
)
def test_what_cannot_be_sampled_is_refused_by_its_key(tmp_path, model, keys, message):
    with pytest.raises(FmtkitError, match=message):
        planning.plan(config(tmp_path, model, "dpo", **keys))


def test_keys_of_samples_that_are_not_asked_for_are_told_of(tmp_path, model):
    plan = planning.plan(config(tmp_path, model, "dpo", generate_samples=False))
    (note,) = [n for n in plan.notes if re.match("generation_max_new_tokens changes nothing", n)]
    assert "generate_samples" in note
