"""A run says what goes wrong in plain words, stops cleanly, and writes its metrics."""

import json
from types import SimpleNamespace

import pytest

from fmtkit.core.runner import find
from fmtkit.training.building.callbacks import (
    METRICS,
    RunLog,
    TokenCounter,
    TrainingError,
    out_of_memory,
)
from fmtkit.training.building.interrupts import Stop
from fmtkit.training.building.loss_checks import LossWatchdog, findings
from fmtkit.training.run import curves
from fmtkit.training.run.progress import described


def log_of(folder, method="dpo"):
    log = RunLog(folder, Stop(), TokenCounter(), find(method))
    state = SimpleNamespace(is_world_process_zero=True, global_step=0, max_steps=9)
    control = SimpleNamespace(should_save=False, should_training_stop=False)
    args = SimpleNamespace(world_size=1, device="cpu")
    log.on_train_begin(args, state, control)
    return log, args, state, control


def test_every_log_is_a_line_of_metrics(tmp_path):
    log, args, state, control = log_of(tmp_path)
    for step in (1, 2):
        state.global_step = step
        log.on_log(args, state, control, {"loss": 1.0 / step, "note": "x"})
    log.on_train_end(args, state, control)
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 0.5)]
    assert "note" not in lines[0]


def test_tokens_per_second_follow_from_the_trainers_count(tmp_path):
    log, args, state, control = log_of(tmp_path)
    log.on_log(args, state, control, {"loss": 1.0, "num_tokens": 100})
    line = json.loads((tmp_path / METRICS).read_text().splitlines()[0])
    assert line["tokens_per_second"] > 0


@pytest.mark.parametrize("name", ["loss", "grad_norm", "eval_loss"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_stops_the_run_with_what_to_try(tmp_path, name, value):
    log, args, state, control = log_of(tmp_path)
    with pytest.raises(TrainingError, match="lower learning_rate") as error:
        log.on_log(args, state, control, {"loss": 1.0, name: value})
    assert error.value.exit_code == 1
    line = json.loads((tmp_path / METRICS).read_text().splitlines()[0])
    assert line[name] is None


def test_a_zero_gradient_is_found():
    (finding,) = findings([{"loss": 0.0, "grad_norm": 0.0}] * 5, find("grpo"))
    assert "no learning signal: the gradient is zero" in finding


def test_a_loss_that_does_not_move_is_found():
    (finding,) = findings([{"loss": 0.5, "grad_norm": 0.1}] * 5, find("kto"))
    assert "the loss does not move" in finding


def test_a_model_that_has_not_moved_has_no_swapped_columns():
    still = {"grad_norm": 1.0, "rewards/accuracies": 0.0, "rewards/margins": 0.0}
    assert list(findings([{"loss": 1.0 + i, **still} for i in range(5)], find("dpo"))) == []


def test_swapped_columns_are_found():
    logs = [{"loss": 1.0 + i, "grad_norm": 1.0, "rewards/accuracies": 0.0} for i in range(5)]
    (finding,) = findings(logs, find("dpo"))
    assert "are the two columns swapped?" in finding


def test_a_run_that_learns_has_no_finding():
    logs = [{"loss": 1.0 / (i + 1), "grad_norm": 1.0, "rewards/accuracies": 0.5} for i in range(5)]
    assert not list(findings(logs, find("dpo")))


def test_a_finding_is_made_once(tmp_path):
    log, args, state, control = log_of(tmp_path)
    for step in range(12):
        state.global_step = step
        log.on_log(args, state, control, {"loss": 0.5, "grad_norm": 0.0})
    assert len(log.findings) == 1


def test_a_lack_of_memory_names_the_next_steps():
    error = out_of_memory(RuntimeError("CUDA out of memory. Tried 2 GiB\nmore"), 8, 2048)
    assert "halve micro_batch_size (now 8)" in str(error)
    assert "\n" not in str(error)


def test_the_counter_counts_what_is_no_padding():
    torch = pytest.importorskip("torch")
    counter = TokenCounter()
    counter.collate = lambda rows: {"attention_mask": torch.tensor(rows)}
    assert counter([[1, 1, 0], [1, 0, 0]])["attention_mask"].shape == (2, 3)
    assert counter.tokens == 3


def test_the_bar_shows_loss_margin_and_speed():
    text = described({"loss": 0.51234, "rewards/margins": 0.25}, 1234.5)
    assert text == "loss 0.5123  margin 0.25  tokens/s 1234"
    assert described({"train_runtime": 3.0}, 1234.5) == ""


def test_steps_that_a_resumed_run_did_again_are_drawn_once(tmp_path):
    lines = [(1, 0.7), (2, 0.6), (3, 0.9), (3, 0.5), (4, 0.4)]
    text = "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in lines)
    (tmp_path / "metrics.jsonl").write_text(text, encoding="utf-8")
    assert curves.read(tmp_path)["loss"] == [(1, 0.7), (2, 0.6), (3, 0.5), (4, 0.4)]


def test_a_loss_above_its_limit_for_so_many_steps_in_a_row_ends_the_run(capsys):
    watchdog = LossWatchdog(2.0, patience=2)
    control = SimpleNamespace(should_training_stop=False)
    stopped = []
    for step, loss in enumerate([3.0, 1.0, 2.5, 2.6], 1):
        state = SimpleNamespace(
            log_history=[{"loss": loss}], global_step=step, is_world_process_zero=True
        )
        watchdog.on_step_end(None, state, control)
        stopped.append(control.should_training_stop)
    assert stopped == [False, False, False, True]
    assert "step 4: the loss is 2.6, above loss_watchdog_threshold (2)" in capsys.readouterr().err
