"""Environments of `verifiers`: whole runs with a tiny model, and the endpoint that they ask.

The package is not among ours, since it pins much: a stand-in has its interface. Set FMTKIT_VERIFIERS to
an environment that has the real one (`pip install verifiers==0.2.1`, or 0.4.0), and the same runs are made with that, as
`make test-verifiers` does.
"""

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("trl")

import online_runs as online
import pyarrow.parquet as pq
import tiny_training as tiny
import verifiers_environments as counting
import vllm_stub as vllm
from transformers import AutoTokenizer

from fmtkit.core.errors import DependencyError, FmtkitError, OptionError
from fmtkit.runners.verifiers import keys
from fmtkit.runners.verifiers.endpoint import Endpoint, RefusedError, Wording
from fmtkit.runners.verifiers.policy import OwnPolicy, ServerPolicy, generating
from fmtkit.training.online.conversations.environment import EnvReward
from fmtkit.training.planning import plan as planning
from fmtkit.training.run import process
from fmtkit.training.run import run as runs

SLOW = pytest.mark.slow
STANDIN = Path(__file__).parent / "verifiers_standin"
REAL = os.environ.get("FMTKIT_VERIFIERS", "")
# An answer of no token but its end is an error for the real package; a tiny model gives one now and then.
ANSWERS = {
    "num_generations": 2,
    "max_completion_length": 64,
    "generation_kwargs": {"min_new_tokens": 4},
}


