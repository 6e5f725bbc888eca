"""Whole runs with a Gym: converted data, a tiny model, rewards over HTTP, in one process but for one."""

import json
import random
import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("trl")

import gym_standin as standin
import tiny_training as tiny
from test_nemo_gym_launching import make_gym

from fmtkit.core.errors import OptionError
from fmtkit.training.run import process
from fmtkit.training.run import run as runs

SLOW = pytest.mark.slow


@pytest.fixture
def here(monkeypatch):
    """Train in this process: the run's own processes load torch anew, which takes seconds."""
    monkeypatch.setattr(runs, "launch", lambda planned: process.main([str(planned.run)]))


def rows(count: int = 8) -> list[dict]:
    generator = random.Random(0)
    return [
        {
            "responses_create_params": {
                "input": [{"role": "user", "content": tiny.sentence(4, generator)}]
            },
            "answer": f"{number}",
            "level": 0.5,
        }
        for number in range(count)
    ]


def keys(folder: Path, model: str, gym, data=None, **more):
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "rows.jsonl"
    lines = (json.dumps(row) for row in data or rows())
    file.write_text("\n".join(lines), encoding="utf-8")
    trl = {"num_generations": 2, "max_completion_length": 8, **more.pop("trl", {})}
    return {
        **tiny.STEP,
        "base_model": model,
        "rl": "grpo",
        "output_dir": str(folder / "run"),
        "nemo_gym_enabled": True,
        "nemo_gym_auto_start": False,
        "nemo_gym_head_port": gym.head_port,
        "nemo_gym_datasets": [{"path": str(file), "server_name": "arithmetic"}],
        "trl": trl,
        **more,
    }


def steps(folder: Path) -> list[dict]:
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if "loss" in json.loads(line)]


def vowels(request) -> float:
    return float(sum(letter in "aeiou" for letter in standin.text_of(request)))


@pytest.mark.parametrize(
    "method", ["grpo", *(pytest.param(m, marks=SLOW) for m in ("gdpo", "rloo"))]
)
def test_single_answers_are_scored_by_the_server(method, model, tmp_path, here):
    with standin.running(judge=vowels) as gym:
        assert runs.train(keys(tmp_path, model, gym, rl=method)).exit_code == 0
        asked = gym.posts("arithmetic/verify")
    logs = steps(tmp_path)
    assert len(asked) == 3 * 2
    told = [vowels(request) for request in asked]
    logged = [log["rewards/nemo_gym_verify/mean"] for log in logs]
    assert sum(logged) / 3 == pytest.approx(sum(told) / len(told))
    if method != "rloo":
        assert {log["nemo_gym/verify_errors"] for log in logs} == {0.0}
    assert {request["level"] for request in asked} == {0.5}


@SLOW
def test_a_reward_of_the_users_stands_beside_the_servers(model, tmp_path, here):
    (tmp_path / "rewards.py").write_text(
        "def level(completions, level, nemo_gym_row, **kwargs):\n    return level\n",
        encoding="utf-8",
    )
    config = tmp_path / "gym.yaml"
    with standin.running(judge=vowels) as gym:
        made = keys(
            tmp_path, model, gym, trl={"reward_funcs": ["rewards.level"], "reward_weights": [2, 1]}
        )
        config.write_text(json.dumps(made), encoding="utf-8")
        assert runs.train(config).exit_code == 0
    for log in steps(tmp_path):
        assert log["rewards/level/mean"] == 0.5
        assert log["reward"] == pytest.approx(1.0 + log["rewards/nemo_gym_verify/mean"])


@SLOW
def test_datasets_are_cut_to_a_sample_that_the_seed_chooses(model, tmp_path, here):
    seen = []
    for seed in (1, 1, 2):
        folder = tmp_path / str(len(seen))
        with standin.running() as gym:
            made = keys(folder, model, gym, rows(40), seed=seed)
            made["nemo_gym_datasets"][0]["max_samples"] = 3
            assert runs.train(made | {"max_steps": 6}).exit_code == 0
            seen.append({request["answer"] for request in gym.posts("/verify")})
    assert seen[0] == seen[1] != seen[2]
    assert {len(answers) for answers in seen} == {3}


