"""Conversations with tools and environments, made ahead: the samples, masks and ratios of those made in place."""

import re
import threading
from pathlib import Path

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
import tiny_training as tiny
import torch
import trl
from datasets import Dataset

from fmtkit.training.online.rollouts.contract import RolloutError
from fmtkit.training.online.rollouts.conversations_ahead import ConversationRunner
from fmtkit.training.run import process
from fmtkit.training.vllm.rollout_settings import RolloutSettings

AHEAD = RolloutSettings(async_prefetch=True)
ENDING = "<|im_end|>"


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """A tiny model whose template can write tool calls."""
    process.quiet()
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    folder = tmp_path_factory.mktemp("caller")
    return tiny.make_model(folder, template=template.read_text(encoding="utf-8"))


class Counter:
    """Counts what it is told, from a start that the row chooses; says where it stands."""

    made = 0
    fails_at = None

    def __init__(self) -> None:
        type(self).made += 1

    def reset(self, prompt, **row):
        self.total = len(prompt[0]["content"])
        self.steps = 0
        self.threads = {threading.current_thread().name}
        return f" from {self.total}"

    def add(self, number: int) -> str:
        """Add a number.

        Args:
            number: What to add.
        """
        self.steps += 1
        self.threads.add(threading.current_thread().name)
        if self.steps == self.fails_at:
            raise ValueError("the counter is stuck")
        self.total += number
        return f"total {self.total}"

    def get_reward(self) -> float:
        return float(self.total % 7)


class Sampler:
    """Calls the tool `turns` times and then says where it stands, by what stands in the prompt alone.

    Its log-probabilities are those of the weights that it was sent last.
    """

    turns = 2

    def __init__(self, trainer, *, told: bool = True) -> None:
        self.trainer = trainer
        self.tokenizer = trainer.processing_class
        self.told = told
        self.lock = threading.Lock()
        self.sent: list[int] = []
        self.asked: list[tuple[int, str]] = []
        self.policy = None

    def sync_weights(self) -> None:
        import copy

        self.sent.append(self.trainer.state.global_step)
        if self.told:
            # The body and the head: TRL has put a method of its own in the place of `forward`.
            model = self.trainer.model
            self.policy = (copy.deepcopy(model.model), copy.deepcopy(model.lm_head))

    def generate(self, prompts, images=None, num_generations=1, profiler=None):
        with self.lock:
            version, name = self.sent[-1], threading.current_thread().name
            self.asked += [(version, name)] * len(prompts)
            answers = [self.answer(ids, number) for number, ids in enumerate(prompts)]
            return (
                None,
                answers,
                [self.probabilities(*pair) for pair in zip(prompts, answers, strict=True)],
                None,
            )

    def answer(self, prompt: list[int], number: int) -> list[int]:
        text = self.tokenizer.decode(prompt)
        done = text.count("<tool_response>")
        if done < self.turns:
            call = f'{{"name": "add", "arguments": {{"number": {number + done + len(text) % 5}}}}}'
            said = f"<tool_call>\n{call}\n</tool_call>{ENDING}"
        else:
            said = f"{re.findall(r'total [0-9]+', text)[-1]}{ENDING}"
        return self.tokenizer(said, add_special_tokens=False)["input_ids"]

    def probabilities(self, prompt: list[int], answer: list[int]) -> list[list[float]]:
        if not self.told:
            return [[-5.7]] * len(answer)
        body, head = self.policy
        with torch.no_grad():
            states = body(torch.tensor([prompt + answer])).last_hidden_state
            logprobs = head(states)[0, len(prompt) - 1 : -1].log_softmax(-1)
        return [[float(p)] for p in logprobs[range(len(answer)), answer]]