@pytest.fixture(scope="session")
def home(tmp_path_factory) -> str:
    """The environment that has verifiers: the real one where there is one, else ours with the stand-in."""
    if REAL:
        return REAL
    folder = tmp_path_factory.mktemp("verifiers")
    made = [sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")]
    subprocess.run(made, check=True)
    (packages,) = (folder / ".venv").glob("lib/python*/site-packages")
    (packages / "standin.pth").write_text(str(STANDIN), encoding="utf-8")
    return str(folder)


@pytest.fixture
def here(monkeypatch):
    """Train in this process: the run's own processes load torch anew, which takes seconds."""
    monkeypatch.setattr(runs, "launch", lambda planned: process.main([str(planned.run)]))


def write(folder: Path, model: str, home: str, *, trl=None, more=None, **section) -> Path:
    """Write a configuration and the environment beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "counting.py").write_text(counting.text(home), encoding="utf-8")
    section["arguments"] = counting.arguments(home, section.get("arguments", {}))
    keys = {
        **tiny.STEP,
        "max_steps": 2,
        "micro_batch_size": 4,
        "base_model": model,
        "rl": "grpo",
        "output_dir": str(folder / "run"),
        "trl": {**ANSWERS, **(trl or {})},
        "verifiers": {"environment": "counting", "dir": home, "max_turn_tokens": 8, **section},
        **(more or {}),
    }
    path = folder / "run.yaml"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return path


def steps(folder: Path) -> list[dict]:
    lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [log for log in map(json.loads, lines) if "loss" in log]


@SLOW
@pytest.mark.parametrize("method", ["grpo", "gdpo"])
def test_a_model_trains_in_an_environment_of_three_turns(method, model, home, tmp_path, here):
    assert runs.train(write(tmp_path, model, home, more={"rl": method})).exit_code == 0
    logs = steps(tmp_path)
    assert len(logs) == 2
    for log in logs:
        assert log["verifiers/num_turns"] == 3.0
        # Three turns of 8 tokens are the model's; what the environment said is not.
        assert 3 <= log["completions/mean_length"] <= 24
        assert log["verifiers/rollout_errors"] == log["verifiers/prefix_mismatch"] == 0.0
        assert log["rewards/env_reward/mean"] >= 0
    assert any(log["grad_norm"] > 0 for log in logs)
    rows = (tmp_path / "run" / "verifiers.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 8


@SLOW
def test_an_episode_that_fails_in_its_second_turn_is_masked_and_counted(
    model, home, tmp_path, here
):
    path = write(tmp_path, model, home, arguments={"fails_in": 2}, more={"max_steps": 4})
    assert runs.train(path).exit_code == 0
    logs = steps(tmp_path)
    # Every other row fails; two prompts of two answers each make a batch.
    assert sum(log["verifiers/rollout_errors"] for log in logs) == 8.0
    assert sum(log["failed_samples"] for log in logs) == 8.0
    assert all(log["seconds/verifiers/max"] > 0 for log in logs)
    assert all(log["loss"] == log["loss"] for log in logs)
    told = pq.read_table(tmp_path / "run" / "completions.parquet")["masked"].to_pylist()
    assert len([one for one in told if one and "the board is gone" in one]) == 8


@SLOW
def test_more_failed_episodes_than_may_be_end_the_run_with_the_reason(
    model, home, tmp_path, here, capsys
):
    made = {"fails_in": 2, "rows": 8}
    trl = {"max_failed_share": 0.1, "shuffle_dataset": False}
    path = write(tmp_path, model, home, arguments=made, trl=trl)
    assert runs.train(path).exit_code == 1
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"2 of 4 samples failed, .*the board is gone.*max_failed_share: 0\.1", said)


@SLOW
def test_an_episode_that_fails_once_is_played_again_from_its_beginning(model, home, tmp_path, here):
    made = {"fails_in": 2, "broken": True, "once": True}
    trl = {"max_retries": 2, "max_failed_share": 0}
    assert runs.train(write(tmp_path, model, home, arguments=made, trl=trl)).exit_code == 0
    for log in steps(tmp_path):
        assert log["verifiers/rollout_errors"] == 0.0
        assert log["verifiers/num_turns"] == 3.0


@SLOW
def test_an_environment_that_always_fails_ends_the_run_with_its_reason(
    model, home, tmp_path, here, capsys
):
    path = write(tmp_path, model, home, arguments={"fails_in": 2, "broken": True})
    assert runs.train(path).exit_code == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "verifiers: all 4 conversations by /run failed" in said
    assert "the board is gone" in said


@SLOW
def test_an_environment_that_never_ends_is_ended_by_its_time(model, home, tmp_path, here, capsys):
    path = write(tmp_path, model, home, arguments={"hangs": True}, run_timeout=3)
    assert runs.train(path).exit_code == 1
    assert "did not answer within 3 s" in " ".join(capsys.readouterr().err.split())


@SLOW
def test_an_environment_without_an_end_is_ended_by_the_tokens_and_trained(
    model, home, tmp_path, here
):
    path = write(tmp_path, model, home, arguments={"turns": -1}, trl={"max_completion_length": 48})
    assert runs.train(path).exit_code == 0
    for log in steps(tmp_path):
        assert log["verifiers/cut"] == 4.0
        assert log["verifiers/rollout_errors"] == 0.0


@SLOW
@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"environment": "no_such_env"}, "no_such_env ended with code 1:.*verifiers.log"),
        ({"arguments": {"no_such_argument": 1}}, "ended with code 1:.*no_such_argument"),
        ({"arguments": {"rows": 0}}, "has no rows|ended with code 1"),
        *([] if REAL else [({"arguments": {"image": 2}}, "row 2 of its dataset: .*'image_url'")]),
    ],
)
def test_what_cannot_be_loaded_is_told_before_anything_is_converted(
    section, words, model, home, tmp_path
):
    with pytest.raises(OptionError, match=words):
        runs.train(write(tmp_path, model, home, **section))
    assert not (tmp_path / "run" / "job.json").exists()


def test_an_environment_without_a_python_is_told_with_the_commands(model, tmp_path):
    with pytest.raises(DependencyError, match=r"no Python in .* pip install verifiers"):
        runs.train(write(tmp_path, model, str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"datasets": [{"path": "rows.jsonl", "type": "gsm8k"}]}, "leave datasets out"),
        ({"nemo_gym_enabled": True}, "a run has one of the two"),
        ({"rl": "rloo"}, "rloo has no use for it; it is for gdpo and grpo"),
        (
            {"trl": {"reward_funcs": ["nemo_gym_verify"]}},
            "nemo_gym_verify is not the reward of verifiers.environment, whose own need not be named",
        ),
        (
            {"verifiers": {}, "trl": {"reward_funcs": ["env_reward"]}},
            "env_reward is the reward of an environment; set nemo_gym_enabled or verifiers.environment",
        ),
        ({"num_processes": 2}, "in one training process alone"),
    ],
    ids=str,
)
def test_keys_that_do_not_go_together_are_refused(more, words, tmp_path):
    path = write(tmp_path, "m", "somewhere", more=more)
    with pytest.raises(FmtkitError, match=words):
        planning.plan(path)


@pytest.mark.parametrize(
    ("trl", "words"),
    [
        ({"async_prefetch": True}, "cannot train and sample in one process"),
        ({"tools": ["a.b"]}, "the environment runs the rollouts; leave out trl.tools"),
        ({"rollout_func": "a.b"}, "leave out trl.rollout_func"),
    ],
    ids=str,
)
def test_ways_of_sampling_that_exclude_each_other_are_refused(trl, words, tmp_path):
    with pytest.raises(FmtkitError, match=words):
        planning.plan(write(tmp_path, "m", "somewhere", trl=trl))


@pytest.mark.parametrize("name", ["env_reward", "axolotl.integrations.nemo_gym.rewards.reward_env"])
def test_the_reward_of_an_environment_may_be_named_as_in_axolotl(name, tmp_path):
    more = {"trl": {"reward_funcs": [name], "num_generations": 2}}
    assert not planning.plan(write(tmp_path, "m", "somewhere", more=more)).missing


def test_a_plan_needs_neither_datasets_nor_rewards(tmp_path):
    plan = planning.plan(write(tmp_path, "m", "somewhere"))
    assert not plan.missing
    assert [d.source for d in plan.datasets] == [str(tmp_path / "run" / "verifiers.jsonl")]
    idle = planning.plan({"rl": "grpo", "verifiers": {"run_timeout": 5}}, partial=True)
    assert any("verifiers.environment is unset" in note for note in idle.notes)


def test_every_key_and_metric_is_in_the_page():
    page = (Path(__file__).parents[3] / "runners" / "verifiers" / "README.md").read_text(
        encoding="utf-8"
    )
    names = [key.name for key in keys.KEYS]
    metrics: list[str] = []
    EnvReward(None, "verifiers", "")(log_metric=lambda name, _: metrics.append(name))
    assert len(names) >= 6
    assert len(metrics) >= 5
    for name in (*names, *metrics):
        assert f"| `{name}` |" in page, name


class Asked:
    """An endpoint with a scripted policy, and what the policy read."""

    def __init__(self, wording: Wording, script: list[list[int]], limit: int = 500) -> None:
        self.read: list[list[int]] = []
        self.most: list[int] = []
        self.script = iter(script)
        self.endpoint = Endpoint(wording, "policy")
        self.url, self.conversation = self.endpoint.begin(limit, self.sample)

    def sample(self, prompt, most):
        self.read.append(prompt)
        self.most.append(most)
        return next(self.script)[:most], None

    def say(self, messages, **more):
        body = json.dumps({"model": "policy", "messages": messages, **more}).encode()
        with urllib.request.urlopen(f"{self.url}/chat/completions", body, timeout=30) as answer:
            text = answer.read().decode()
        return text if more.get("stream") else json.loads(text)["choices"][0]

    @property
    def tokens(self):
        return self.conversation.tokens


@pytest.fixture(scope="module")
def wording(model):
    return Wording(AutoTokenizer.from_pretrained(model))


@pytest.fixture
def asked(wording):
    made = []

    def make(*script, limit=500):
        made.append(Asked(wording, list(script), limit))
        return made[-1]

    yield make
    for one in made:
        one.endpoint.close()


def ids_of(wording: Wording, text: str) -> list[int]:
    return wording.tokenizer(text, add_special_tokens=False)["input_ids"]


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def test_the_tokens_are_those_that_were_sampled_however_they_would_be_tokenized(wording, asked):
    end = wording.tokenizer.eos_token_id
    # Letter by letter: the tokenizer would take the word as fewer tokens.
    letters = [token for letter in "river" for token in ids_of(wording, letter)]
    assert letters != ids_of(wording, "river")
    one = asked([*letters, end], [*letters, end])
    first = one.say([user("hello")])
    assert first["message"] == {"role": "assistant", "content": "river"}
    assert first["finish_reason"] == "stop"
    one.say([user("hello"), first["message"], user("again")])
    between = one.read[1][len(one.read[0]) + len(letters) + 1 :]
    assert one.read[1] == one.read[0] + [*letters, end] + between
    whole = wording.prompt([user("hello"), first["message"], user("again")])
    assert wording.tokenizer.decode(one.read[1]) == wording.tokenizer.decode(whole)
    assert one.tokens.prompt_ids == one.read[0]
    assert one.tokens.completion_ids == [*letters, end, *between, *letters, end]
    assert one.tokens.env_mask == [1] * 6 + [0] * len(between) + [1] * 6


def test_an_answer_that_was_cut_is_ended_by_the_environments_tokens(wording, asked):
    end = wording.tokenizer.eos_token_id
    words = ids_of(wording, "big river")
    one = asked([*words, end], [end])
    first = one.say([user("hello")], max_tokens=len(words))
    assert first["finish_reason"] == "length"
    one.say([user("hello"), first["message"], user("again")])
    whole = wording.prompt([user("hello"), first["message"], user("again")])
    assert one.read[1] == whole
    assert one.tokens.env_mask[: len(words) + 1] == [1] * len(words) + [0]


def test_a_history_that_was_rewritten_ends_what_is_trained_on(wording, asked):
    end = wording.tokenizer.eos_token_id
    one = asked(*[[*ids_of(wording, "river"), end]] * 4)
    one.say([user("hello")])
    one.say([user("hello, in other words"), {"role": "assistant", "content": "x"}, user("again")])
    one.say([user("hello"), {"role": "assistant", "content": "river"}, user("again")])
    assert one.tokens.outcome == "prefix_mismatch"
    assert one.tokens.turns == 1


def test_a_conversation_without_room_is_refused_as_a_full_context_is(wording, asked):
    one = asked(*[ids_of(wording, "a river of stone")] * 3, limit=20)

    def talk():
        told = [user("hello")]
        for _ in range(9):
            told = [*told, one.say(told)["message"], user("again")]

    with pytest.raises(urllib.error.HTTPError) as caught:
        talk()
    assert caught.value.code == 400
    error = json.loads(caught.value.read())["error"]
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length" in error["message"]
    assert one.tokens.outcome == "cut"
    assert all(most <= 20 for most in one.most)


def test_a_stream_has_the_answer_and_its_end(wording, asked):
    end = wording.tokenizer.eos_token_id
    text = asked([*ids_of(wording, "river"), end]).say([user("hello")], stream=True)
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert chunks[0]["choices"][0]["delta"]["content"] == "river"
    assert chunks[1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[2]["usage"]["completion_tokens"] == len(ids_of(wording, "river")) + 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/chat/completions", b"{}", 400),
        ("/chat/completions", b"no json", 400),
        ("/chat/completions", b'{"messages": [], "n": 2}', 400),
        ("/completions", b"{}", 404),
    ],
)
def test_a_request_that_cannot_be_answered_has_a_reason(path, body, status, asked):
    one = asked()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(one.url + path, body, timeout=30)
    assert caught.value.code == status
    assert json.loads(caught.value.read())["error"]["message"]


def test_a_conversation_that_is_over_is_refused(wording, asked):
    one = asked([1])
    one.endpoint.end(one.url)
    with pytest.raises(urllib.error.HTTPError) as caught:
        one.say([user("hello")])
    assert caught.value.code == 410


@pytest.fixture(scope="module")
def calling(tmp_path_factory):
    import trl

    file = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    folder = tmp_path_factory.mktemp("calling")
    made = tiny.make_model(folder, template=file.read_text(encoding="utf-8"))
    return Wording(AutoTokenizer.from_pretrained(made))


TOOL = {
    "type": "function",
    "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}},
}


def test_a_call_of_a_tool_is_read_and_its_result_follows_the_sampled_tokens(calling):
    end = calling.tokenizer.eos_token_id
    text = '<tool_call>\n{"name": "add", "arguments": {"number": 3}}\n</tool_call>'
    call = [*ids_of(calling, text), end]
    one = Asked(calling, [call, [*ids_of(calling, "river"), end]])
    first = one.say([user("hello")], tools=[TOOL])
    assert first["finish_reason"] == "tool_calls"
    (made,) = first["message"]["tool_calls"]
    assert made["function"]["name"] == "add"
    assert json.loads(made["function"]["arguments"]) == {"number": 3}
    result = {"role": "tool", "tool_call_id": made["id"], "name": "add", "content": "4"}
    one.say([user("hello"), first["message"], result], tools=[TOOL])
    assert one.read[1][: len(one.read[0]) + len(call)] == one.read[0] + call
    assert "<tool_response>\n4\n</tool_response>" in calling.tokenizer.decode(one.read[1])
    assert one.tokens.outcome == "completed"
    one.endpoint.close()


def test_tools_that_the_template_cannot_carry_are_named(wording, asked):
    one = asked([1])
    with pytest.raises(urllib.error.HTTPError):
        one.say([user("hello")], tools=[TOOL])
    assert "TRL does not know how to read tool calls" in one.conversation.fault


def test_an_image_in_a_request_ends_the_run_and_is_never_dropped(asked):
    one = asked([1])
    text = {"type": "text", "text": "Look: "}
    with pytest.raises(urllib.error.HTTPError):
        one.say(
            [
                {
                    "role": "user",
                    "content": [text, {"type": "image_url", "image_url": {"url": "data:,"}}],
                }
            ]
        )
    assert "a part of type 'image_url'" in one.conversation.fault
    assert not one.read
    two = asked([1])
    two.say([{"role": "user", "content": [text, {"type": "text", "text": "it"}]}])
    assert not two.conversation.fault


def test_requests_that_wait_are_sampled_together_and_failures_reach_each():
    from concurrent.futures import ThreadPoolExecutor

    batches: list[int] = []
    asked: list[int] = []

    def generate(prompts, most):
        batches.append(len(prompts))
        asked.append(most)
        return [(prompt * 3, None) for prompt in prompts]

    policy = OwnPolicy(generate)
    with ThreadPoolExecutor(4) as threads:
        playing = [threads.submit(policy.sample, [n], 2) for n in range(4)]
        policy.until(playing)
    assert [future.result() for future in playing] == [([n, n], None) for n in range(4)]
    assert sum(batches) == 4
    assert set(asked) == {2}

    def broken(prompts, most):
        raise RuntimeError("out of memory")

    policy = OwnPolicy(broken)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(policy.sample, [1], 2)
        with pytest.raises(RuntimeError, match="out of memory"):
            policy.until([waiting])
        assert waiting.exception() is not None


def test_no_more_is_generated_for_a_turn_than_it_may_have(model, tmp_path):
    trainer = online.trainer_of(online.make_job(tmp_path, model, max_completion_length=500))
    made = generating(trainer)([[5, 6, 7], [8, 9]], 4)
    assert all(len(ids) <= 4 for ids, _ in made)
    assert trainer.generation_config.max_new_tokens == 500


def test_a_server_is_asked_with_the_tokens_and_the_trainers_sampling(model):
    stub = vllm.Stub(model)
    with vllm.serving(stub) as port:
        sampling = {"temperature": 0.7, "top_p": 0.9, "top_k": 0, "min_p": None}
        arguments = SimpleNamespace(
            vllm_server_base_url=f"http://127.0.0.1:{port}", generation_kwargs=None
        )
        trainer = SimpleNamespace(args=arguments, repetition_penalty=1.0, **sampling)
        ids, logprobs = ServerPolicy(trainer, model, 30).sample([5, 6, 7], 9)
        assert (ids, logprobs) == ([28] * 3, [-1.0] * 3)
        ((path, body),) = stub.calls
        stub.failing[path] = 500
        with pytest.raises(RefusedError, match=r"returned no tokens: .* answered 500"):
            ServerPolicy(trainer, model, 30).sample([5, 6, 7], 9)
    assert path == "/v1/completions"
    wanted = {"prompt": [[5, 6, 7]], "max_tokens": 9, "n": 1, "return_token_ids": True}
    assert body.items() >= {**wanted, "temperature": 0.7, "top_p": 0.9, "top_k": -1}.items()
