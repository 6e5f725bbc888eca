"""Rollout functions, tools and environments of the user's: TRL's form, and what is wrong with them."""

import math
from pathlib import Path

import pytest

pytest.importorskip("trl")

import online_runs as online
import scripted_rollouts as scripted
import vllm_stub as vllm
from transformers import AutoTokenizer

from fmtkit.core.errors import OptionError
from fmtkit.training.config import user_objects
from fmtkit.training.online.rollouts import contract, loading
from fmtkit.training.online.rollouts.contract import RolloutError, RolloutFunction
from fmtkit.training.vllm.rollout_settings import RolloutSettings, read_settings

GOOD = {
    "prompt_ids": [[1, 2], [3]],
    "completion_ids": [[5, 6], [7]],
    "logprobs": [[-1.0, -2], [None]],
}


@pytest.fixture(scope="session")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"logprobs": None},
        {"env_mask": [[1, 0], [1]]},
        {"env_mask": None},
        {"reward": [1.0, None], "note": "one for all"},
        {"logprobs": [[math.nan, -1], [-math.inf]]},
    ],
    ids=str,
)
def test_what_keeps_the_contract_has_no_problem(more):
    assert contract.problem_of({**GOOD, **more}, 2) is None


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (["a", "b"], "returned list; it must return a dict with prompt_ids"),
        ({"prompt_ids": []}, "returned no completion_ids, logprobs"),
        ({**GOOD, "completion_ids": [[5, 6]]}, "completion_ids has 1 entries for 2 prompts"),
        ({**GOOD, "completion_ids": "ab"}, "completion_ids is of type str"),
        ({**GOOD, "completion_ids": [[5, 6], []]}, r"completion_ids[1] is empty"),
        (
            {**GOOD, "completion_ids": [[5.0, 6], [7]]},
            r"completion_ids[0] must be a list of token ids",
        ),
        ({**GOOD, "prompt_ids": [[1], [True]]}, r"prompt_ids[1] must be a list of token ids"),
        ({**GOOD, "logprobs": [[-1.0], [-1.0]]}, r"logprobs[0] has 1 values for 2 tokens"),
        ({**GOOD, "logprobs": [[-1.0, -1.0]]}, "logprobs has 1 entries for 2 prompts"),
        (
            {**GOOD, "logprobs": [[[-1.0], [-2.0]], [[-1.0]]]},
            r"logprobs[0][0] is [-1.0]; it must be a number or None; flatten it",
        ),
        ({**GOOD, "env_mask": [[1, 2], [1]]}, r"env_mask[0][1] is 2; it must be 0 or 1"),
        ({**GOOD, "env_mask": [[1], [1]]}, r"env_mask[0] has 1 values for 2 tokens"),
        ({**GOOD, "reward": [1.0]}, "reward has 1 values for 2 prompts"),
    ],
    ids=str,
)
def test_what_breaks_the_contract_is_named(output, words):
    assert words in (contract.problem_of(output, 2) or "")


def test_the_correction_for_the_sampler_needs_its_probabilities():
    problem = contract.problem_of({**GOOD, "logprobs": None}, 2, needs_logprobs=True)
    assert "vllm_importance_sampling_correction" in (problem or "")


def test_a_function_that_fails_is_told_with_its_line(model, tmp_path):
    def broken(prompts, trainer):
        return {"prompt_ids": prompts[99]}

    trainer = scripted.make_trainer(model, tmp_path, rollout=RolloutFunction("env.broken", broken))
    with pytest.raises(
        RolloutError, match=r"env.broken raised IndexError: .*test_rollout_functions.py:\d+"
    ):
        trainer.train()


def test_columns_of_a_rollout_reach_the_rewards(model, tokenizer, tmp_path):
    seen = []

    def scored(completions, number, **_):
        seen.extend(number)
        return [float(n) for n in range(len(completions))]

    trainer = scripted.make_trainer(
        model, tmp_path, rollout=scripted.Script(tokenizer), max_steps=2
    )
    trainer.reward_funcs = [scored]
    trainer.train()
    assert seen == [0] * 4 + [1] * 4


def test_tokens_of_the_environment_are_not_learnt(model, tokenizer, tmp_path):
    """The same answers with half of the tokens masked have another loss, and count fewer tokens."""

    def masked(prompts, trainer):
        output = scripted.Script(tokenizer)(prompts, trainer)
        mask = [[n % 2 for n in range(len(ids))] for ids in output["completion_ids"]]
        return {**output, "env_mask": mask}

    whole = scripted.make_trainer(
        model, tmp_path / "a", rollout=scripted.Script(tokenizer), max_steps=1
    )
    part = scripted.make_trainer(model, tmp_path / "b", rollout=masked, max_steps=1)
    for trainer in (whole, part):
        trainer.train()
    lengths = [t.state.log_history[0]["completions/mean_length"] for t in (whole, part)]
    assert lengths[1] < lengths[0]
    assert scripted.losses(whole) != scripted.losses(part)