def trained(
    model, folder, rollouts=None, sampler=Sampler, told=True, environment=Counter, **arguments
):
    """Train with a sampler in vLLM's place; return what the rewards saw, and the trainer."""
    seen: list[dict] = []

    def noted(prompts, completions, completion_ids, environments=None, **_):
        states = [(e.total, e.steps, sorted(e.threads)) for e in environments or ()]
        seen.append(
            {
                "prompts": prompts,
                "conversations": completions,
                "ids": completion_ids,
                "states": states,
            }
        )
        return [float(len(ids) % 5) for ids in completion_ids]

    given = {"environment_factory": environment} if isinstance(environment, (type, dict)) else {}
    given |= arguments.pop("more", {})
    trainer = scripted.make_trainer(
        model,
        folder,
        rollouts=rollouts,
        more=given,
        max_completion_length=512,
        vllm_importance_sampling_correction=True,
        **arguments,
    )
    trainer.reward_funcs[0] = noted
    trainer.use_vllm, trainer.vllm_mode = True, "server"
    trainer.vllm_generation, trainer._last_loaded_step = sampler(trainer, told=told), -1
    trainer.interval = None
    trainer.train()
    return seen, trainer


def said(seen: list[dict]) -> list[dict]:
    """Return what was said, and where each environment stood when it was asked for its reward."""
    return [{**batch, "states": [state[:2] for state in batch["states"]]} for batch in seen]


def logged(trainer, name: str) -> list[float]:
    return [log[name] for log in trainer.state.log_history if "loss" in log]


def add(number: int) -> str:
    """Add a number to eight.

    Args:
        number: What to add.
    """
    return f"total {8 + number}"


def say(number: int) -> str:
    """Say a number.

    Args:
        number: The number.
    """
    return str(number)


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize(
    ("environment", "more"),
    [(Counter, {}), (None, {"tools": [add]}), (Counter, {"tools": [say]})],
    ids=["environment", "tools", "both"],
)
def test_conversations_and_losses_are_those_without_prefetch(
    caller, tmp_path, environment, more, depth
):
    arguments = {"told": False, "environment": environment, "more": more}
    plain, before = trained(caller, tmp_path / "a", **arguments)
    settings = RolloutSettings(async_prefetch=True, prefetch_depth=depth)
    ahead, after = trained(caller, tmp_path / "b", settings, **arguments)
    assert said(ahead) == said(plain)
    assert scripted.losses(after) == scripted.losses(before)
    assert any(scripted.losses(before))
    for name in ("tools/call_frequency", "completions/mean_length", "num_tokens"):
        assert logged(after, name) == logged(before, name)
    assert logged(after, "tools/call_frequency") == [2.0] * 4
    names = [name for _, name in after.vllm_generation.asked]
    quarter = len(names) // 4
    assert set(names[:quarter]) == {"MainThread"}
    assert set(names[quarter:]) == {"fmtkit-prefetch"}


def test_an_environment_plays_in_the_thread_and_is_asked_for_its_reward(caller, tmp_path):
    seen, trainer = trained(caller, tmp_path, AHEAD, told=False)
    threads = [{name for state in batch["states"] for name in state[2]} for batch in seen]
    assert threads == [{"MainThread"}, *[{"fmtkit-prefetch"}] * 3]
    for batch, reward in zip(seen, logged(trainer, "rewards/Counter/mean"), strict=True):
        totals = [total % 7 for total, _, _ in batch["states"]]
        assert reward == pytest.approx(sum(totals) / len(totals))
    told = [prompt[0]["content"] for batch in seen for prompt in batch["prompts"]]
    assert all(re.fullmatch(r".* from \d+", text) for text in told)


class Doubler(Counter):
    """Adds everything twice."""

    def add(self, number: int) -> str:
        """Add a number twice.

        Args:
            number: What to add.
        """
        return super().add(2 * number)