@SLOW
def test_rows_of_several_environments_train_together(model, tmp_path, here):
    with standin.running() as gym:
        made = keys(tmp_path, model, gym, max_steps=8)
        other = tmp_path / "other.jsonl"
        memory = {"type": "resources_servers", "name": "memory"}
        numbers = [row | {"answer": 4, "agent_ref": memory} for row in rows()]
        other.write_text("\n".join(map(json.dumps, numbers)), encoding="utf-8")
        made["nemo_gym_datasets"].append({"path": str(other)})
        assert runs.train(made).exit_code == 0
        assert {path for path, _, _ in gym.asked} == {
            f"{name}/{call}"
            for name in ("arithmetic", "memory")
            for call in ("seed_session", "verify")
        }


WORDS = ("good", "bad")


def two_turns(tokenizer):
    """Play a random token, an answer of the environment, another random token."""
    ids = [tokenizer(f" {word}", add_special_tokens=False)["input_ids"][-1] for word in WORDS]
    between = tokenizer(" river", add_special_tokens=False)["input_ids"]
    lock = threading.Lock()

    def play(row, number):
        with lock:
            prompt = tokenizer.apply_chat_template(
                row["responses_create_params"]["input"],
                add_generation_prompt=True,
                return_dict=False,
            )
        chosen = random.Random(number).choices(ids, k=2)
        first = (prompt, chosen[:1], [-1.0])
        return [first, (prompt + chosen[:1] + between, chosen[1:], [-1.0])]

    def judge(request):
        said = [item for item in request["response"]["output"] if "generation_token_ids" in item]
        return float(sum(ids[0] in item["generation_token_ids"] for item in said))

    return play, judge, ids


