"""Conversations that an agent plays: their tokens put together again, their rewards, and what fails."""

import json
import math
from contextlib import contextmanager
from types import SimpleNamespace

import gym_standin as standin
import pytest
import tiny_training as tiny

from fmtkit.core import foreign_calls, http_client
from fmtkit.runners.nemo_gym import head
from fmtkit.runners.nemo_gym.rollout import GymRollout, reconstruct
from fmtkit.runners.nemo_gym.settings import ADVICE, KIND, NO_TOKENS, GymSettings
from fmtkit.training.building.callbacks import TrainingError
from fmtkit.training.online.conversations.environment import EnvReward
from fmtkit.training.online.conversations.tokenized_conversation import (
    COMPLETED,
    CUT,
    MISMATCH,
    NOTHING,
)
from fmtkit.training.online.rollouts.contract import problem_of

ROW = {"responses_create_params": {"input": "warm?"}, "answer": "tokens [6]"}
PROMPT = [{"role": "user", "content": "warm?"}]


def reward_of(max_turns):
    return EnvReward(max_turns, KIND, ADVICE, frozenset({NO_TOKENS}))


def call(read, written, logprobs):
    return {
        "type": "function_call",
        "prompt_token_ids": read,
        "generation_token_ids": written,
        "generation_log_probs": logprobs,
    }


WEATHER = [
    {"type": "reasoning", "id": "r", "summary": []},
    call([1, 2, 3], [4, 5], [-0.1, -0.2]),
    {"type": "function_call_output", "call_id": "c", "output": "cold"},
    call([1, 2, 3, 4, 5, 9, 9], [6], [-0.3]),
]


def test_the_tokens_of_a_conversation_are_those_of_its_calls_and_what_lies_between():
    conversation = reconstruct(WEATHER)
    assert conversation.prompt_ids == [1, 2, 3]
    assert conversation.completion_ids == [4, 5, 9, 9, 6]
    assert conversation.env_mask == [1, 1, 0, 0, 1]
    assert conversation.logprobs == [-0.1, -0.2, 0.0, 0.0, -0.3]
    assert (conversation.turns, conversation.outcome) == (2, COMPLETED)


def test_a_conversation_is_cut_at_the_limit_and_says_so():
    conversation = reconstruct(WEATHER)
    conversation.cut(4)
    assert (conversation.completion_ids, conversation.env_mask) == ([4, 5, 9, 9], [1, 1, 0, 0])
    assert (conversation.logprobs, conversation.outcome) == ([-0.1, -0.2, 0.0, 0.0], CUT)
    same = reconstruct(WEATHER)
    same.cut(5)
    assert same == reconstruct(WEATHER)


def test_log_probabilities_that_are_not_told_are_no_numbers():
    conversation = reconstruct([call([1], [2, 3], [-0.5]), call([1, 2, 3], [4], None)])
    assert conversation.logprobs[0] == -0.5
    assert [math.isnan(value) for value in conversation.logprobs] == [False, True, True]
    longer = reconstruct([call([1], [2], [-0.5, -0.6])])
    assert longer.logprobs == [-0.5]


def test_a_turn_that_does_not_follow_ends_the_conversation():
    conversation = reconstruct([*WEATHER, call([1, 2, 3, 4, 8], [7], [-1.0])])
    assert conversation.completion_ids == [4, 5, 9, 9, 6]
    assert (conversation.turns, conversation.outcome) == (2, MISMATCH)


def test_an_item_without_tokens_is_part_of_the_call_that_ends_after_it():
    assert reconstruct([item for item in WEATHER if "generation_token_ids" in item]) == reconstruct(
        WEATHER
    )
    assert reconstruct([{"type": "message"}]) is None
    assert reconstruct([call([1], [], [])]).is_empty


@pytest.mark.parametrize(
    ("item", "words"),
    [
        (call([], [1], [0.0]), "has no prompt_token_ids"),
        (call([1], ["token_id:4"], [0.0]), "generation_token_ids of the answer is not a list"),
        (call(None, [4], [0.0]), "has no prompt_token_ids"),
    ],
)
def test_tokens_that_are_no_tokens_are_refused(item, words):
    with pytest.raises(http_client.CallError, match=words):
        reconstruct([item])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    from transformers import AutoTokenizer

    folder = tiny.make_model(tmp_path_factory.mktemp("model"), template=tiny.TEMPLATE)
    return AutoTokenizer.from_pretrained(folder)


