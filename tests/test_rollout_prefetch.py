"""Prefetch: the same answers and losses as without, made while the batch before trains."""

import threading

import pytest

pytest.importorskip("trl")

import scripted_rollouts as scripted
from transformers import AutoTokenizer, TrainerCallback

from fmtkit.training.online.rollouts import producer
from fmtkit.training.online.rollouts.contract import RolloutError
from fmtkit.training.online.rollouts.producer import LookAhead, Worker
from fmtkit.training.online.rollouts.trainer import RolloutTrainer
from fmtkit.training.vllm.rollout_settings import RolloutSettings

AHEAD = RolloutSettings(async_prefetch=True)


@pytest.fixture(scope="session")
def tokenizer(model):
    return AutoTokenizer.from_pretrained(model)


def trained(model, folder, tokenizer, rollouts=None, **arguments):
    script = scripted.Script(tokenizer)
    trainer = scripted.make_trainer(model, folder, rollout=script, rollouts=rollouts, **arguments)
    trainer.train()
    return script, trainer


@pytest.mark.parametrize(
    ("depth", "arguments"),
    [
        (1, {}),
        # Each of the two stands in one of the others too.
        pytest.param(2, {}, marks=pytest.mark.slow),
        pytest.param(1, {"gradient_accumulation_steps": 2}, marks=pytest.mark.slow),
        (1, {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 6}),
        (2, {"gradient_accumulation_steps": 3, "steps_per_generation": 2, "max_steps": 4}),
    ],
    ids=str,
)
def test_batches_and_losses_are_those_without_prefetch(
    model, tokenizer, tmp_path, arguments, depth
):
    plain, before = trained(model, tmp_path / "a", tokenizer, **arguments)
    settings = RolloutSettings(async_prefetch=True, prefetch_depth=depth)
    ahead, after = trained(model, tmp_path / "b", tokenizer, settings, **arguments)
    assert ahead.asked == plain.asked
    assert scripted.losses(after) == scripted.losses(before)
    assert any(loss != 0 for loss in scripted.losses(after))
    assert ahead.threads[0] == "MainThread"
    assert set(ahead.threads[1:]) == {"fmtkit-prefetch-call"}


class Steps(TrainerCallback):
    """Notes the end of each step among the events of a script, and lets who waits for it go on."""

    def __init__(self, events: list[str]) -> None:
        self.events = events
        self.done = [threading.Event() for _ in range(8)]

    def on_step_end(self, args, state, control, **_):
        self.events.append(f"step {state.global_step}")
        self.done[state.global_step].set()


def test_answers_are_made_while_the_batch_before_trains(model, tokenizer, tmp_path):
    """Each generation waits, in its middle, for the end of the step that runs beside it."""
    script = scripted.Script(tokenizer)
    steps = Steps(script.events)

    def pause(number: int) -> None:
        assert number == 0 or steps.done[number].wait(60), "nothing trains beside the generation"

    script.pause = pause
    trainer = scripted.make_trainer(
        model, tmp_path, rollout=script, rollouts=AHEAD, max_steps=3, more={"callbacks": [steps]}
    )
    trainer.train()
    assert script.events == [
        *("begin 0", "end 0", "begin 1", "step 1", "end 1", "begin 2", "step 2", "end 2", "step 3")
    ]


def test_without_prefetch_nothing_runs_beside_a_generation(model, tokenizer, tmp_path):
    script = scripted.Script(tokenizer)
    steps = Steps(script.events)
    trainer = scripted.make_trainer(
        model, tmp_path, rollout=script, max_steps=2, more={"callbacks": [steps]}
    )
    trainer.train()
    assert script.events == ["begin 0", "end 0", "step 1", "begin 1", "end 1", "step 2"]


def test_a_failure_in_the_thread_ends_the_training_where_its_answers_are_due(
    model, tokenizer, tmp_path
):
    def fail(number: int) -> None:
        if number == 2:
            raise KeyError("no such board")

    script = scripted.Script(tokenizer, fail)
    trainer = scripted.make_trainer(model, tmp_path, rollout=script, rollouts=AHEAD)
    with pytest.raises(
        RolloutError, match=r"rollout_func raised KeyError: 'no such board' \(.*py:\d+"
    ):
        trainer.train()
    assert script.threads[2] == "fmtkit-prefetch-call"
    assert trainer.state.global_step == 2
    assert trainer.producer is None
    assert not [t for t in threading.enumerate() if t.name == "fmtkit-prefetch"]


@pytest.mark.slow
def test_an_evaluation_makes_its_own_answers_and_leaves_the_queue_alone(model, tokenizer, tmp_path):
    held_out = scripted.dataset(4).map(
        lambda row: {"prompt": [{"role": "user", "content": "held " + row["prompt"][0]["content"]}]}
    )

    def run(folder, rollouts):
        return trained(
            model,
            folder,
            tokenizer,
            rollouts,
            more={"eval_dataset": held_out},
            eval_strategy="steps",
            eval_steps=2,
            per_device_eval_batch_size=4,
        )

    plain, before = run(tmp_path / "a", None)
    ahead, after = run(tmp_path / "b", AHEAD)
    assert scripted.losses(after) == scripted.losses(before)
    held = [t for t, asked in zip(ahead.threads, ahead.asked, strict=True) if "held" in asked[0]]
    assert held == ["MainThread"] * 4
    assert sorted(ahead.asked) == sorted(plain.asked)
    train = [asked for asked in ahead.asked if "held" not in asked[0]]
    assert train == [asked for asked in plain.asked if "held" not in asked[0]]