@pytest.mark.slow
def test_each_row_plays_in_the_environment_that_it_names(caller, tmp_path):
    kinds = {"counter": Counter, "doubler": Doubler}
    rows = [{**row, "environment": [*kinds][n // 2 % 2]} for n, row in enumerate(scripted.rows(48))]
    more = {"train_dataset": Dataset.from_list(rows)}
    arguments = {"told": False, "environment": kinds, "more": more}
    plain, before = trained(caller, tmp_path / "a", **arguments)
    ahead, after = trained(caller, tmp_path / "b", AHEAD, **arguments)
    assert said(ahead) == said(plain)
    assert scripted.losses(after) == scripted.losses(before)


def test_the_thread_has_nothing_of_the_trainer_that_conversations_do_not_read(caller, tmp_path):
    _, trainer = trained(caller, tmp_path, told=False, max_steps=1)
    trainer.added_later = {}
    conversations = ConversationRunner(trainer, trainer.processing_class, {})
    # TRL's generation writes these: they are the thread's own, all else is read.
    own = ("state", "vllm_generation", "_metrics", "model")
    assert all(getattr(conversations, name) is not getattr(trainer, name) for name in own)
    for name in ("optimizer", "lr_scheduler", "train_dataset", "_buffered_inputs", "added_later"):
        assert hasattr(trainer, name)
        assert not hasattr(conversations, name)


def test_environments_are_used_again(caller, tmp_path):
    Counter.made = 0
    trained(caller, tmp_path, AHEAD, told=False, max_steps=6)
    # One probe and the four of the first batch share a pool; two more batches are never free at once.
    assert Counter.made == 4 + 2 * 4


@pytest.mark.slow
def test_the_ratios_are_to_the_weights_that_made_the_conversation(caller, tmp_path):
    """At lag 0 they are 1; ahead, they tell how far one step has moved, on the model's tokens alone."""
    _, plain = trained(caller, tmp_path / "a", learning_rate=5e-3)
    ahead_seen, ahead = trained(caller, tmp_path / "b", AHEAD, learning_rate=5e-3)
    name = "sampling/sampling_logp_difference/max"
    assert logged(plain, name) == pytest.approx([0.0] * 4, abs=1e-4)
    difference = logged(ahead, name)
    assert difference[0] == pytest.approx(0.0, abs=1e-4)
    assert all(value > 1e-3 for value in difference[1:])
    versions = ahead.vllm_generation.asked
    per_batch = len(versions) // len(ahead_seen)
    # Both turns of every conversation are of one version of the weights: that of the step before.
    assert [
        {v for v, _ in versions[n : n + per_batch]} for n in range(0, len(versions), per_batch)
    ] == [{0}, {0}, {1}, {2}]


@pytest.mark.slow
def test_an_evaluation_beside_conversations_made_ahead_plays_its_own(caller, tmp_path):
    held = scripted.dataset(4)
    arguments = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4}
    plain, before = trained(
        caller, tmp_path / "a", told=False, more={"eval_dataset": held}, **arguments
    )
    ahead, after = trained(
        caller, tmp_path / "b", AHEAD, told=False, more={"eval_dataset": held}, **arguments
    )
    assert said(ahead) == said(plain)
    assert scripted.losses(after) == scripted.losses(before)


class Stuck(Counter):
    """Raises in the second of three steps."""

    fails_at = 2


def test_a_tool_that_raises_tells_the_model_and_is_counted(caller, tmp_path):
    seen, trainer = trained(caller, tmp_path, AHEAD, told=False, environment=Stuck, sampler=Three)
    assert logged(trainer, "tools/failure_frequency") == pytest.approx([1 / 3] * 4)
    assert "the counter is stuck" in str(seen[-1]["conversations"][0])


class Three(Sampler):
    turns = 3


class Unready(Counter):
    """Cannot begin its ninth episode, the first of the third batch."""

    resets = 0

    def reset(self, **row):
        type(self).resets += 1
        if self.resets == 9:
            raise OSError("no board left")
        return super().reset(**row)


def test_an_environment_that_cannot_begin_ends_the_run_where_its_answers_are_due(caller, tmp_path):
    Unready.resets = 0
    with pytest.raises(
        RolloutError, match=r"prefetched conversation raised OSError: no board left \(.*py:\d+"
    ):
        trained(caller, tmp_path, AHEAD, told=False, environment=Unready)
    assert Unready.resets == 9
    assert not [t for t in threading.enumerate() if t.name == "fmtkit-prefetch"]


class Own(Counter):
    """Brings its own prompt, as TRL allows: its rows have none."""

    def reset(self, start, **row):
        assert not row
        return super().reset([{"content": " " * start}])


@pytest.mark.parametrize("settings", [None, AHEAD], ids=["plain", "ahead"])
def test_an_environment_may_bring_the_prompt(caller, tmp_path, settings):
    rows = Dataset.from_list([{"start": number} for number in range(48)])
    more = {"train_dataset": rows}
    seen, _ = trained(
        caller, tmp_path, settings, told=False, environment=Own, more=more, max_steps=2
    )
    told = [prompt[0]["content"] for batch in seen for prompt in batch["prompts"]]
    assert all(re.fullmatch(r" from \d+", text) for text in told)