@contextmanager
def playing(tokenizer, limit=64, run_timeout=5, retries=0, **options):
    with standin.running(**options) as gym:
        directory = head.read(f"http://127.0.0.1:{gym.head_port}")
        settings = GymSettings(run_timeout=run_timeout)
        find = lambda s, a: head.agent_server(directory, s, a).url  # noqa: E731
        play = GymRollout(settings, find, tokenizer, retries)
        trainer = SimpleNamespace(
            temperature=0.7, top_p=0.9, max_completion_length=limit, chat_template_kwargs={}
        )

        def rollout(*rows):
            made = [
                {
                    "prompt": PROMPT,
                    "nemo_gym_row": json.dumps(row),
                    "nemo_gym_server": "arithmetic",
                    "nemo_gym_agent": None,
                }
                for row in rows
            ]
            output = play([PROMPT] * len(rows), trainer, made)
            assert problem_of(output, len(rows), needs_logprobs=True) is None
            return output

        rollout.timings = play.timings
        yield gym, rollout


def test_an_agent_plays_each_row_and_tells_its_reward(tokenizer):
    with playing(tokenizer) as (gym, rollout):
        output = rollout(ROW, ROW | {"answer": "no"})
        asked = gym.posts("arithmetic_agent/run")
    assert output["prompt_ids"] == [[1, 2, 3]] * 2
    assert output["completion_ids"] == [[4, 5, 9, 9, 6]] * 2
    assert output["env_mask"] == [[1, 1, 0, 0, 1]] * 2
    assert output["env_reward"] == [1.0, 0.0]
    assert output["num_turns"] == [2, 2]
    assert output["nemo_gym_outcome"] == [COMPLETED] * 2
    assert asked[0]["responses_create_params"] == {
        "input": "warm?",
        "temperature": 0.7,
        "top_p": 0.9,
        "max_output_tokens": 64,
    }


def test_a_limit_of_tokens_that_the_row_sets_is_kept(tokenizer):
    with playing(tokenizer) as (gym, rollout):
        rollout(
            ROW
            | {
                "responses_create_params": {
                    "input": "q",
                    "max_output_tokens": 7,
                    "temperature": 0.1,
                }
            }
        )
        params = gym.posts("arithmetic_agent/run")[0]["responses_create_params"]
    assert (params["max_output_tokens"], params["temperature"]) == (7, 0.7)


def test_rows_of_equal_prompts_keep_their_own_conversations(tokenizer):
    def play(row, number):
        return [([1, 2], [row["level"]], [-0.5])]

    with playing(tokenizer, play=play) as (_, rollout):
        output = rollout(*(ROW | {"level": level} for level in range(100)))
    assert output["completion_ids"] == [[level] for level in range(100)]


def test_a_conversation_that_fails_teaches_nothing_and_has_no_reward(tokenizer):
    with playing(tokenizer, run_timeout=0.3) as (_, rollout):
        output = rollout(ROW, ROW | {"fault": "500"}, ROW | {"fault": "slow"}, {"answer": "4"})
    rendered = tokenizer.apply_chat_template(PROMPT, add_generation_prompt=True)["input_ids"]
    assert output["prompt_ids"] == [[1, 2, 3], *[rendered] * 3]
    assert output["completion_ids"][1:] == [[tokenizer.eos_token_id]] * 3
    assert output["env_mask"][1:] == [[0]] * 3
    assert output["logprobs"][1:] == [[0.0]] * 3
    assert output["env_reward"] == [1.0, None, None, None]
    assert output["num_turns"] == [2, 0, 0, 0]
    words = ["completed", "answered 500", "did not answer within 0.3 s", "answered 422"]
    for outcome, word in zip(output["nemo_gym_outcome"], words, strict=True):
        assert word in outcome