ENVIRONMENT = '''
def solve(model, processing_class, prompts, generation_config=None):
    raise AssertionError("a plan runs none of the user's code")


def say(prompts, trainer):
    ids = [trainer.processing_class(p[0]["content"])["input_ids"] for p in prompts]
    answer = trainer.processing_class("red apple")["input_ids"]
    return {"prompt_ids": ids, "completion_ids": [answer] * len(prompts), "logprobs": None}


class Board:
    """A game."""

    def reset(self, **row):
        return "go"

    def move(self, field: str) -> str:
        """Move.

        Args:
            field: Where to.
        """
        return "fine"


class Undescribed(Board):
    def jump(self, field):
        return "far"


class Endless:
    def move(self, field: str) -> str:
        """Move."""
        return "fine"


def make_board():
    return Board()


def add(a: int) -> int:
    """Add one.

    Args:
        a: A number.
    """
    return a + 1


def bare(a):
    return a
'''


@pytest.fixture
def places(tmp_path):
    (tmp_path / "math_env.py").write_text(ENVIRONMENT)
    return (tmp_path,)


def test_a_function_of_the_form_that_trl_gave_up_is_refused_by_the_plan(places):
    """Nothing of it runs: its parameters are read from its source."""
    wanted = "math_env.solve takes model, processing_class, prompts, generation_config, .* f(prompts, trainer)"
    with pytest.raises(OptionError, match=wanted.replace("(p", r"\(p").replace("r)", r"r\)")):
        loading.check_names({"rollout_func": "math_env.solve"}, places)


def test_environments_and_tools_are_loaded_by_name(places):
    section = {
        "environment_factory": {"board": "math_env.Board", "other": "math_env.make_board"},
        "tools": ["math_env.add"],
    }
    loading.check_names(section, places)
    found = loading.rollout_objects(section, places)
    assert found["environment_factory"]["board"]().reset() == "go"
    assert found["environment_factory"]["other"]().move("a1") == "fine"
    assert found["tools"][0](1) == 2
    one = loading.rollout_objects({"environment_factory": "math_env.Board"}, places)
    assert one["environment_factory"].__name__ == "Board"


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"environment_factory": "math_env.Endless"}, "Endless has no method reset"),
        (
            {"environment_factory": "math_env.Undescribed"},
            "Undescribed.jump cannot be offered as a tool",
        ),
        ({"tools": ["math_env.bare"]}, "bare cannot be offered as a tool"),
        ({"rollout_func": "math_env.OLD_NAME"}, "has no 'OLD_NAME'"),
        ({"tools": ["nowhere.add"]}, "no nowhere.py"),
    ],
)
def test_what_cannot_be_used_is_told(places, section, words):
    with pytest.raises(OptionError, match=words):
        loading.rollout_objects(section, places)


def test_a_wrong_name_is_told_without_running_the_users_file(tmp_path):
    (tmp_path / "env.py").write_text("raise SystemExit('ran')\ndef play(): pass\n")
    with pytest.raises(OptionError, match=r"did you mean 'play'"):
        loading.check_names({"rollout_func": "env.plai"}, [tmp_path])


def test_a_configured_rollout_runs_from_a_job(model, tmp_path):
    work = online.make_job(tmp_path, model, rollout_func="math_env.say", max_completion_length=12)
    (tmp_path / "math_env.py").write_text(ENVIRONMENT)
    for line in online.steps(work):
        assert line["completions/mean_length"] == line["completions/max_length"]


def test_settings_are_read_from_the_section_and_checked(tmp_path):
    section = {"async_prefetch": True, "prefetch_depth": 2, "replay_buffer_size": 4, "tools": None}
    settings = read_settings(section, run=tmp_path)
    assert settings == RolloutSettings(
        async_prefetch=True, prefetch_depth=2, folder=tmp_path / "vllm-adapters"
    )
    with pytest.raises(OptionError, match=r"trl.vllm_sync_interval: 0: takes a number from 1"):
        read_settings({"vllm_sync_interval": 0}, run=tmp_path)


def test_the_example_of_the_documentation_trains_and_learns_its_own_tokens_alone(model, tmp_path):
    page = Path(__file__).parents[1] / "docs" / "rollouts.md"
    text = page.read_text(encoding="utf-8")
    example = text.partition("<!-- file: guessing.py -->")[2].partition("```python\n")[2]
    (tmp_path / "guessing.py").write_text(example.partition("```")[0])
    rollout = loading.rollout_objects({"rollout_func": "guessing.play"}, [tmp_path])["rollout_func"]
    with vllm.serving(vllm.Stub(model)) as port:
        trainer = scripted.make_trainer(
            model, tmp_path, rollout=rollout, max_steps=1, vllm_server_timeout=0
        )
        client = vllm.Client(f"http://127.0.0.1:{port}", model)
        vllm.attach(trainer, client)
        trainer.vllm_generation.sync_weights = lambda: None
        trainer.reward_funcs = [user_objects.load_function("r", "guessing.short", [tmp_path])]
        trainer.train()
    log = trainer.state.log_history[0]
    assert log["completions/mean_length"] == 3
    assert log["reward"] == -3