def test_the_first_batch_of_an_epoch_is_made_in_place(model, tokenizer, tmp_path):
    settings = RolloutSettings(async_prefetch=True, prefetch_depth=2)
    plain, before = trained(model, tmp_path / "a", tokenizer, count=6, max_steps=6)
    ahead, after = trained(model, tmp_path / "b", tokenizer, settings, count=6, max_steps=6)
    assert ahead.asked == plain.asked
    assert scripted.losses(after) == scripted.losses(before)
    assert [t == "MainThread" for t in ahead.threads] == [True, False, False] * 2


def test_a_resumed_run_goes_on_ahead(model, tokenizer, tmp_path):
    """Resumed in the middle of a generation batch: both runs then begin a new one with what is left."""
    arguments = {
        "steps_per_generation": 2,
        "max_steps": 3,
        "save_strategy": "steps",
        "save_steps": 3,
    }
    trained(model, tmp_path, tokenizer, AHEAD, **arguments)

    def resumed(rollouts):
        script = scripted.Script(tokenizer)
        trainer = scripted.make_trainer(
            model,
            tmp_path / "again",
            rollout=script,
            rollouts=rollouts,
            steps_per_generation=2,
            max_steps=8,
        )
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
        return script, scripted.losses(trainer)

    plain, before = resumed(None)
    ahead, after = resumed(AHEAD)
    assert ahead.asked == plain.asked
    assert after == before
    assert set(ahead.threads[1:]) == {"fmtkit-prefetch-call"}


class Again(RolloutTrainer):
    """Brings the first prompt of each batch in the place of its last."""

    asked = 0

    def rows_ahead(self, rows):
        self.asked += 1
        assert len(rows) == 4
        return [*rows[:2], *rows[:2]]


def test_rows_that_replace_others_are_chosen_once_and_made_ahead(model, tokenizer, tmp_path):
    plain, before = trained(model, tmp_path / "a", tokenizer, kind=Again)
    ahead, after = trained(model, tmp_path / "b", tokenizer, AHEAD, kind=Again)
    assert ahead.asked == plain.asked
    assert all(asked[:2] == asked[2:] for asked in ahead.asked)
    assert scripted.losses(after) == scripted.losses(before)
    assert before.asked == after.asked == 4
    assert set(ahead.threads[1:]) == {"fmtkit-prefetch-call"}


def test_rows_come_with_their_own_answers(model, tokenizer, tmp_path):
    """A function that takes rows gets those of the batch that it makes, not of the one that trains."""

    class WithRows(scripted.Script):
        takes_rows = True

        def __call__(self, prompts, trainer, rows):
            assert [row["prompt"] for row in rows] == prompts
            return super().__call__(prompts, trainer)

    script = WithRows(tokenizer)
    scripted.make_trainer(model, tmp_path, rollout=script, rollouts=AHEAD).train()
    assert len(script.asked) == 4


def test_what_is_logged_says_how_old_the_answers_were(model, tokenizer, tmp_path):
    settings = RolloutSettings(async_prefetch=True, prefetch_depth=2)
    _, trainer = trained(model, tmp_path, tokenizer, settings, max_steps=5)
    ages = [log.get("prefetch/age_in_steps") for log in trainer.state.log_history if "loss" in log]
    assert ages == [None, 1, 2, 2, 2]


def test_a_generation_that_hangs_does_not_keep_the_run_from_ending(
    model, tokenizer, tmp_path, monkeypatch
):

    monkeypatch.setattr(producer, "JOIN_SECONDS", 0.05)
    never = threading.Event()
    script = scripted.Script(tokenizer, lambda number: number and never.wait(60))
    trainer = scripted.make_trainer(
        model, tmp_path, rollout=script, rollouts=AHEAD, more={"callbacks": [Interrupting()]}
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    never.set()


class Interrupting(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        raise KeyboardInterrupt


def test_the_worker_gives_results_and_failures_in_order():
    worker = Worker("test")
    futures = [worker.submit(job) for job in (lambda: 1, lambda: 1 / 0, lambda: 3)]
    assert futures[2].result() == 3
    assert futures[0].result() == 1
    with pytest.raises(ZeroDivisionError):
        futures[1].result()
    worker.close()


def test_a_closed_worker_cancels_what_has_not_begun():
    worker, begun, gate = Worker("test"), threading.Event(), threading.Event()
    first = worker.submit(lambda: begun.set() or gate.wait(60))
    second = worker.submit(lambda: 2)
    assert begun.wait(60)
    threading.Timer(0.01, gate.set).start()
    worker.close()
    assert first.result() is True
    assert second.cancelled()


@pytest.mark.parametrize("ahead", [0, 1, 3, 20])
def test_looking_ahead_changes_neither_order_nor_count(ahead):
    look = LookAhead(ahead)
    epochs = [range(5), range(5, 9)]
    taken = []
    for epoch in epochs:
        source = iter(epoch)
        while batch := list(zip(range(2), look.over(source), strict=False)):
            taken += [value for _, value in batch]
            for step in range(ahead):
                to_come = look.batch(len(taken) + step)
                inside = taken[-1] + 1 + step in epoch
                assert to_come == (taken[-1] + 1 + step if inside else None)
            look.forget_before(len(taken))
    assert taken == list(range(9))