def test_a_conversation_that_fails_for_a_moment_is_played_again(tokenizer, monkeypatch):
    monkeypatch.setattr(foreign_calls, "FIRST_PAUSE", 0.0)
    refusals = iter([standin.Refused(500, "busy"), standin.Refused(500, "busy")])

    def twice_busy(row, number):
        for refusal in refusals:
            raise refusal
        return [([1, 2], [7], [-0.5])]

    with playing(tokenizer, retries=2, play=twice_busy) as (gym, rollout):
        output = rollout(ROW)
        assert len(gym.posts("arithmetic_agent/run")) == 3
    assert output["completion_ids"] == [[7]]
    assert output["nemo_gym_outcome"] == [COMPLETED]


def test_conversations_that_failed_and_those_that_the_gym_masks_say_why(tokenizer):
    reward, logged = reward_of(3), {}
    with playing(tokenizer, run_timeout=0.5) as (_, rollout):
        output = rollout(ROW, ROW | {"fault": "slow"}, ROW | {"mask_sample": True})
        assert "of 0.5 s, for 'warm?'" in rollout.timings.finding()
    columns = {name: output[name] for name in ("env_reward", "num_turns", "nemo_gym_outcome")}
    assert reward(log_extra=logged.__setitem__, **columns) == [1.0, None, None]
    (row, reason), *others = reward.failures.take().items()
    assert (row, others) == (1, [])
    assert "did not answer within 0.5 s" in reason
    assert logged == {"masked": [None, None, "masked by the environment"]}


def test_a_model_server_that_tells_no_tokens_is_named(tokenizer):
    def silent(row, number):
        return [(None, None, None)]

    with playing(tokenizer, play=silent) as (_, rollout):
        output = rollout(ROW)
    with pytest.raises(TrainingError, match="set return_token_id_information: true"):
        scored(output, reward_of(10))
    assert output["nemo_gym_outcome"] == [f"failed: {NO_TOKENS}"]


def test_a_model_that_writes_nothing_is_no_conversation(tokenizer):
    with playing(tokenizer, play=lambda row, number: [([1], [], [])]) as (_, rollout):
        assert rollout(ROW, ROW)["nemo_gym_outcome"] == [f"failed: {NOTHING}"] * 2


def scored(output, reward, log=None):
    columns = {name: output[name] for name in ("env_reward", "num_turns", "nemo_gym_outcome")}
    return reward(prompts=[], completions=[], log_metric=log, **columns)


def test_the_reward_passes_on_what_the_agent_told_and_counts(tokenizer):
    logged = {}
    with playing(tokenizer, limit=3) as (_, rollout):
        output = rollout(ROW, ROW | {"fault": "500"})
    assert scored(output, reward_of(1), logged.__setitem__) == [1.0, None]
    assert logged == {
        "nemo_gym/rollout_errors": 1.0,
        "nemo_gym/prefix_mismatch": 0.0,
        "nemo_gym/cut": 1.0,
        "nemo_gym/masked": 0.0,
        "nemo_gym/num_turns": 1.0,
        "nemo_gym/over_max_turns": 1.0,
    }


def test_a_conversation_that_the_gym_masks_has_no_reward_and_no_token_that_is_trained_on(tokenizer):
    logged = {}
    with playing(tokenizer) as (_, rollout):
        output = rollout(ROW, ROW | {"mask_sample": True}, ROW | {"mask_sample": False})
    assert scored(output, reward_of(3), logged.__setitem__) == [1.0, None, 1.0]
    assert output["completion_ids"] == [[4, 5, 9, 9, 6]] * 3
    assert output["env_mask"] == [[1, 1, 0, 0, 1], [0] * 5, [1, 1, 0, 0, 1]]
    assert (logged["nemo_gym/masked"], logged["nemo_gym/rollout_errors"]) == (1.0, 0.0)


def test_conversations_that_all_fail_end_the_run(tokenizer):
    with playing(tokenizer) as (_, rollout):
        output = rollout(*[ROW | {"fault": "500"}] * 3)
    with pytest.raises(TrainingError, match=r"all 3 conversations by /run failed.* 500.*--resume"):
        scored(output, reward_of(10))


def test_a_dead_agent_fails_every_conversation_after_some_tries(tokenizer, monkeypatch):
    monkeypatch.setattr(http_client, "PAUSES", (0.01, 0.01))
    with playing(tokenizer) as (_, rollout):
        pass
    assert "no server at" in rollout(ROW)["nemo_gym_outcome"][0]