@pytest.fixture(scope="session")
def tokenizer(model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def likes(folder, ids, prompt) -> float:
    """Return how much likelier the first token is than the second, as the answer to a prompt."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder)(torch.tensor([prompt])).logits[0, -1]
    return float(logits[ids[0]] - logits[ids[1]])


@SLOW
@pytest.mark.parametrize("ahead", [{}, {"use_data_producer": True, "async_prefetch": True}])
def test_a_model_learns_from_conversations_that_an_agent_played(
    ahead, model, tokenizer, tmp_path, here
):
    play, judge, ids = two_turns(tokenizer)
    with standin.running(play=play, judge=judge) as gym:
        made = keys(
            tmp_path,
            model,
            gym,
            nemo_gym_multi_turn=True,
            micro_batch_size=8,
            max_steps=12,
            learning_rate=3e-3,
            trl={"num_generations": 8, "loss_type": "grpo", **ahead},
        )
        assert runs.train(made).exit_code == 0
        prompt = play(gym.posts("/run")[0], 0)[0][0]
    logs = steps(tmp_path)
    assert {log["nemo_gym/num_turns"] for log in logs} == {2.0}
    assert {log["nemo_gym/rollout_errors"] for log in logs} == {0.0}
    # The environment's token is not the model's: two of three count.
    assert {log["completions/mean_length"] for log in logs} == {2.0}
    assert 0 < sum(log["rewards/env_reward/mean"] for log in logs) / len(logs) < 2
    assert likes(tmp_path / "run" / "model", ids, prompt) > likes(model, ids, prompt) + 0.5


@SLOW
def test_some_conversations_that_fail_do_not_stop_the_run(model, tokenizer, tmp_path, here):
    play, judge, _ = two_turns(tokenizer)
    data = [row | ({"fault": "500"} if number % 2 else {}) for number, row in enumerate(rows())]
    with standin.running(play=play, judge=judge) as gym:
        made = keys(tmp_path, model, gym, data, nemo_gym_multi_turn=True, micro_batch_size=8)
        assert runs.train(made | {"max_steps": 2}).exit_code == 0
    logs = steps(tmp_path)
    assert sum(log["nemo_gym/rollout_errors"] for log in logs) == 8
    assert all(log["loss"] == log["loss"] for log in logs)


def masked(folder: Path) -> list[str]:
    import pyarrow.parquet as pq

    told = pq.read_table(folder / "run" / "completions.parquet")["masked"].to_pylist()
    return [one for one in told if one and "500" in one]


@SLOW
@pytest.mark.parametrize(
    ("share", "code", "said"),
    [
        (None, 0, ""),
        (0.5, 0, ""),
        (
            0.1,
            1,
            r"2 of 4 samples failed, 2 of them with: .* 500: .*max_failed_share: 0\.1 allows 1",
        ),
        (0, 1, r"2 of 4 samples failed, 2 of them with: .* 500: .*; none may"),
    ],
)
@pytest.mark.parametrize("kind", ["single", "dialogs", "rloo"])
def test_failures_of_a_gym_are_masked_and_counted_up_to_the_share_that_may_fail(
    kind, share, code, said, model, tokenizer, tmp_path, here, capsys
):
    play, judge, _ = two_turns(tokenizer)
    # Of two prompts of a batch one fails.
    data = [row | ({"fault": "500"} if number % 2 else {}) for number, row in enumerate(rows())]
    conversations = kind == "dialogs"
    with standin.running(play=play, judge=judge if conversations else vowels) as gym:
        more = {"rl": "rloo"} if kind == "rloo" else {"nemo_gym_multi_turn": conversations}
        trl = {"shuffle_dataset": False, **({} if share is None else {"max_failed_share": share})}
        made = keys(tmp_path, model, gym, data, micro_batch_size=4, max_steps=2, trl=trl, **more)
        assert runs.train(made).exit_code == code
    if code:
        assert re.search(said, " ".join(capsys.readouterr().err.split()))
        return
    logs = steps(tmp_path)
    assert [log["failed_samples"] for log in logs] == [2.0, 2.0]
    assert all("seconds/nemo_gym/max" in log for log in logs)
    assert len(masked(tmp_path)) == 4


@SLOW
@pytest.mark.parametrize("method", ["grpo", "rloo"])
def test_a_gym_that_is_lost_ends_the_run_with_a_checkpoint(method, model, tmp_path, here, capsys):
    def judge(request):
        if len(gym.posts("/verify")) > 4:
            raise standin.Refused(500, "out of order")
        return vowels(request)

    with standin.running(judge=judge) as gym:
        assert runs.train(keys(tmp_path, model, gym, max_steps=9, rl=method)).exit_code == 1
    said = capsys.readouterr().err
    assert "all 2 calls of /verify failed" in said
    assert "continue with --resume" in said
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-2").is_dir()


def test_a_server_that_nobody_runs_is_told_before_training(model, tmp_path, here):
    with standin.running() as gym:
        made = keys(tmp_path, model, gym)
        made["nemo_gym_datasets"][0]["server_name"] = "arithmetik"
        with pytest.raises(OptionError, match="no running resources server is named 'arithmetik'"):
            runs.train(made)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@SLOW
def test_tools_that_the_model_is_not_shown_are_told(model, tmp_path, here):
    tool = {"type": "function", "name": "w", "parameters": {"type": "object"}, "strict": True}
    data = rows()
    data[0]["responses_create_params"]["tools"] = [tool]
    said = []
    with standin.running() as gym:
        assert runs.train(keys(tmp_path, model, gym, data), say=said.append).exit_code == 0
    assert "1 rows have tools, which the model does not see in a single turn" in " ".join(said)


@SLOW
def test_a_run_starts_its_gym_and_stops_it_after(model, tmp_path):
    settings = make_gym(tmp_path / "gym")
    with standin.running() as gym:
        made = keys(tmp_path, model, gym)
    made |= {
        "nemo_gym_dir": settings.dir,
        "nemo_gym_auto_start": True,
        "nemo_gym_config_paths": ["math.yaml"],
        "nemo_gym_head_port": settings.head_port,
    }
    assert runs.train(made).exit_code == 0
    assert len(steps(tmp_path)) == 3
    assert "stopped by SIGINT" in (tmp_path / "run" / "nemo_gym.log").read_text(encoding="utf-8")
